"""Builders for the scheduler's tests: facts as events, and a log of one core that stores what it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.domain.quota.names import ANNOTATION_NAMESPACES, ANNOTATION_SHARED_WEIGHT, LABEL_PARENT, LABEL_TREE
from cotenant.engine.commit import CommitPlace, Decision, Identity, commit_batch
from cotenant.events.envelope import Event, MessageDecoders, Payload, decode_event, encode_event
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed, PodMetric, Usage
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Nomination, Placement, PlacementPhase, Waiting
from cotenant.model.quantities import format_amount
from cotenant.model.subjects import (
    condition_subject,
    executor_subject,
    metrics_subject,
    node_subject,
    object_subject,
    placement_subject,
    pod_subject,
    resources_subject,
    run_subject,
    waiting_subject,
)
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.definition import DEFINITION
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.builders import node_document, pod_document, stored

QUOTAS = "quotas"
"""The namespace of a story's quotas."""
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
GIB = 1 << 30
IDENTITY = Identity(service="scheduler")


def pod(
    name: str,
    *,
    cpu: str = "1",
    memory: str = "1Gi",
    namespace: str = "default",
    uid: str = "",
    priority: int | None = None,
    created: str = "2026-01-01T11:00:00Z",
    labels: dict[str, str] | None = None,
    deleting: bool = False,
    image: str = "",
    requests: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod's document; `requests` replaces cpu and memory, `spec` adds fields of the spec by their JSON names."""
    wanted = requests if requests is not None else {"cpu": cpu, "memory": memory}
    return pod_document(
        name,
        namespace=namespace,
        uid=uid or None,
        labels=labels,
        annotations=annotations,
        created=created,
        deleted="2026-01-01T12:00:00Z" if deleting else None,
        requests=wanted,
        limits=wanted,
        image=image,
        priority=priority,
        **spec,
    )


def batch_pod(name: str, *, cpu: str = "1k", memory: str = "1Gi", **more: Any) -> dict[str, Any]:
    """A pod of the batch tier."""
    return pod(
        name,
        requests={"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory},
        labels={"koordinator.sh/qosClass": "BE"},
        priority=5500,
        **more,
    )


def node(
    name: str,
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    pods: str = "110",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    taints: Sequence[dict[str, str]] = (),
    unschedulable: bool = False,
    images: dict[str, int] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A node's document; `images` are sizes in MiB by name, `more` are further allocatable resources."""
    return node_document(
        name,
        labels=labels,
        annotations=annotations,
        taints=taints,
        unschedulable=unschedulable,
        allocatable={"cpu": cpu, "memory": memory, "pods": pods, **more},
        images=[{"names": [name], "sizeBytes": size << 20} for name, size in (images or {}).items()],
    )


class Story:
    """A log with one scheduler on it: facts are stored and folded, decisions are stored and folded back."""

    def __init__(self, config: SchedulerConfig | None = None, profile: Callable[[], Profile] | None = None) -> None:
        self.config = config
        self.profile = profile
        self.core = self._new_core()
        self.now = NOW
        self.sequence = 0
        self.last: dict[str, Event] = {}
        """The last message of each subject."""
        self.checked = False
        """Whether a test compares every decision with a reference."""

    def _new_core(self) -> SchedulerCore:
        return SchedulerCore(self.config, self.profile() if self.profile is not None else None)

    # -- facts ---------------------------------------------------------------------------------------------------

    def say(self, subject: str, data: Payload, *, tombstone: bool = False, age: float = 0) -> Event:
        self.sequence += 1
        time = self.now - timedelta(seconds=age)
        event = Event(subject=subject, data=data, time=time, sequence=self.sequence, tombstone=tombstone)
        self.last[subject] = event
        self.core.apply(event)
        return event

    def pod(self, document: dict[str, Any], *, age: float = 1) -> Event:
        """A pod's object, stored so many seconds ago: unless a test says otherwise, one that is refused is told at once."""
        metadata = document["metadata"]
        return self.say(pod_subject(metadata["namespace"], metadata["name"]), stored(document), age=age)

    def pods(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.pod(document)

    def pod_deleted(self, name: str, namespace: str = "default") -> Event:
        return self.say(pod_subject(namespace, name), ObjectDeleted(), tombstone=True)

    def node(self, document: dict[str, Any]) -> Event:
        return self.say(node_subject(document["metadata"]["name"]), stored(document))

    def nodes(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            self.node(document)

    def node_deleted(self, name: str) -> Event:
        return self.say(node_subject(name), ObjectDeleted(), tombstone=True)

    def priority_class(
        self, name: str, value: int, default: bool = False, preemption_policy: str = "PreemptLowerPriority"
    ) -> Event:
        document = {
            "metadata": {"name": name},
            "value": value,
            "globalDefault": default,
            "preemptionPolicy": preemption_policy,
        }
        return self.say(object_subject("scheduling.k8s.io", "priorityclasses", "", name), stored(document))

    def budget(self, name: str, match_labels: dict[str, str], *, allowed: int, namespace: str = "default") -> Event:
        document = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"selector": {"matchLabels": match_labels}},
            "status": {"disruptionsAllowed": allowed},
        }
        return self.say(object_subject("policy", "poddisruptionbudgets", namespace, name), stored(document))

    def namespace(self, name: str, **labels: str) -> Event:
        return self.say(object_subject("", "namespaces", "", name), stored({"metadata": {"name": name, "labels": labels}}))

    def namespace_deleted(self, name: str) -> Event:
        return self.say(object_subject("", "namespaces", "", name), ObjectDeleted(), tombstone=True)

    def executor(self, name: str, **allocatable: int) -> Event:
        return self.say(executor_subject(name), ExecutorStatus(node=name, allocatable=allocatable))

    def batch(self, name: str, cpu_milli: int, memory_bytes: int = 64 * GIB) -> Event:
        data = NodeResources(node=name, batch_cpu_milli=cpu_milli, batch_memory_bytes=memory_bytes)
        return self.say(resources_subject(name), data)

    def metric(self, name: str, cpu_milli: int, memory_bytes: int = 0, *, age: float = 0, **pods: tuple[int, int]) -> Event:
        """A node's metric; `pods` are usages of pods in the default namespace."""
        data = NodeMetricComputed(
            node=name,
            update_time=self.now - timedelta(seconds=age),
            node_usage=Usage(cpu_milli=cpu_milli, memory_bytes=memory_bytes),
            pods=tuple(
                PodMetric(namespace="default", name=n, priority="koord-prod", usage=Usage(cpu_milli=c, memory_bytes=m))
                for n, (c, m) in sorted(pods.items())
            ),
        )
        return self.say(metrics_subject(name), data)

    def condition(self, name: str, *taints: tuple[str, str, str]) -> Event:
        return self.say(condition_subject(name), NodeCondition(node=name, status="Unknown", taints=taints))

    def run(
        self, node_name: str, name: str, phase: RunPhase, *, uid: str = "", namespace: str = "default", **more: Any
    ) -> Event:
        """Report a pod; that it was stopped is the tombstone of its run."""
        data = RunStatus(node=node_name, namespace=namespace, name=name, uid=uid or f"uid-{name}", phase=phase, **more)
        return self.say(run_subject(node_name, namespace, name), data, tombstone=phase is RunPhase.STOPPED)

    def quota(
        self,
        name: str,
        *,
        tree: str = "",
        max: dict[str, int],
        min: dict[str, int] | None = None,
        parent: str = "",
        namespaces: Sequence[str] = (),
        weight: dict[str, int] | None = None,
    ) -> Event:
        """A quota's object; amounts of cpu in milli-cores. Its runtime is its max where its pods request so much and
        its parent and the nodes have it."""
        annotations = {ANNOTATION_NAMESPACES: msgspec.json.encode(namespaces).decode()} if namespaces else {}
        if weight:
            annotations[ANNOTATION_SHARED_WEIGHT] = msgspec.json.encode(weight).decode()
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": QUOTAS,
            "labels": {LABEL_PARENT: parent, LABEL_TREE: tree},
            "annotations": annotations,
        }
        spec = {"max": {r: format_amount(r, a) for r, a in max.items()}}
        spec["min"] = {r: format_amount(r, a) for r, a in (min or {}).items()}
        return self.say(self._quota_subject(name), stored({"metadata": metadata, "spec": spec}))

    def quota_deleted(self, name: str) -> Event:
        return self.say(self._quota_subject(name), ObjectDeleted(), tombstone=True)

    def _quota_subject(self, name: str) -> str:
        return object_subject("scheduling.sigs.k8s.io", "elasticquotas", QUOTAS, name)

    # -- decisions -----------------------------------------------------------------------------------------------

    def decide(self) -> list[Event]:
        """Decide once, store it, fold it back; return what was stored."""
        stored = []
        for event in self.core.decide(self.now):
            self.sequence += 1
            event = msgspec.structs.replace(event, sequence=self.sequence, time=self.now)
            self.last[event.subject] = event
            stored.append(event)
        for event in stored:
            self.core.apply(event)
        return stored

    def begin_storing(self) -> list[Event]:
        """Decide; what is decided is being stored from here on."""
        batch = [msgspec.structs.replace(event, time=self.now) for event in self.core.decide(self.now)]
        if batch:
            self.core.assume(batch)
        return batch

    def end_storing(self, batch: Sequence[Event]) -> int:
        """What was being stored is stored; return its first sequence."""
        first = self.sequence + 1
        for event in batch:
            self.sequence += 1
            self.last[event.subject] = msgspec.structs.replace(event, sequence=self.sequence)
        self.core.confirm(first)
        return first

    def settle(self) -> list[Event]:
        """Decide until nothing follows."""
        stored: list[Event] = []
        for _ in range(200):
            batch = self.decide()
            if not batch:
                return stored
            stored.extend(batch)
        raise AssertionError("the scheduler does not come to rest")

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # -- reading -------------------------------------------------------------------------------------------------

    def placement(self, name: str, namespace: str = "default") -> Placement | None:
        """The placement of a pod that is not gone; fails if there are two."""
        found = [
            event.data
            for event in self.last.values()
            if isinstance(event.data, Placement)
            and (event.data.namespace, event.data.name) == (namespace, name)
            and event.data.phase is not PlacementPhase.GONE
        ]
        assert len(found) <= 1, found
        return found[0] if found else None

    def node_of(self, name: str, namespace: str = "default") -> str | None:
        placement = self.placement(name, namespace)
        return placement.node if placement is not None else None

    def placed(self) -> dict[str, str]:
        """Every pod that has a placement, and its node."""
        return {
            event.data.name: event.data.node
            for event in self.last.values()
            if isinstance(event.data, Placement) and event.data.phase is not PlacementPhase.GONE
        }

    def waiting(self, name: str, namespace: str = "default") -> Waiting | None:
        event = self.last.get(waiting_subject(namespace, name))
        return event.data if event is not None and not event.tombstone and isinstance(event.data, Waiting) else None

    def nominated(self) -> dict[str, Nomination]:
        """Every pod that is nominated to a node."""
        return {
            event.data.name: event.data.nomination
            for event in self.last.values()
            if isinstance(event.data, Waiting) and not event.tombstone and event.data.nomination is not None
        }

    def kept(self) -> dict[str, tuple[str, datetime]]:
        """Every pod that room is kept for as the queue's head, with the node and since when."""
        return {
            event.data.name: (event.data.hold.node, event.data.hold.at)
            for event in self.last.values()
            if isinstance(event.data, Waiting) and not event.tombstone and event.data.hold is not None
        }

    def placement_event(self, node_name: str, name: str, namespace: str = "default") -> Event:
        return self.last[placement_subject(node_name, namespace, name)]

    def reloaded(self, order: Sequence[str] | None = None) -> SchedulerCore:
        """A fresh core that folds only the last message of each subject, over the wire, in a given order."""
        core = self._new_core()
        for subject in order if order is not None else sorted(self.last, key=lambda s: self.last[s].sequence):
            core.apply(over_the_wire(self.last[subject]))
        return core


VIEWED = MessageDecoders(DEFINITION.views)


def over_the_wire(event: Event) -> Event:
    """The event as the scheduler's process reads it."""
    stamped = msgspec.structs.replace(event, id="test", source="/test")
    return decode_event(
        encode_event(stamped),
        subject=event.subject,
        stream=event.stream,
        sequence=event.sequence,
        tombstone=event.tombstone,
        ttl_seconds=event.ttl_seconds,
        decoders=VIEWED,
    )


def as_stored(events: Sequence[Event], prior: int = 0) -> list[tuple[object, ...]]:
    """What would be stored behind the commit record `prior`."""
    stamped = commit_batch(Decision(events=events, folded=0, now=NOW, took_us=0), IDENTITY, "", CommitPlace(prior, prior))
    return [(e.subject, e.data, e.causes, e.tombstone) for e in stamped.events[1:]]

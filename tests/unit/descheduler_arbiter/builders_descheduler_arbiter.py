"""A small cluster on a log: facts in, decisions stored as the shell stores them, and a fresh core from the last messages."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.engine.core import Request
from cotenant.events.envelope import Event, Payload
from cotenant.events.migrations import EvictionOutcome, Migration, NodeLoadJudged
from cotenant.events.node.metrics import NodeMetricComputed, PodMetric, Usage
from cotenant.events.node.runs import ContainerRun, ExecutorStatus, RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement
from cotenant.model.subjects import (
    eviction_subject,
    executor_subject,
    metrics_subject,
    node_subject,
    object_subject,
    placement_subject,
    pod_subject,
    run_subject,
)
from cotenant_descheduler_arbiter.config.configuration import DeschedulerConfiguration
from cotenant_descheduler_arbiter.core import DeschedulerArbiterCore
from cotenant_descheduler_arbiter.definition import make_core
from tests.builders import node_document, pod_document, stored

START = datetime(2026, 1, 1, tzinfo=UTC)
CYCLE = timedelta(seconds=10)
LOW = {"cpu": 40.0, "memory": 60.0}
HIGH = {"cpu": 70.0, "memory": 90.0}


def configuration(
    *,
    load: Mapping[str, object] | None = None,
    jobs: Mapping[str, object] | None = None,
    balance: bool = True,
    **top: object,
) -> DeschedulerConfiguration:
    """A document with LowNodeLoad (40/70 % cpu) and generous budgets by default."""
    document = {
        "deschedulingInterval": "10s",
        "profiles": [
            {
                "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}] if balance else []}},
                "pluginConfig": [
                    {"name": "LowNodeLoad", "args": {"lowThresholds": LOW, "highThresholds": HIGH, **(load or {})}},
                    {
                        "name": "MigrationController",
                        "args": {"evictBurst": 100, "maxMigratingPerNode": 0, "objectLimiters": {}, **(jobs or {})},
                    },
                ],
            }
        ],
        **top,
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=DeschedulerConfiguration)


class Cluster:
    """Nodes, pods and their usage; every fact goes through the core's `apply`."""

    def __init__(self, config: DeschedulerConfiguration | None = None) -> None:
        self.config = config or configuration()
        self.core: DeschedulerArbiterCore = make_core(self.config)
        self.now = START
        self.sequence = 0
        self.last: dict[str, Event] = {}
        self.usage: dict[str, dict[str, int]] = {}
        self.pods: dict[str, tuple[str, str]] = {}
        self.decided: list[Event] = []

    # -- facts ---------------------------------------------------------------------------------------------------

    def publish(self, subject: str, data: Payload, *, tombstone: bool = False) -> Event:
        self.sequence += 1
        event = Event(subject=subject, data=data, sequence=self.sequence, time=self.now, tombstone=tombstone)
        self.last[subject] = event
        self.core.apply(event)
        return event

    def store(self, subject: str, document: object) -> Event:
        return self.publish(subject, stored(document))

    def node(
        self,
        name: str,
        *,
        cpu: str = "10",
        memory: str = "100Gi",
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        unschedulable: bool = False,
    ) -> None:
        self.usage.setdefault(name, {})
        allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
        self.store(
            node_subject(name),
            node_document(name, labels=labels, taints=taints, unschedulable=unschedulable, allocatable=allocatable),
        )

    def pod(
        self,
        name: str,
        node: str,
        *,
        used: int = 1000,
        owner: str | None = "web",
        cpu: str = "500m",
        namespace: str = "default",
        uid: str | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        tolerations: Sequence[Mapping[str, object]] = (),
        priority: int | None = None,
        ready: bool = True,
        bound_at: datetime | None = None,
    ) -> str:
        """A running pod that uses `used` milli-cores; returns its uid."""
        uid = uid or f"uid-{name}"
        document = pod_document(
            name,
            namespace=namespace,
            uid=uid,
            labels=labels,
            annotations=annotations,
            owner=owner,
            created="2026-01-01T00:00:00Z",
            requests={"cpu": cpu},
            tolerations=list(tolerations),
            priority=priority,
        )
        self.store(pod_subject(namespace, name), document)
        placed = Placement(node=node, namespace=namespace, name=name, uid=uid, bound_at=bound_at)
        self.publish(placement_subject(node, namespace, name), placed)
        self.publish(
            run_subject(node, namespace, name),
            RunStatus(
                node=node,
                namespace=namespace,
                name=name,
                uid=uid,
                phase=RunPhase.RUNNING,
                containers=(ContainerRun(name="main", state="running", ready=ready),),
            ),
        )
        self.usage.setdefault(node, {})[name] = used
        self.pods[name] = (namespace, uid)
        return uid

    def finish_pod(self, name: str, *, namespace: str = "default") -> None:
        """The pod's containers have ended; its object and its placement are there still."""
        node = next(node for node, pods in self.usage.items() if name in pods)
        _, uid = self.pods[name]
        ended = RunStatus(node=node, namespace=namespace, name=name, uid=uid, phase=RunPhase.SUCCEEDED)
        self.publish(run_subject(node, namespace, name), ended)

    def end_pod(self, name: str, *, namespace: str = "default") -> None:
        """The pod's end on the log: run, placement and object are removed."""
        node = next(node for node, pods in self.usage.items() if name in pods)
        _, uid = self.pods.pop(name)
        gone = Placement(node=node, namespace=namespace, name=name, uid=uid)
        self.publish(placement_subject(node, namespace, name), gone, tombstone=True)
        self.publish(pod_subject(namespace, name), ObjectDeleted(uid=uid), tombstone=True)
        del self.usage[node][name]

    def executor(self, node: str) -> None:
        self.publish(executor_subject(node), ExecutorStatus(node=node))

    def metric(self, node: str, *, at: datetime | None = None, unknown_since: datetime | None = None) -> Event:
        pods = tuple(
            PodMetric(namespace=self.pods[name][0], name=name, uid=self.pods[name][1], usage=Usage(cpu_milli=used))
            for name, used in sorted(self.usage[node].items())
        )
        return self.publish(
            metrics_subject(node),
            NodeMetricComputed(node=node, update_time=at or self.now, unknown_since=unknown_since, pods=pods),
        )

    def job(
        self,
        name: str,
        pod: str,
        *,
        namespace: str = "default",
        uid: str = "",
        annotations: Mapping[str, str] | None = None,
        **spec: object,
    ) -> None:
        """A user's PodMigrationJob."""
        document = {
            "metadata": {
                "name": name,
                "uid": f"uid-job-{name}",
                "creationTimestamp": self.now.isoformat(),
                "annotations": dict(annotations or {}),
            },
            "spec": {"podRef": {"namespace": namespace, "name": pod, "uid": uid}, **spec},
        }
        self.store(object_subject("scheduling.koordinator.sh", "podmigrationjobs", "", name), document)

    def delete_job(self, name: str) -> None:
        subject = object_subject("scheduling.koordinator.sh", "podmigrationjobs", "", name)
        self.publish(subject, ObjectDeleted(uid=f"uid-job-{name}"), tombstone=True)

    def answer(self, job: str, *, allowed: bool = True, message: str = "") -> None:
        """The gateway's answer to the job's eviction."""
        wanted = self.migration(job)
        self.publish(
            eviction_subject(wanted.namespace, wanted.pod),
            EvictionOutcome(
                namespace=wanted.namespace, name=wanted.pod, uid=wanted.uid, allowed=allowed, job=job, message=message
            ),
        )

    # -- time ----------------------------------------------------------------------------------------------------

    def decide(self) -> list[Event]:
        """Decide until nothing more follows; store and apply what was decided. Returns it."""
        stored: list[Event] = []
        for _ in range(50):
            events = self.core.decide(self.now)
            subjects = [event.subject for event in events]
            assert len(subjects) == len(set(subjects)), "one message per subject in a batch"
            if not events:
                self.decided += stored
                return stored
            for event in events:
                self.sequence += 1
                stamped = msgspec.structs.replace(event, sequence=self.sequence, time=self.now)
                self.last[event.subject] = stamped
                self.core.apply(stamped)
                stored.append(stamped)
        raise AssertionError("decisions do not come to an end")

    def advance(self, by: timedelta = CYCLE) -> list[Event]:
        """Let time pass and decide, without any new metric."""
        self.now += by
        return self.decide()

    def cycle(self, times: int = 1) -> list[Event]:
        """Let cycles pass: every node is measured, then decisions follow."""
        events: list[Event] = []
        for _ in range(times):
            self.now += CYCLE
            for node in sorted(self.usage):
                self.metric(node)
            events += self.decide()
        return events

    def restart(self, order: Sequence[str] | None = None) -> None:
        """A fresh core that has seen nothing but the last message of each subject."""
        self.core = make_core(self.config)
        for subject in order or sorted(self.last, key=lambda each: self.last[each].sequence):
            self.core.apply(self.last[subject])

    # -- what came of it -----------------------------------------------------------------------------------------

    def migration(self, job: str) -> Migration:
        data = self.last[f"migrations.{job}"].data
        assert isinstance(data, Migration)
        return data

    def migrations(self) -> list[Migration]:
        """All jobs on the log, by name."""
        found = []
        for subject, event in sorted(self.last.items()):
            if subject.startswith("migrations.") and not event.tombstone:
                assert isinstance(event.data, Migration)
                found.append(event.data)
        return found

    def judged(self, node: str) -> NodeLoadJudged:
        data = self.last[f"descheduling.{node}"].data
        assert isinstance(data, NodeLoadJudged)
        return data

    def requests(self) -> Sequence[Request]:
        return self.core.requests(self.now)


def hot_and_cold(config: DeschedulerConfiguration | None = None, *, pods: int = 8, used: int = 1000) -> Cluster:
    """Node hot runs `pods` pods of `used` milli-cores on 10 cores; node cold runs one of 100; both have 10 cores."""
    cluster = Cluster(config)
    cluster.node("hot")
    cluster.node("cold")
    for index in range(pods):
        cluster.pod(f"web-{index}", "hot", used=used, owner="web")
    cluster.pod("idle-0", "cold", used=100, owner="idle")
    return cluster

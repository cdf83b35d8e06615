"""A log for one core: stores facts with sequences, folds them, and stores what the core decides."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from cotenant.events import (
    Event,
    NodeMetricComputed,
    NodeResources,
    NodeSLORendered,
    ObjectDeleted,
    Payload,
    Placement,
    RunStatus,
    YarnNode,
)
from cotenant.events.node.metrics import HostApplicationMetric, PodMetric, Usage
from cotenant.events.node.runs import RunPhase
from cotenant.model.subjects import (
    metrics_subject,
    node_subject,
    object_subject,
    placement_subject,
    resources_subject,
    run_subject,
    slo_subject,
    yarn_subject,
)
from cotenant_batch_resource_calculator.core import BatchResourceCalculator
from tests.builders import encoded, node_document, pod_document, stored

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GIB = 1 << 30
NOTHING = Usage()
PayloadT = TypeVar("PayloadT", bound=Payload)
CONFIG_SUBJECT = object_subject("", "configmaps", "koordinator-system", "slo-controller-config")
ENABLED = '{"enable": true, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 65}'


class Bench:
    """One core on a log of its own; `log` holds everything that was stored, in order."""

    def __init__(self) -> None:
        self.core = BatchResourceCalculator()
        self.log: list[Event] = []

    # -- facts ---------------------------------------------------------------------------------------------------

    def store(self, subject: str, data: Payload, *, tombstone: bool = False, time: datetime = NOON) -> Event:
        event = Event(subject=subject, data=data, sequence=len(self.log) + 1, tombstone=tombstone, time=time)
        self.log.append(event)
        self.core.apply(event)
        return event

    def store_object(self, subject: str, document: dict[str, object]) -> Event:
        return self.store(subject, stored(document))

    def configure(self, colocation: str | None = ENABLED, **sections: str) -> Event:
        data = {key.replace("_", "-"): text for key, text in sections.items()}
        if colocation is not None:
            data["colocation-config"] = colocation
        return self.store_object(CONFIG_SUBJECT, {"metadata": {"name": "slo-controller-config"}, "data": data})

    def node(
        self,
        name: str = "a",
        *,
        cpu: str = "100",
        memory: str = "100Gi",
        allocatable: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> Event:
        capacity = {"cpu": cpu, "memory": memory}
        return self.store_object(
            node_subject(name),
            node_document(name, labels=labels, annotations=annotations, capacity=capacity, allocatable=allocatable or capacity),
        )

    def delete_node(self, name: str = "a") -> Event:
        return self.store(node_subject(name), ObjectDeleted(), tombstone=True)

    def metric(
        self,
        name: str = "a",
        *,
        system: Usage = NOTHING,
        pods: dict[str, Usage] | None = None,
        hosts: tuple[HostApplicationMetric, ...] = (),
        tiers: dict[str, str] | None = None,
        at: datetime = NOON,
        unknown_since: datetime | None = None,
        prod_reclaimable: Usage | None = None,
        prod_peak: Usage | None = None,
    ) -> Event:
        found = tuple(
            PodMetric(namespace="default", name=pod, usage=used, priority=(tiers or {}).get(pod, ""))
            for pod, used in (pods or {}).items()
        )
        total = Usage(
            cpu_milli=system.cpu_milli + sum(pod.usage.cpu_milli for pod in found),
            memory_bytes=system.memory_bytes + sum(pod.usage.memory_bytes for pod in found),
        )
        data = NodeMetricComputed(
            node=name,
            update_time=at,
            unknown_since=unknown_since,
            node_usage=total,
            system_usage=system,
            pods=found,
            host_applications=hosts,
            prod_reclaimable=prod_reclaimable,
            prod_peak=prod_peak,
        )
        return self.store(metrics_subject(name), data, time=at)

    def place(
        self,
        pod: str,
        *,
        node: str = "a",
        cpu: str = "10",
        memory: str = "10Gi",
        qos: str = "LS",
        uid: str = "",
        **spec: Any,
    ) -> Event:
        requests = {"cpu": cpu, "memory": memory}
        document = pod_document(pod, uid=uid or pod, labels={"koordinator.sh/qosClass": qos}, requests=requests, **spec)
        data = Placement(node=node, namespace="default", name=pod, uid=uid or pod, pod=encoded(document))
        return self.store(placement_subject(node, "default", pod), data)

    def displace(self, pod: str, *, node: str = "a") -> Event:
        data = Placement(node=node, namespace="default", name=pod, uid=pod)
        return self.store(placement_subject(node, "default", pod), data, tombstone=True)

    def run(self, pod: str, phase: RunPhase, *, node: str = "a", uid: str = "") -> Event:
        data = RunStatus(node=node, namespace="default", name=pod, uid=uid or pod, phase=phase)
        return self.store(run_subject(node, "default", pod), data)

    def yarn(self, used: Usage, *, node: str = "a", named: str | None = None) -> Event:
        return self.store(yarn_subject(node), YarnNode(node=node if named is None else named, used=used))

    # -- decisions -----------------------------------------------------------------------------------------------

    def decide(self, now: datetime = NOON) -> list[Event]:
        """Decide, store and fold what was decided, as the shell does; returns it as stored."""
        return [
            self.store(event.subject, event.data, tombstone=event.tombstone, time=now) for event in list(self.core.decide(now))
        ]

    def resources(self, name: str = "a") -> NodeResources:
        return self._last(resources_subject(name), NodeResources)

    def slo(self, name: str = "a") -> NodeSLORendered:
        return self._last(slo_subject(name), NodeSLORendered)

    def _last(self, subject: str, kind: type[PayloadT]) -> PayloadT:
        data = next(event.data for event in reversed(self.log) if event.subject == subject)
        assert isinstance(data, kind)
        return data


def last_per_subject(log: Iterable[Event]) -> list[Event]:
    """Return what a service that starts now would load."""
    last: dict[str, Event] = {}
    for event in log:
        last[event.subject] = event
    return sorted(last.values(), key=lambda event: event.sequence)


def minutes(count: float) -> timedelta:
    return timedelta(minutes=count)


def used(cpu: float, memory_gib: float) -> Usage:
    return Usage(cpu_milli=int(cpu * 1000), memory_bytes=int(memory_gib * GIB))

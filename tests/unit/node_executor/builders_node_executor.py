"""Builders for the executor's unit tests: situations, snapshots, cores with placed pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.node.runs import ExecutorStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.model.subjects import executor_subject, placement_subject, slo_subject
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.observation import Observation
from cotenant_node_executor.runtime.interface import ContainerState
from cotenant_node_executor.sampling.snapshot import GroupUsage, NodeUsage, PodSample, PressureSet, SystemUsage, UsageSnapshot
from cotenant_node_executor.strategies.pod_view import pod_view
from cotenant_node_executor.strategies.pods.pod_values import burstable_milli
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.situation import LocalNode, Processor, Situation, best_effort_tree, holding_cpus
from cotenant_node_executor.strategies.strategy import Evict, Strategy, StrategyDecision
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, CgroupVersion, Knob, KnobSupport, NodeCapabilities
from tests.builders import container, pod_document

NODE = "node-1"
START = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30

_DOCUMENTS: dict[str, bytes] = {}
"""The document of each pod as it was last built, by name: a typed view does not hold all of it."""


def facts(cpus: int = 8) -> LocalNode:
    """A node of one socket with two threads a core."""
    return LocalNode(
        name=NODE,
        capacity_milli=cpus * 1000,
        allocatable_milli=cpus * 1000,
        memory_bytes=16 * GIB,
        processors=tuple(Processor(cpu=cpu, core=cpu // 2, socket=0, node=0) for cpu in range(cpus)),
    )


def capabilities(*without: Knob, also: Sequence[Knob] = ()) -> NodeCapabilities:
    """A mainline kernel, less some knobs, with some of a vendor's."""
    known = (Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.CPUSET_CPUS, Knob.CPU_IDLE, Knob.MEMORY_LIMIT, *also)
    return NodeCapabilities(
        version=CgroupVersion.V1,
        controllers=("cpu", "cpuset", "memory"),
        sandbox=False,
        root="cotenant/node-1",
        knobs={knob.value: KnobSupport(True) for knob in known if knob not in without},
    )


def pod(
    name: str,
    qos: str = "",
    *,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    more_labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod of one container; its uid is `uid-<name>`. Annotations go in as `annotations`."""
    labels = {**({"koordinator.sh/qosClass": qos} if qos else {}), **(more_labels or {})}
    containers = [container(command=["run"], requests=requests, limits=limits)]
    raw = msgspec.json.encode(pod_document(name, labels=labels, **{"containers": containers, **spec}))
    _DOCUMENTS[name] = raw
    return decode_pod(raw)


def service(name: str, cpu: str = "1", **more: Any) -> Pod:
    """A latency-sensitive, burstable pod."""
    return pod(name, "LS", requests={"cpu": cpu, "memory": "1Gi"}, **more)


def batch(name: str, milli: int = 1000, **more: Any) -> Pod:
    """A batch pod with requests equal to limits."""
    amounts = {"kubernetes.io/batch-cpu": str(milli), "kubernetes.io/batch-memory": "1Gi"}
    return pod(name, "BE", requests=amounts, limits=amounts, **more)


def group(name: str) -> str:
    """The control group of a latency-sensitive, burstable pod."""
    return f"{BURSTABLE}/poduid-{name}"


def evicted(decision: StrategyDecision) -> list[str]:
    """The uids of the pods that a decision evicts, in its order."""
    return [order.uid for order in decision.orders if isinstance(order, Evict)]


def usage(group: str, milli: int | None) -> GroupUsage:
    """Usage of one group."""
    return GroupUsage(
        group=group,
        cpu_milli=milli,
        memory_bytes=GIB,
        memory_with_page_cache_bytes=GIB,
        throttled_ratio=None,
        pressure=PressureSet(),
    )


def snapshot(node_milli: int | None, pods: Mapping[str, int | None] | None = None, *, cpus: int = 8) -> UsageSnapshot:
    """One reading; pods by uid."""
    used = {uid: PodSample(uid, BURSTABLE, usage(uid, milli)) for uid, milli in sorted((pods or {}).items())}
    total = sum(milli or 0 for milli in (pods or {}).values())
    return UsageSnapshot(
        monotonic_ns=1,
        interval_ns=1_000_000_000,
        node=NodeUsage(node_milli, cpus * 1000, 4 * GIB, 5 * GIB, 16 * GIB, PressureSet()),
        system=SystemUsage(None if node_milli is None else max(node_milli - total, 0), GIB),
        pods=used,
        tiers={},
    )


def slo(**fields: Any) -> NodeSLORendered:
    """A node SLO; suppression by quota at 65 % unless stated otherwise."""
    return NodeSLORendered(node=NODE, **{"enable": True, "cpu_suppress_policy": "cfsQuota", **fields})


def situation(
    pods: Sequence[Pod] = (),
    *,
    node_slo: NodeSLORendered | None = None,
    reading: UsageSnapshot | None = None,
    current: Mapping[tuple[str, Knob], str] | None = None,
    kernel: NodeCapabilities | None = None,
    cpus: int = 8,
    sysctl: int | None = None,
) -> Situation:
    """Everything that strategies look at; every pod has its groups."""
    views = [pod_view(entry) for entry in pods]
    groups = {BURSTABLE, BESTEFFORT}
    for view in views:
        groups.update(view.groups)
    return Situation(
        node=facts(cpus),
        capabilities=kernel or capabilities(),
        pods={view.group: view for view in views},
        groups=frozenset(groups),
        tree=best_effort_tree(holding_cpus(views), groups),
        slo=node_slo,
        snapshot=reading,
        current=current or {},
        burstable_milli=sum(burstable_milli(view.shape) for view in views),
        identity_sysctl=sysctl,
    )


class Bench:
    """A core with a log of its own: stores what is decided as a shell would."""

    def __init__(
        self,
        *,
        plain_processes: bool = True,
        strategies: tuple[Strategy, ...] = STRATEGIES,
        of: LocalNode | None = None,
        kernel: NodeCapabilities | None = None,
    ) -> None:
        self.core = ExecutorCore(
            of or facts(), kernel or capabilities(), "boot", plain_processes=plain_processes, strategies=strategies
        )
        self.sequence = 0
        self.last: dict[str, Event] = {}
        self.states: dict[str, dict[str, ContainerState]] = {}
        self.groups: set[str] = {BURSTABLE, BESTEFFORT}
        self.reading: UsageSnapshot | None = None
        self.current: dict[tuple[str, Knob], str] = {}
        self.now = START

    def store(self, subject: str, data: Payload, *, tombstone: bool = False) -> Event:
        """One fact on the log, folded at once."""
        self.sequence += 1
        event = Event(subject=subject, data=data, time=self.now, sequence=self.sequence, tombstone=tombstone)
        self.last[subject] = event
        self.core.apply(event)
        return event

    def load(self) -> Bench:
        """The start marker comes back."""
        self.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot="boot"))
        return self

    def restarted(self) -> Bench:
        """The next executor on the same machine and the same log, which gives the last message of each subject."""
        core = self.core
        self.core = ExecutorCore(
            core.facts, core.capabilities, "boot", plain_processes=True, strategies=(*core.strategies.values(),)
        )
        for event in self.last.values():
            self.core.apply(event)
        return self.load()

    def place(self, entry: Pod, phase: PlacementPhase = PlacementPhase.BOUND, *, grace: int = 30, **fields: Any) -> Event:
        """Place a pod, or change its placement."""
        metadata = entry.metadata
        placement = Placement(
            node=NODE,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            phase=phase,
            pod=msgspec.Raw(_DOCUMENTS[metadata.name]),
            grace_period_seconds=grace,
            **fields,
        )
        subject = placement_subject(NODE, metadata.namespace, metadata.name)
        return self.store(subject, placement, tombstone=phase is PlacementPhase.GONE)

    def slo(self, **fields: Any) -> Event:
        """Render a node SLO."""
        return self.store(slo_subject(NODE), slo(**fields))

    def saw(self, entry: Pod, **state: Any) -> None:
        """The runtime shows this state of the pod's container `main`."""
        self.states.setdefault(entry.metadata.uid, {})["main"] = ContainerState(**{"name": "main", "attempt": 0, **state})

    def look(self, seconds: float = 0.0, **seen: Any) -> Bench:
        """Let time pass and observe; `seen`: more of the observation."""
        self.now += timedelta(seconds=seconds)
        self.core.observe(
            Observation(
                snapshot=self.reading,
                states={uid: dict(states) for uid, states in self.states.items()},
                groups=frozenset(self.groups),
                current=self.current,
                **{"identity_sysctl": None, **seen},
            )
        )
        return self

    def report(self) -> list[Event]:
        """Decide, and store what was decided."""
        events = list(self.core.decide(self.now))
        return [self.store(event.subject, event.data, tombstone=event.tombstone) for event in events]

"""Suppression of batch work, one decision per cycle: the quantity, the active policy, the reset of the other policy's files.

In: the situation. Out: the figures and the desired values of the best-effort tree, or None if nothing may be written (no
node SLO or no usage yet).

| node SLO | quota of the best-effort group | CPU sets of the best-effort tree |
|---|---|---|
| disabled | unlimited | widest |
| enabled, and batch CPUs are managed by NUMA node | unlimited | widest, except pods that were given NUMA nodes |
| policy cfsQuota | from the quantity | widest |
| policy cpuset, or any other text | unlimited | from the quantity |

Every decision sets both, so a change of policy, or a file written by another process, is corrected by the next one. On a
kernel without CPU sets the cpuset policy works by quota. Where kubelet runs the pods with its static CPU policy only containers
are narrowed, and the tree above them stays widest. Source: CPU suppress, koordlet rule.

A spike of the services, measured between two samples, takes effect at once, and never lets batch work grow. Nor does a sample
that covers the time before the spike, as its mean is not the services' present usage.

A service with a latency goal that is late (`protection.lateness`) takes STEP_PERCENT of the node from batch work with each
sample, and keeps it from growing; after ON_TIME_SAMPLES without a late service it is returned by the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.wanted import wanted_by
from cotenant_node_executor.strategies.cpu.cpuset_rule import STATIC
from cotenant_node_executor.strategies.cpu.cpusets import kept_cpus
from cotenant_node_executor.strategies.cpu.protection.lateness import lateness, worst
from cotenant_node_executor.strategies.cpu.suppression.cfs_quota import next_quota
from cotenant_node_executor.strategies.cpu.suppression.cpu_set import (
    cpuset_targets,
    next_cpuset,
    recover_cpuset,
    with_dead_band,
)
from cotenant_node_executor.strategies.cpu.suppression.quantity import (
    HostApplicationClass,
    PodClass,
    UsageSplit,
    reserved_milli,
    split_usage,
    suppress_milli,
)
from cotenant_node_executor.strategies.pods.batch_values import CFS_QUOTA
from cotenant_node_executor.strategies.sections import THRESHOLD
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import (
    Cause,
    Desired,
    DesiredValues,
    Input,
    NodePolicy,
    Strategy,
    StrategyDecision,
)
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import BESTEFFORT, UNLIMITED_TEXT, Knob

NAME = "suppress"
CAPACITY, QUANTITY = "capacity.cpu-milli", "best-effort.cpu-milli"
"""Figures of a decision: the node's CPU, and batch's part of it."""
OFF = "off"
CPUSET = "cpuset"
STEP_PERCENT, ON_TIME_SAMPLES = 10, 10


class HeldBack(Struct, frozen=True):
    """The reduction of batch work for late services. `on_time`: samples without a late one; `sample`: the last one counted."""

    milli: int = 0
    on_time: int = 0
    sample: int = 0
    late: str = ""
    """The service that is latest, with its figure and goal."""


NOTHING_HELD = HeldBack()


class Suppression(Struct, frozen=True):
    """The decision and its figures (milli-CPU). `policy` is cfsQuota, cpuset or off."""

    policy: str
    values: DesiredValues
    quantity_milli: int = 0
    threshold_percent: int = 0
    capacity_milli: int = 0
    node_used_milli: int = 0
    split: UsageSplit | None = None
    spiked_ns: int = 0
    """When the services' usage last spiked (monotonic)."""
    held: HeldBack = NOTHING_HELD
    cpus: str = ""
    """The CPU set of batch work, by the policy cpuset."""

    @property
    def why(self) -> str:
        """The decision as text."""
        if self.split is None:
            return "suppression is disabled: best-effort is unlimited"
        return (
            f"best-effort may use {self.quantity_milli}m = {self.capacity_milli}m x {self.threshold_percent}% - "
            f"{int(self.split.pods_non_be_milli)}m services - {int(self.split.system_milli)}m system"
            + (f" - {int(self.split.hosts_non_be_milli)}m host" if self.split.hosts_non_be_milli else "")
            + (f" - {self.held.milli}m for services that are late" if self.held.milli else "")
            + (f" ({self.held.late})" if self.held.late else "")
        )


def suppress(situation: Situation, spiked_ns: int = 0, held: HeldBack = NOTHING_HELD, cpus: str = "") -> Suppression | None:
    """Decide this cycle's suppression; None for no change of any file. `spiked_ns`, `held`, `cpus`: of the last decision."""
    slo = situation.slo
    if slo is None:
        return None
    if not slo.enable or situation.node.manages_batch_cpus:
        return Suppression(policy=OFF, values=_values(UNLIMITED_TEXT, OFF, _widest(situation)))
    snapshot = situation.spike or situation.snapshot
    if snapshot is None or snapshot.node.cpu_milli is None:
        return None
    spiked_ns = snapshot.monotonic_ns if situation.spike is not None else spiked_ns
    may_grow = situation.spike is None and snapshot.monotonic_ns - (snapshot.interval_ns or 0) >= spiked_ns
    split = _split(situation, snapshot, snapshot.node.cpu_milli)
    node = situation.node
    quantity = suppress_milli(
        node.capacity_milli, slo.cpu_suppress_threshold_percent, split, slo.cpu_suppress_min_percent or None
    )
    floor = node.capacity_milli * (slo.cpu_suppress_min_percent or 0) // 100
    held = _held_back(situation, held, max(quantity - floor, 0))
    quantity = max(quantity - held.milli, floor) if held.milli else quantity
    may_grow = may_grow and not held.late
    by_quota = slo.cpu_suppress_policy == CFS_QUOTA or not situation.capabilities.supports(Knob.CPUSET_CPUS)
    decided = Suppression(
        policy=CFS_QUOTA if by_quota else CPUSET,
        values={},
        quantity_milli=quantity,
        threshold_percent=slo.cpu_suppress_threshold_percent,
        capacity_milli=node.capacity_milli,
        node_used_milli=snapshot.node.cpu_milli,
        split=split,
        spiked_ns=spiked_ns,
        held=held,
    )
    if by_quota:
        return msgspec.structs.replace(decided, values=_by_quota(situation, decided, may_grow))
    values, chosen = _by_cpuset(situation, decided, may_grow, cpus)
    return msgspec.structs.replace(decided, values=values, cpus=chosen)


def _held_back(situation: Situation, before: HeldBack, most_milli: int) -> HeldBack:
    """The present reduction for late services, at most this much; a sample counts once."""
    sample = situation.snapshot.monotonic_ns if situation.snapshot is not None else 0
    if sample == before.sample:
        return before
    late = worst(lateness(situation))
    step = situation.node.capacity_milli * STEP_PERCENT // 100
    if late is not None:
        return HeldBack(min(before.milli + step, most_milli), 0, sample, late.text)
    on_time = min(before.on_time + 1, ON_TIME_SAMPLES)
    left = max(before.milli - step, 0) if on_time >= ON_TIME_SAMPLES else before.milli
    return HeldBack(left, on_time, sample)


def _split(situation: Situation, snapshot: UsageSnapshot, node_used_milli: int) -> UsageSplit:
    used = {
        uid: float(pod.usage.cpu_milli) for uid, pod in snapshot.pods.items() if pod.usage.cpu_milli is not None
    }
    annotated = situation.slo.reserved_cpu_milli if situation.slo is not None else 0
    return split_usage(
        float(node_used_milli),
        float(reserved_milli(situation.node.capacity_milli, situation.node.allocatable_milli, annotated)),
        [*(PodClass(pod.uid, pod.qos, pod.kube_qos) for pod in situation.pods.values()), *_ended_batch(situation, snapshot)],
        used,
        [HostApplicationClass(each.name, each.qos, each.base) for each in wanted_by(situation.slo).host_applications],
        {
            name: float(each.usage.cpu_milli)
            for name, each in snapshot.host_applications.items()
            if each.usage.cpu_milli is not None
        },
    )


def _ended_batch(situation: Situation, snapshot: UsageSnapshot) -> list[PodClass]:
    """Pods of the best-effort tree that ended since the sample: their usage counts as batch usage, not as service usage."""
    known = {pod.uid for pod in situation.pods.values()}
    return [
        PodClass(uid, QoSClass.BE, KubeQoS.BEST_EFFORT)
        for uid, pod in sorted(snapshot.pods.items())
        if uid not in known and pod.tier == BESTEFFORT
    ]


def _by_quota(situation: Situation, decided: Suppression, may_grow: bool) -> DesiredValues:
    text = situation.current.get((BESTEFFORT, Knob.CPU_QUOTA))
    current = int(text) if text is not None else int(UNLIMITED_TEXT)
    quota = next_quota(decided.quantity_milli, decided.capacity_milli, current)
    if quota is not None and not may_grow and quota > current != int(UNLIMITED_TEXT):
        quota = None
    return _values(str(current if quota is None else quota), decided.why, _widest(situation))


def _by_cpuset(situation: Situation, decided: Suppression, may_grow: bool, before: str) -> tuple[DesiredValues, str]:
    """The values and the CPU set, which stays where none can be chosen. `before`: the last one, which the best-effort group
    does not show where it stays wide."""
    processors = situation.node.processors
    text = before if _containers_only(situation) else situation.current.get((BESTEFFORT, Knob.CPUSET_CPUS))
    current = frozenset(parse_cpu_list(text)) if text else frozenset(p.cpu for p in processors)
    wanted = decided.quantity_milli if may_grow else min(decided.quantity_milli, 1000 * len(current))
    quantity = with_dead_band(wanted, len(current), decided.capacity_milli)
    widest = _everything(situation)
    # Of more CPUs than there are for batch work the rule would choose none.
    quantity = min(quantity, 1000 * len(parse_cpu_list(widest)))
    chosen = next_cpuset(quantity, processors, current, situation.tree.owners, kept_cpus(situation)) or before or widest
    sets = _sets(situation, chosen, decided.why) if chosen else {}
    return _values(UNLIMITED_TEXT, decided.why, sets), chosen


def _containers_only(situation: Situation) -> bool:
    """Whether only containers are narrowed: under its static CPU policy kubelet could not create one in a narrow directory."""
    return situation.node.kubelet_pods and situation.node.kubelet_cpu_policy == STATIC


def _values(quota: str, why: str, sets: Mapping[str, Desired]) -> DesiredValues:
    """The best-effort group's quota, together with the CPU sets of the tree."""
    desired: dict[Place, tuple[Desired, ...]] = {group: (one,) for group, one in sets.items()}
    desired[BESTEFFORT] = (Desired(Knob.CPU_QUOTA, quota, NAME, why), *desired.get(BESTEFFORT, ()))
    return desired


def _widest(situation: Situation) -> Mapping[str, Desired]:
    if not situation.capabilities.supports(Knob.CPUSET_CPUS):
        return {}
    widest = _everything(situation)
    return _sets(situation, widest, "not suppressed by CPU set") if widest else {}


def _everything(situation: Situation) -> str:
    """All CPUs that batch work may ever use."""
    return recover_cpuset(situation.node.processors, situation.tree.owners, kept_cpus(situation))


def _sets(situation: Situation, cpus: str, why: str) -> Mapping[str, Desired]:
    """The same CPU list for the whole best-effort tree, except pods with exclusive CPUs, or bound to NUMA nodes."""
    groups = situation.tree.groups
    if situation.node.manages_batch_cpus:
        groups = groups - {group for pod in situation.pods.values() if pod.cpu_nodes for group in pod.groups[1:]}
    levels = [[group for group in groups if group.count("/") == depth] for depth in range(3)]
    static = _containers_only(situation)
    targets = cpuset_targets(cpus, _everything(situation) if static else cpus, static, levels)
    return {group: Desired(Knob.CPUSET_CPUS, targets[group], NAME, why) for group in sorted(targets)}


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """This cycle's suppression as a decision; its memory holds the figures for the events."""
    before = memory if isinstance(memory, Suppression) else None
    decided = suppress(situation) if before is None else suppress(situation, before.spiked_ns, before.held, before.cpus)
    return StrategyDecision(decided.values, memory=decided) if decided is not None else StrategyDecision(keep=True)


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    enabled = policy.slo is not None and policy.slo.enable
    return frozenset((Input.TREE, Input.PODS, Input.USAGE, Input.SPIKE) if enabled else (Input.TREE,))


def _figures(memory: Struct | None) -> dict[str, int]:
    if not isinstance(memory, Suppression) or memory.split is None:
        return {}
    split = memory.split
    late = {"held-back.cpu-milli": memory.held.milli} if memory.held.milli else {}
    return {
        CAPACITY: memory.capacity_milli,
        "threshold.percent": memory.threshold_percent,
        "node.cpu-milli": memory.node_used_milli,
        "services.cpu-milli": int(split.pods_non_be_milli),
        "host.cpu-milli": int(split.hosts_non_be_milli),
        "system.cpu-milli": int(split.system_milli),
        QUANTITY: memory.quantity_milli,
        **late,
    }


STRATEGY = Strategy(
    name=NAME,
    topic="suppress",
    sets=(Knob.CPU_QUOTA, Knob.CPUSET_CPUS),
    decide=decide,
    inputs=_inputs,
    cause=Cause.USAGE,
    figures=_figures,
    section=THRESHOLD,
)

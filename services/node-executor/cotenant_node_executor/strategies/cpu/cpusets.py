"""CPU sets of containers as the placement says, and no quota for pods that have CPUs of their own.

In: the situation. Out: for containers the CPUs of `cpuset_rule`, where these are not all of the node's; a bound pod and its
containers have no quota, as it would throttle what is isolated already. The best-effort tree belongs to suppression, except
that batch pods are bound to their NUMA nodes where batch CPUs are managed so. Host applications labelled LS, below the
executor's root, get the share pools.

A container that may use every CPU has no desired value: if it had one, the initial value is restored. The first
decision after a start sets the whole set once for each container, as one may have been narrowed before. Source: cpuset hook,
koordlet rule.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant.domain.cpu_pools import SystemQoS, cpus_or_none, system_qos
from cotenant.domain.qos import QoSClass
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.sampling.wanted import wanted_by
from cotenant_node_executor.strategies.cpu.cpuset_rule import (
    CpuPools,
    container_cpuset,
    host_application_cpuset,
    pools_without,
)
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Desired, Strategy, StrategyDecision, on_pods
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.cpulist import format_cpu_list, parse_cpu_list
from cotenant_node_executor.targets.interface import UNLIMITED_TEXT, Knob

NAME = "cpuset"
_ALONE = frozenset((QoSClass.LSE, QoSClass.LSR))


class TakenCpus(Struct, frozen=True):
    """What the node's pools follow from, beside its processors."""

    alone: frozenset[int]
    """Kept, or held by LSE pods."""
    held: frozenset[int]
    """By LSR pods."""
    system: frozenset[int]


class Decided(Struct, frozen=True):
    """There was a decision before: with these pools, as long as they follow from the same."""

    taken: TakenCpus | None = None
    pools: CpuPools = CpuPools()


def taken_cpus(situation: Situation) -> TakenCpus:
    """The CPUs that pods hold and those that are reserved."""
    held: dict[QoSClass, set[int]] = {QoSClass.LSE: set(), QoSClass.LSR: set()}
    for pod in situation.pods.values():
        if pod.bound_cpus and pod.qos in _ALONE:
            held[pod.qos].update(pod.bound_cpus)
    alone = kept_cpus(situation) | held[QoSClass.LSE]
    return TakenCpus(alone, frozenset(held[QoSClass.LSR]), system_cpus(situation).cpus)


def cpu_pools(situation: Situation, taken: TakenCpus | None = None) -> CpuPools:
    """The node's pools, from the CPUs that are taken."""
    taken = taken or taken_cpus(situation)
    processors = situation.node.processors
    batch = pools_without(processors, taken.alone)
    return CpuPools(
        share=batch if taken.held <= taken.alone else pools_without(processors, taken.alone | taken.held),
        batch=batch,
        system=format_cpu_list(taken.system),
        kubelet_policy=situation.node.kubelet_cpu_policy,
        manages_batch=situation.node.manages_batch_cpus,
    )


class SystemCpus(Struct, frozen=True):
    """CPUs for system pods. `exclusive`: all others keep off them."""

    cpus: frozenset[int] = frozenset()
    exclusive: bool = False


class KeptCpus(Struct, frozen=True):
    """What the node's annotations keep, as far as their lists can be read."""

    reserved: frozenset[int] = frozenset()
    system: SystemCpus = SystemCpus()


def system_cpus(situation: Situation) -> SystemCpus:
    """The CPUs that the node's annotation gives to system pods, as far as this machine has them."""
    stated = _kept(situation.slo).system if situation.slo is not None else SystemCpus()
    if not stated.cpus:
        return stated
    return SystemCpus(stated.cpus & {processor.cpu for processor in situation.node.processors}, stated.exclusive)


def kept_cpus(situation: Situation) -> frozenset[int]:
    """The CPUs that no pod shares: reserved ones, and those of system pods alone."""
    stated = _kept(situation.slo) if situation.slo is not None else KeptCpus()
    return stated.reserved | stated.system.cpus if stated.system.exclusive else stated.reserved


@by_identity
def _kept(slo: NodeSLORendered) -> KeptCpus:
    system = system_qos(slo.system_qos_annotation) or SystemQoS(exclusive=False)
    return KeptCpus(
        frozenset(cpus_or_none(slo.reserved_cpus)),
        SystemCpus(frozenset(cpus_or_none(system.cpuset)), system.exclusive is not False),
    )


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """The CPU sets of this cycle."""
    taken = taken_cpus(situation)
    before = memory if isinstance(memory, Decided) else Decided()
    pools = before.pools if before.taken == taken else cpu_pools(situation, taken)
    everything = frozenset() if memory is None else frozenset(processor.cpu for processor in situation.node.processors)
    pins = Pins(everything)
    desired: dict[Place, tuple[Desired, ...]] = {}
    for group in sorted(situation.pods):
        _of_pod(situation.pods[group], pools, pins, desired)
    for application in wanted_by(situation.slo).host_applications:
        own = application.own_group
        if own is None or own not in situation.groups:
            continue
        try:
            text = host_application_cpuset(pools, application.qos)
        except ValueError:
            continue
        if list_of_cpus := pins[text]:
            desired[own] = (Desired(Knob.CPUSET_CPUS, list_of_cpus, NAME, "share pools"),)
    return StrategyDecision(desired, memory=Decided(taken, pools))


class Pins(dict[str, str]):
    """CPU lists as they are written, by the text of a rule, for one decision; "" for all CPUs of the node, and for none."""

    def __init__(self, everything: frozenset[int]) -> None:
        super().__init__()
        self._everything = everything

    def __missing__(self, text: str) -> str:
        cpus = frozenset(parse_cpu_list(text))
        written = self[text] = format_cpu_list(cpus) if cpus and cpus != self._everything else ""
        return written


def _of_pod(pod: PodView, pools: CpuPools, pins: Pins, desired: dict[Place, tuple[Desired, ...]]) -> None:
    bound = format_cpu_list(pod.bound_cpus) if pod.bound_cpus else ""
    text = container_cpuset(pools, pod.qos, bound, pod.cpu_nodes, pod.group)
    why = "its own CPUs" if bound else "CPUs of its NUMA nodes" if pod.cpu_nodes else "share pools"
    if text and (written := pins[text]):
        pinned = (Desired(Knob.CPUSET_CPUS, written, NAME, why),)
        desired.update(dict.fromkeys(pod.groups[1:], pinned))
    if bound:
        for group in pod.groups:
            desired[group] = (*desired.get(group, ()), Desired(Knob.CPU_QUOTA, UNLIMITED_TEXT, NAME, why))


STRATEGY = Strategy(
    name=NAME,
    topic="cpuset",
    sets=(Knob.CPUSET_CPUS, Knob.CPU_QUOTA),
    decide=decide,
    inputs=on_pods,
    cause=Cause.PLACEMENTS,
)

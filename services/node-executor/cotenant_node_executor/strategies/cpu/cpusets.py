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

from cotenant.domain.qos import QoSClass
from cotenant_node_executor.sampling.wanted import wanted_by
from cotenant_node_executor.strategies.cpu.cpuset_rule import (
    CpuPools,
    container_cpuset,
    host_application_cpuset,
    pools_without,
)
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Cause, Desired, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place
from cotenant_node_executor.targets.cpulist import format_cpu_list, parse_cpu_list
from cotenant_node_executor.targets.interface import UNLIMITED_TEXT, Knob

NAME = "cpuset"
_ALONE = frozenset((QoSClass.LSE, QoSClass.LSR))


class Decided(Struct, frozen=True):
    """There was a decision before."""


def cpu_pools(situation: Situation) -> CpuPools:
    """The node's pools, from the CPUs that pods hold and those that are reserved."""
    reserved = reserved_cpus(situation)
    held: dict[QoSClass, set[int]] = {QoSClass.LSE: set(), QoSClass.LSR: set()}
    for pod in situation.pods.values():
        if pod.bound_cpus and pod.qos in _ALONE:
            held[pod.qos].update(pod.bound_cpus)
    processors, alone = situation.node.processors, reserved | held[QoSClass.LSE]
    return CpuPools(
        share=pools_without(processors, alone | held[QoSClass.LSR]),
        batch=pools_without(processors, alone),
        kubelet_policy=situation.node.kubelet_cpu_policy,
        manages_batch=situation.node.manages_batch_cpus,
    )


def reserved_cpus(situation: Situation) -> frozenset[int]:
    """The CPUs that the node keeps from pods; none if the list is unreadable."""
    try:
        return frozenset(parse_cpu_list(situation.slo.reserved_cpus if situation.slo is not None else ""))
    except ValueError:
        return frozenset()


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """The CPU sets of this cycle."""
    pools = cpu_pools(situation)
    everything = frozenset() if memory is None else frozenset(processor.cpu for processor in situation.node.processors)
    desired: dict[Place, tuple[Desired, ...]] = {}
    for group in sorted(situation.pods):
        _of_pod(situation.pods[group], pools, everything, desired)
    for application in wanted_by(situation.slo).host_applications:
        own = application.own_group
        if own is None or own not in situation.groups:
            continue
        try:
            text = host_application_cpuset(pools, application.qos)
        except ValueError:
            continue
        _pin(own, text, everything, "share pools", desired)
    return StrategyDecision(desired, memory=Decided())


def _of_pod(pod: PodView, pools: CpuPools, everything: frozenset[int], desired: dict[Place, tuple[Desired, ...]]) -> None:
    bound = format_cpu_list(pod.bound_cpus)
    text = container_cpuset(pools, pod.qos, bound, pod.cpu_nodes, pod.group)
    why = "its own CPUs" if bound else "CPUs of its NUMA nodes" if pod.cpu_nodes else "share pools"
    for group in pod.groups[1:]:
        if text:
            _pin(group, text, everything, why, desired)
    if bound:
        for group in pod.groups:
            desired[group] = (*desired.get(group, ()), Desired(Knob.CPU_QUOTA, UNLIMITED_TEXT, NAME, why))


def _pin(
    group: str, text: str, everything: frozenset[int], why: str, desired: dict[Place, tuple[Desired, ...]]
) -> None:
    cpus = frozenset(parse_cpu_list(text))
    if cpus and cpus != everything:
        desired[group] = (Desired(Knob.CPUSET_CPUS, format_cpu_list(cpus), NAME, why),)


def _inputs(_policy: NodePolicy) -> frozenset[Input]:
    return frozenset((Input.PODS,))


STRATEGY = Strategy(
    name=NAME,
    topic="cpuset",
    sets=(Knob.CPUSET_CPUS, Knob.CPU_QUOTA),
    decide=decide,
    inputs=_inputs,
    cause=Cause.PLACEMENTS,
)

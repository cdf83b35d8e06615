"""Core scheduling: the processes of a group share a cookie, so that no other group runs on the same core meanwhile.

In: the situation; applies on kernels with core scheduling. Out: each container's core-scheduling group, the kernel's switches,
and cpu.idle of the directories of classes with schedIdle. The memory holds the containers that were put into a group: they are
removed from it when the rule no longer applies. SYSTEM pods are never touched.

The kernel has either group identity or core scheduling: the former is switched off first. Source: core scheduling hook,
koordlet rule.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant_node_executor.strategies.cpu.core_sched.rule import (
    CoreSchedRule,
    CpuQos,
    CpuQOSPolicy,
    in_force,
    pod_group,
)
from cotenant_node_executor.strategies.sections import CPU_PART, QOS, SectionShape, of_classes
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, DesiredValues, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import Place, ProcessAttribute, Processes, Sysctl, SysctlAttribute
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP, Knob, NodeCapabilities

NAME = "core-sched"
CAPABILITY = "core_sched"
IDENTITY_SWITCH = Sysctl("kernel/sched_group_identity_enabled")
SWITCH = Sysctl("kernel/sched_core")
_DIRECTORIES = {
    KubeQoS.GUARANTEED.value: ROOT_GROUP,
    KubeQoS.BURSTABLE.value: BURSTABLE,
    KubeQoS.BEST_EFFORT.value: BESTEFFORT,
}


class Grouped(Struct, frozen=True):
    """Containers that are in a core-scheduling group, by control group."""

    containers: frozenset[str] = frozenset()


def rule_of(policy: NodePolicy | Situation) -> CoreSchedRule | None:
    """The rule; None where this kernel has no core scheduling."""
    return in_force(policy.slo) if supported(policy.capabilities) else None


def supported(capabilities: NodeCapabilities) -> bool:
    """Whether this kernel has core scheduling."""
    return capabilities.supports(CAPABILITY)


def decide(situation: Situation, memory: Struct | None) -> StrategyDecision:
    """Groups of all containers, while the rule is on; otherwise of those that were in one."""
    before = memory if isinstance(memory, Grouped) else Grouped()
    rule = rule_of(situation)
    if rule is None or (not rule.enable and not before.containers):
        return StrategyDecision(_idle(rule))
    desired: dict[Place, tuple[Desired, ...]] = {}
    if rule.enable:
        why = "core scheduling excludes group identity"
        desired[IDENTITY_SWITCH] = (Desired(SysctlAttribute.VALUE, "0", NAME, why),)
        desired[SWITCH] = (Desired(SysctlAttribute.VALUE, "1", NAME, "core scheduling"),)
    grouped: set[str] = set()
    for _, pod in sorted(situation.pods.items()):
        if pod.qos is QoSClass.SYSTEM:
            continue
        enabled, name = pod_group(rule, pod.labels, pod.kube_qos.value, pod.uid)
        for group in pod.groups[1:]:
            if enabled:
                grouped.add(group)
                shown = name or UNNAMED
                desired[Processes(group)] = (Desired(ProcessAttribute.CORE_GROUP, shown, NAME, f"core group {shown}"),)
            elif group in before.containers:
                desired[Processes(group)] = (Desired(ProcessAttribute.CORE_GROUP, "", NAME, "in no core group"),)
    left = before.containers - grouped
    kept = frozenset(group for group in left if group in situation.groups)
    return StrategyDecision({**desired, **_idle(rule)}, memory=Grouped(frozenset(grouped) | kept))


UNNAMED = "default"
"""The group of pods without a label whose class is no expeller: "" is no group at all."""


def _idle(rule: CoreSchedRule | None) -> DesiredValues:
    """The directories of classes that run only on idle CPU time."""
    if rule is None:
        return {}
    found = [_DIRECTORIES[qos] for qos, of_class in rule.kube_qos_pod.items() if of_class.idle]
    return {group: (Desired(Knob.CPU_IDLE, "1", NAME, "schedIdle of its class"),) for group in sorted(found) if group}


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    return frozenset() if rule_of(policy) is None else frozenset((Input.PODS,))


STRATEGY = Strategy(
    name=NAME,
    topic="core-sched",
    sets=(ProcessAttribute.CORE_GROUP, SysctlAttribute.VALUE, Knob.CPU_IDLE),
    decide=decide,
    inputs=_inputs,
    section=QOS,
    part=CPU_PART,
    reads=(SectionShape((QOS, "policies"), CpuQOSPolicy), *of_classes(CPU_PART, CpuQos)),
)

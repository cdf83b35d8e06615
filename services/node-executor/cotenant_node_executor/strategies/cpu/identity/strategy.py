"""CPU identity as desired values: `cpu.bvt_warp_ns` of the QoS directories, of pods, their containers and host applications.

In: the situation. Out: nothing where the kernel has no group identity, or where rule and sysctl are both off. While the rule is
on, the kernel's switch is on too, where there is one, and that of core scheduling is off: the kernel has either.
Children inherit a value only at creation, so every container gets its own value. A group without a manifest gets that of its
QoS directory. Source: group identity hook, koordlet rule.
"""

from __future__ import annotations

from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity
from cotenant_node_executor.sampling.wanted import wanted_by
from cotenant_node_executor.strategies.cpu.core_sched.strategy import IDENTITY_SWITCH
from cotenant_node_executor.strategies.cpu.core_sched.strategy import SWITCH as CORE_SCHED_SWITCH
from cotenant_node_executor.strategies.cpu.identity.group_identity import (
    ClassIdentity,
    IdentityRule,
    host_identity,
    identity_active,
    identity_rule,
    parsed_identity,
    pod_identity,
)
from cotenant_node_executor.strategies.pod_view import PodShape
from cotenant_node_executor.strategies.sections import CPU_PART, QOS
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import Desired, DesiredValues, Input, NodePolicy, Strategy, StrategyDecision
from cotenant_node_executor.targets.address import SysctlAttribute
from cotenant_node_executor.targets.cgroup.paths import kube_qos_of_dir
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP, Knob, NodeCapabilities

NAME = "group-identity"


def rule_of(slo: NodeSLORendered | None) -> IdentityRule | None:
    """The rule that a node SLO states; None before there is one."""
    return _rule(slo) if slo is not None else None


@by_identity
def _rule(slo: NodeSLORendered) -> IdentityRule:
    lsr, ls, be = (
        ClassIdentity(entry.enable, entry.group_identity)
        for entry in (slo.lsr_identity, slo.ls_identity, slo.be_identity)
    )
    return identity_rule(slo.cpu_policy, lsr, ls, be)


def bvt_rule(slo: NodeSLORendered | None, capabilities: NodeCapabilities) -> IdentityRule | None:
    """The rule; None on a kernel without group identity, where this strategy does not apply."""
    return rule_of(slo) if capabilities.supports(Knob.CPU_BVT) else None


def effective_identity(rule: IdentityRule, pod: PodShape) -> int:
    """A pod's value; an LS pod's annotation overrides the rule, an unreadable one counts as absent."""
    if pod.qos is QoSClass.LS and pod.identity is not None:
        try:
            asked = parsed_identity(pod.identity)
        except ValueError:
            asked = None
        if asked is not None:
            return asked
    return pod_identity(rule, pod.qos.value, pod.kube_qos.value)


def decide(situation: Situation, _memory: Struct | None) -> StrategyDecision:
    """Values of every directory below the root that is or belongs to a QoS class, a pod or a host application."""
    rule = bvt_rule(situation.slo, situation.capabilities)
    if rule is None or not identity_active(rule, supported=True, sysctl=situation.identity_sysctl):
        return StrategyDecision()
    directories = {
        ROOT_GROUP: rule.kube_qos_dir[KubeQoS.GUARANTEED],
        BURSTABLE: rule.kube_qos_dir[KubeQoS.BURSTABLE],
        BESTEFFORT: rule.kube_qos_dir[KubeQoS.BEST_EFFORT],
    }
    values: dict[str, int] = dict(directories)
    pods = {group: effective_identity(rule, pod.shape) for group, pod in situation.pods.items()}
    for group in situation.groups:
        parts = group.split("/")
        depth = 2 if parts[0] in (BURSTABLE, BESTEFFORT) else 1
        if len(parts) < depth or group in directories:
            continue
        pod_group = "/".join(parts[:depth])
        if pod_group in pods:
            values[group] = pods[pod_group]
        elif depth == 2 or parts[0].startswith("pod"):
            values[group] = rule.kube_qos_dir[kube_qos_of_dir(group)]
    for application in wanted_by(situation.slo).host_applications:
        own = application.own_group
        if own is not None and own in situation.groups and own not in directories:
            values[own] = host_identity(rule, application.qos)
    return StrategyDecision({
        **_switches(rule, situation.identity_sysctl),
        **{group: (Desired(Knob.CPU_BVT, str(values[group]), NAME, "identity of its class"),) for group in sorted(values)},
    })


def _switches(rule: IdentityRule, sysctl: int | None) -> DesiredValues:
    """The kernel's switches while the rule is on; none on a kernel without that of group identity."""
    if not rule.enable or sysctl is None:
        return {}
    return {
        CORE_SCHED_SWITCH: (Desired(SysctlAttribute.VALUE, "0", NAME, "group identity excludes core scheduling"),),
        IDENTITY_SWITCH: (Desired(SysctlAttribute.VALUE, "1", NAME, "group identity"),),
    }


def _inputs(policy: NodePolicy) -> frozenset[Input]:
    return frozenset(() if bvt_rule(policy.slo, policy.capabilities) is None else (Input.PODS,))


STRATEGY = Strategy(
    name=NAME,
    topic="identity",
    sets=(Knob.CPU_BVT, SysctlAttribute.VALUE),
    decide=decide,
    inputs=_inputs,
    section=QOS,
    part=CPU_PART,
)

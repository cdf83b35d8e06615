"""Which pods are in which core-scheduling group.

In: the QoS strategy of the NodeSLO, a pod's labels and class. Out: for each class whether it is in a group, whether it is an
expeller, and whether its directory is idle; for a pod its group's name.

    enabled = policy coreSched and cpuQOS.enable;  expeller = policy and coreExpeller;  idle = policy and schedIdle 1
    group   = label core-sched-group-id; with label core-sched-policy: exclusive -> the pod's uid, none -> not in a group
    an expeller's group ends in `-expeller`, so that all pods of a class without a group label share one cookie

Source: core scheduling hook, koordlet rule (v1.4.1).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.bounds import Int32
from cotenant.model.by_identity import by_identity
from cotenant.model.names import LABEL_QOS_CLASS
from cotenant_node_executor.strategies.sections import QOS, readable_section

POLICY = "coreSched"
LABEL_GROUP = "koordinator.sh/core-sched-group-id"
LABEL_POLICY = "koordinator.sh/core-sched-policy"
EXCLUSIVE, NONE = "exclusive", "none"
EXPELLER_SUFFIX = "-expeller"


class CpuQos(Struct, frozen=True, rename="camel"):
    """The CPU part of a class; None: the class's default."""

    enable: bool | None = None
    sched_idle: Int32 | None = None
    core_expeller: bool | None = None


class ClassQos(Struct, frozen=True):
    """One class."""

    cpu_qos: CpuQos | None = msgspec.field(default=None, name="cpuQOS")


class CpuQOSPolicy(Struct, frozen=True, rename="camel"):
    """The policies."""

    cpu_policy: str | None = None


class QosStrategy(Struct, frozen=True, rename="camel"):
    """The part of the section that core scheduling needs."""

    policies: CpuQOSPolicy | None = None
    lsr_class: ClassQos | None = None
    ls_class: ClassQos | None = None
    be_class: ClassQos | None = None


class ClassRule(Struct, frozen=True):
    """One class of the rule."""

    enabled: bool = False
    expeller: bool = False
    idle: bool = False


class CoreSchedRule(Struct, frozen=True):
    """The classes by QoS label, and by Kubernetes QoS for pods without a label."""

    enable: bool
    pod_qos: Mapping[str, ClassRule]
    kube_qos_pod: Mapping[str, ClassRule]


OFF = CoreSchedRule(enable=False, pod_qos={}, kube_qos_pod={})
"""No pod is in a group."""

qos_strategy = readable_section(QOS, QosStrategy)


def in_force(slo: NodeSLORendered | None) -> CoreSchedRule:
    """The node's rule: a disabled class is neutral, an enabled one has its defaults."""
    return _rule(slo) if slo is not None else OFF


@by_identity
def _rule(slo: NodeSLORendered) -> CoreSchedRule:
    asked = qos_strategy(slo)
    if asked is None:
        return OFF
    lsr, ls, be = (
        _with_defaults(entry, expels)
        for entry, expels in ((asked.lsr_class, True), (asked.ls_class, True), (asked.be_class, False))
    )
    return core_sched_rule(QosStrategy(asked.policies, lsr, ls, be))


def _with_defaults(asked: ClassQos | None, expels: bool) -> ClassQos:
    qos = asked.cpu_qos if asked is not None else None
    if qos is None or qos.enable is not True:
        return ClassQos()
    expeller = expels if qos.core_expeller is None else qos.core_expeller
    return ClassQos(CpuQos(enable=True, sched_idle=qos.sched_idle, core_expeller=expeller))


def core_sched_rule(strategy: QosStrategy | None) -> CoreSchedRule:
    """The rule that follows from a strategy whose classes are complete."""
    asked = strategy or QosStrategy()
    chosen = asked.policies is not None and asked.policies.cpu_policy == POLICY
    lsr, ls, be = (_class(entry, chosen) for entry in (asked.lsr_class, asked.ls_class, asked.be_class))
    return CoreSchedRule(
        enable=lsr.enabled or ls.enabled or be.enabled,
        pod_qos={QoSClass.LSE.value: lsr, QoSClass.LSR.value: lsr, QoSClass.LS.value: ls, QoSClass.BE.value: be},
        kube_qos_pod={
            KubeQoS.GUARANTEED.value: lsr if lsr.enabled else ls,
            KubeQoS.BURSTABLE.value: ls,
            KubeQoS.BEST_EFFORT.value: be,
        },
    )


def _class(asked: ClassQos | None, chosen: bool) -> ClassRule:
    qos = asked.cpu_qos if asked is not None else None
    if not chosen or qos is None:
        return ClassRule()
    return ClassRule(qos.enable is True, qos.core_expeller is True, qos.sched_idle == 1)


def pod_group(rule: CoreSchedRule, labels: Mapping[str, str], kube_qos: str, uid: str) -> tuple[bool, str]:
    """Whether a pod is in a group, and the group's name."""
    of_class = ClassRule()
    if rule.enable:
        of_class = rule.pod_qos.get(labels.get(LABEL_QOS_CLASS, "")) or rule.kube_qos_pod.get(kube_qos) or of_class
    group, policy = labels.get(LABEL_GROUP, ""), labels.get(LABEL_POLICY, "")
    if policy == EXCLUSIVE:
        group = uid
    enabled = of_class.enabled and policy != NONE
    return enabled, f"{group}{EXPELLER_SUFFIX}" if of_class.expeller else group

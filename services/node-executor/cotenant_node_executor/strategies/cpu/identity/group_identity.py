"""CPU identity by `cpu.bvt_warp_ns`: latency-sensitive groups preempt, batch groups give way (Anolis kernels).

In: the CPU part of the node SLO's QoS strategy by class, the kernel's capabilities, each pod's class. Out: -1 (gives way), 0
(normal), 1 or 2 (latency-sensitive) for the three QoS directories and for pods; None: no write.

A class applies only while it is enabled and the CPU policy is groupIdentity. The directory of guaranteed pods stays 0 (a
requirement of the kernel); guaranteed pods get the value of LSR, else of LS. With rule and sysctl off nothing is written;
with the rule off and the sysctl on zeros are written. Source: group identity hook, koordlet rule, with the v1.6 annotation of
LS pods.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant_node_executor.strategies.pod_view import ANNOTATION_CPU_QOS

POLICY = "groupIdentity"
MIN_IDENTITY = -1
MAX_IDENTITY = 2


class ClassIdentity(Struct, frozen=True):
    """One class of the strategy."""

    enable: bool = False
    identity: int = 0


class IdentityRule(Struct, frozen=True):
    """Values by QoS label, by QoS directory, and by Kubernetes QoS for pods without a label."""

    enable: bool
    pod_qos: Mapping[str, int]
    kube_qos_dir: Mapping[str, int]
    kube_qos_pod: Mapping[str, int]


class _PodCpuQos(Struct, frozen=True, rename="camel"):
    enable: bool | None = None
    group_identity: int | None = None


def identity_rule(policy: str, lsr: ClassIdentity, ls: ClassIdentity, be: ClassIdentity) -> IdentityRule:
    """The rule that follows from the strategy's three classes; an empty policy means groupIdentity."""
    chosen = policy in ("", POLICY)

    def on(entry: ClassIdentity) -> bool:
        return chosen and entry.enable

    def value(entry: ClassIdentity) -> int:
        return entry.identity if on(entry) else 0

    return IdentityRule(
        enable=on(lsr) or on(ls) or on(be),
        pod_qos={
            QoSClass.LSE.value: value(lsr),
            QoSClass.LSR.value: value(lsr),
            QoSClass.LS.value: value(ls),
            QoSClass.BE.value: value(be),
        },
        kube_qos_dir={
            KubeQoS.GUARANTEED.value: 0,
            KubeQoS.BURSTABLE.value: value(ls),
            KubeQoS.BEST_EFFORT.value: value(be),
        },
        kube_qos_pod={
            KubeQoS.GUARANTEED.value: value(lsr) if on(lsr) else value(ls),
            KubeQoS.BURSTABLE.value: value(ls),
            KubeQoS.BEST_EFFORT.value: value(be),
        },
    )


def pod_identity(rule: IdentityRule, qos: str, kube_qos: str) -> int:
    """A pod's value: by its label where that names a class of the rule, else by its Kubernetes QoS."""
    if qos in rule.pod_qos:
        return rule.pod_qos[qos]
    return rule.kube_qos_pod.get(kube_qos, 0)


def parsed_identity(text: str) -> int:
    """The value in the annotation's text. Raises ValueError on a malformed one."""
    try:
        asked = msgspec.json.decode(text, type=_PodCpuQos)
    except msgspec.MsgspecError as error:
        raise ValueError(f"annotation {ANNOTATION_CPU_QOS}: {error}") from error
    if not asked.enable:
        return 0
    value = asked.group_identity or 0
    if not MIN_IDENTITY <= value <= MAX_IDENTITY:
        raise ValueError(f"annotation {ANNOTATION_CPU_QOS}: groupIdentity {value} is not between -1 and 2")
    return value


def host_identity(rule: IdentityRule, qos: str) -> int:
    """A host application's value."""
    return rule.pod_qos.get(qos, 0)


def identity_active(rule: IdentityRule | None, supported: bool, sysctl: int | None, unreadable: bool = False) -> bool:
    """Whether values are written at all; an absent sysctl (None) counts as on, an unreadable one prevents all writes."""
    if rule is None or not supported or unreadable:
        return False
    return rule.enable or sysctl != 0

"""Priority and QoS classes of a pod, resolved at read time: nothing injects defaults into pods.

Source: Koordinator `apis/extension` (priority ranges, QoS by label, defaults by Kubernetes QoS).
"""

from __future__ import annotations

from enum import StrEnum

from cotenant.api.objects.pod import Pod, PodSpec
from cotenant.model.by_identity import by_identity
from cotenant.model.names import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    LABEL_PRIORITY_CLASS,
    LABEL_QOS_CLASS,
    MEMORY,
    MID_CPU,
    MID_MEMORY,
)
from cotenant.model.quantities import parse_nanos


class QoSClass(StrEnum):
    """Koordinator's QoS classes; NONE where the label is absent or unknown."""

    NONE = ""
    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"


class PriorityClass(StrEnum):
    """Koordinator's priority classes (tiers); NONE outside their ranges."""

    NONE = ""
    PROD = "koord-prod"
    MID = "koord-mid"
    BATCH = "koord-batch"
    FREE = "koord-free"


class KubeQoS(StrEnum):
    """Kubernetes' QoS classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


PRIORITY_RANGES: tuple[tuple[PriorityClass, int, int], ...] = (
    (PriorityClass.PROD, 9000, 9999),
    (PriorityClass.MID, 7000, 7999),
    (PriorityClass.BATCH, 5000, 5999),
    (PriorityClass.FREE, 3000, 3999),
)
"""Inclusive ranges of `spec.priority`."""

TIER_RESOURCES: dict[PriorityClass, dict[str, str]] = {
    PriorityClass.BATCH: {CPU: BATCH_CPU, MEMORY: BATCH_MEMORY},
    PriorityClass.MID: {CPU: MID_CPU, MEMORY: MID_MEMORY},
}
"""What pods of a tier ask for in the place of cpu and memory; the others have no resources of their own."""

PRIORITY_VALUES: dict[PriorityClass, int] = {
    PriorityClass.PROD: 9000,
    PriorityClass.MID: 7000,
    PriorityClass.BATCH: 5000,
    PriorityClass.FREE: 3000,
}
"""Values of the PriorityClass objects that an installation holds."""

PRIORITY_DEFAULTS: dict[PriorityClass, int] = {
    PriorityClass.PROD: 9500,
    PriorityClass.MID: 7500,
    PriorityClass.BATCH: 5500,
    PriorityClass.FREE: 3500,
    PriorityClass.NONE: 0,
}

_PRIORITY_BY_LABEL: dict[str, PriorityClass] = {tier.value: tier for tier in PriorityClass}
_NO_PRIORITY, _PROD, _BATCH = PriorityClass.NONE, PriorityClass.PROD, PriorityClass.BATCH
_QOS_BY_LABEL: dict[str, QoSClass] = {qos.value: qos for qos in QoSClass}
_NO_QOS, _BEST_EFFORT = QoSClass.NONE, QoSClass.BE
_QOS_BY_KUBE = {
    KubeQoS.GUARANTEED: QoSClass.LSR,
    KubeQoS.BURSTABLE: QoSClass.LS,
    KubeQoS.BEST_EFFORT: QoSClass.BE,
}


def priority_of_value(value: int | None) -> PriorityClass:
    """Return the tier of a `spec.priority` value; NONE in the gaps, and where there is none."""
    if value is None:
        return _NO_PRIORITY
    for tier, low, high in PRIORITY_RANGES:
        if low <= value <= high:
            return tier
    return _NO_PRIORITY


def priority_raw(pod: Pod) -> PriorityClass:
    """Return the label's class if the label is there (NONE if it is not one of the four names), else that of the value."""
    label = pod.metadata.labels.get(LABEL_PRIORITY_CLASS)
    return priority_of_value(pod.spec.priority) if label is None else _PRIORITY_BY_LABEL.get(label, _NO_PRIORITY)


def qos_raw(pod: Pod) -> QoSClass:
    """Return the label's QoS class; NONE if absent or unknown."""
    return _QOS_BY_LABEL.get(pod.metadata.labels.get(LABEL_QOS_CLASS, ""), _NO_QOS)


def kube_qos(pod: Pod) -> KubeQoS:
    """Return `status.qosClass` if set, else Kubernetes' rule over containers and init containers (cpu and memory only)."""
    if pod.status.qos_class:
        try:
            return KubeQoS(pod.status.qos_class)
        except ValueError:
            pass
    return _kube_qos(pod.spec)


@by_identity
def _kube_qos(spec: PodSpec) -> KubeQoS:
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    guaranteed = True
    for container in (*spec.containers, *spec.init_containers):
        limited = set()
        for resource in (CPU, MEMORY):
            request = parse_nanos(container.resources.requests.get(resource, 0))
            limit = parse_nanos(container.resources.limits.get(resource, 0))
            if request > 0:
                requests[resource] = requests.get(resource, 0) + request
            if limit > 0:
                limited.add(resource)
                limits[resource] = limits.get(resource, 0) + limit
        guaranteed = guaranteed and limited == {CPU, MEMORY}
    if not requests and not limits:
        return KubeQoS.BEST_EFFORT
    if guaranteed and requests == limits:
        return KubeQoS.GUARANTEED
    # A limit without a request counts as a request of the same size after Kubernetes' defaulting.
    if guaranteed and all(requests.get(name, limit) == limit for name, limit in limits.items()):
        return KubeQoS.GUARANTEED
    return KubeQoS.BURSTABLE


def qos_default(pod: Pod) -> QoSClass:
    """Return the label's class, else by Kubernetes QoS: Guaranteed -> LSR, Burstable -> LS, BestEffort -> BE."""
    return qos_raw(pod) or _QOS_BY_KUBE[kube_qos(pod)]


def priority_default(pod: Pod) -> PriorityClass:
    """Return the raw priority class, else batch for BE and prod for every other QoS."""
    return priority_raw(pod) or (_BATCH if qos_default(pod) is _BEST_EFFORT else _PROD)


def priority_value_default(pod: Pod | None) -> int:
    """Return `spec.priority` if set and not 0, else the default value of the pod's class; 0 for no pod."""
    if pod is None:
        return 0
    return pod.spec.priority or PRIORITY_DEFAULTS[priority_default(pod)]

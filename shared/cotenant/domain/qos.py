"""Priority and QoS classes of a pod, resolved at read time: no defaults are written into pods.

The tiers themselves are in `cotenant.model.tiers`. Source: Koordinator `apis/extension` (QoS by label, defaults by
Kubernetes QoS).
"""

from __future__ import annotations

from enum import StrEnum

from cotenant.api.objects.pod import Pod, PodSpec
from cotenant.model.by_identity import by_identity
from cotenant.model.names import CPU, LABEL_PRIORITY_CLASS, LABEL_QOS_CLASS, MEMORY
from cotenant.model.quantities import parse_nanos
from cotenant.model.tiers import PriorityClass, priority_default_value, priority_of_label, priority_of_value


class QoSClass(StrEnum):
    """Koordinator's QoS classes; NONE where the label is absent or unknown."""

    NONE = ""
    LSE = "LSE"
    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    SYSTEM = "SYSTEM"


class KubeQoS(StrEnum):
    """Kubernetes' QoS classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


_PROD, _BATCH = PriorityClass.PROD, PriorityClass.BATCH
_QOS_BY_LABEL: dict[str, QoSClass] = {qos.value: qos for qos in QoSClass}
_NO_QOS, _BEST_EFFORT = QoSClass.NONE, QoSClass.BE
_QOS_BY_KUBE = {
    KubeQoS.GUARANTEED: QoSClass.LSR,
    KubeQoS.BURSTABLE: QoSClass.LS,
    KubeQoS.BEST_EFFORT: QoSClass.BE,
}


def priority_raw(pod: Pod) -> PriorityClass:
    """Return the label's class if the label is there (NONE if it is not one of the four names), else that of the value."""
    label = pod.metadata.labels.get(LABEL_PRIORITY_CLASS)
    return priority_of_value(pod.spec.priority) if label is None else priority_of_label(label)


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
    return pod.spec.priority or priority_default_value(priority_default(pod))

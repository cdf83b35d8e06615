"""Which QoS and priority classes may be combined on a pod, and what may not change on a live one.

In: the pod as it would be stored, and for an update as it is. Out: every violation. The table (raw values, from label
and `spec.priority`):

    BE   needs mid, batch or free        LSR needs prod        LSE, LS, SYSTEM, none: any
    batch-cpu or batch-memory needs the QoS label BE
    LSR and LSE: the request for cpu is above 0 and a whole number of cores
    QoS class, priority class and sub-priority label do not change on a live pod

Field names and texts are those of Koordinator's pod webhook.
"""

from __future__ import annotations

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.api.validation.fields import FieldError, forbidden, invalid, required
from cotenant.domain.qos import QoSClass, priority_raw, qos_raw
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, LABEL_PRIORITY, LABEL_QOS_CLASS
from cotenant.model.quantities import format_milli
from cotenant.model.tiers import PriorityClass

QOS_FIELD = f"labels.{LABEL_QOS_CLASS}"
PRIORITY_FIELD = f"labels.{LABEL_PRIORITY}"
REQUESTS_FIELD = "pod.spec.containers[*].resources.requests"

_FORBIDDEN: dict[QoSClass, frozenset[PriorityClass]] = {
    QoSClass.BE: frozenset({PriorityClass.NONE, PriorityClass.PROD}),
    QoSClass.LSR: frozenset({PriorityClass.NONE, PriorityClass.MID, PriorityClass.BATCH, PriorityClass.FREE}),
}


def cannot_be_combined(qos: QoSClass, priority: PriorityClass) -> bool:
    """Return whether a pod may not have both."""
    return priority in _FORBIDDEN.get(qos, ())


def colocation_errors(pod: Pod, old: Pod | None = None, *, priority_label_may_change: bool = False) -> list[FieldError]:
    """Return every violation. The pod's quantities must be readable (QuantityError otherwise)."""
    found: list[FieldError] = []
    if old is not None:
        found += _changes(pod, old, priority_label_may_change)
    requests = pod_requests(pod)
    qos, priority = qos_raw(pod), priority_raw(pod)
    if qos is not QoSClass.BE and (requests.get(BATCH_CPU) or requests.get(BATCH_MEMORY)):
        found.append(required(QOS_FIELD, "must specify koordinator QoS BE with koordinator colocation resources"))
    if cannot_be_combined(qos, priority):
        shown = priority.value or "none"
        detail = f"{LABEL_QOS_CLASS}={qos.value} and priorityClass={shown} cannot be used in combination"
        found.append(forbidden("Pod", detail))
    if qos in (QoSClass.LSR, QoSClass.LSE):
        cpu_milli = requests.get(CPU, 0)
        if cpu_milli <= 0 or cpu_milli % 1000:
            detail = f"the requested CPUs of {qos.value} Pod must be integer and greater than 0"
            found.append(invalid(REQUESTS_FIELD, format_milli(cpu_milli), detail))
    return found


def _changes(pod: Pod, old: Pod, priority_label_may_change: bool) -> list[FieldError]:
    found: list[FieldError] = []
    if qos_raw(pod) is not qos_raw(old):
        found.append(invalid(QOS_FIELD, qos_raw(pod).value, _fixed(qos_raw(old).value)))
    if priority_raw(pod) is not priority_raw(old):
        found.append(invalid("spec.priority", priority_raw(pod).value, _fixed(priority_raw(old).value)))
    if not priority_label_may_change:
        new_label, old_label = (item.metadata.labels.get(LABEL_PRIORITY) for item in (pod, old))
        if new_label != old_label:
            shown = new_label if new_label is not None else ""
            found.append(invalid(PRIORITY_FIELD, shown, _fixed(old_label)))
    return found


def _fixed(value: str | None) -> str:
    return f"field is immutable, it is {value!r}" if value else "field is immutable, it is not set"

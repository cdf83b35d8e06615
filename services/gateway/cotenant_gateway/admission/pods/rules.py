"""Pods: the rules of the pod by itself, of its classes in combination, and of changes to a live one.

In a namespace with the label `control-plane` any combination of classes is accepted (Koordinator's webhooks skip it).
"""

from __future__ import annotations

import json

import msgspec

from cotenant.api.objects.pod import Pod, PodSpec
from cotenant.api.objects.scheduling_hint import HINT_ANNOTATIONS
from cotenant.api.validation.fields import FieldError, FieldReason, forbidden, invalid, validate_all
from cotenant.api.validation.pod import POD_CHECKS, RESERVED_ANNOTATION
from cotenant.domain.colocation import colocation_errors
from cotenant.domain.reservations.names import ANNOTATION_OWNERS
from cotenant.domain.reservations.operating import acts_as_reservation, operating_errors
from cotenant.model.by_identity import by_identity
from cotenant.model.names import ANNOTATION_NODE_RESERVATION, ANNOTATION_TTL_AFTER_FINISHED
from cotenant_gateway.admission.namespaces import is_of_control_plane
from cotenant_gateway.admission.review import Review

REMEMBERED_LABELS = 4
"""Sets of labels for which the errors of pods of a spec are cached."""
_MUTABLE = frozenset(
    {"activeDeadlineSeconds", "terminationGracePeriodSeconds", "priority", "preemptionPolicy", "schedulingGates"}
)
_CANNOT_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_is_valid(review: Review) -> list[FieldError]:
    """The pod by itself, then (if its quantities can be read) QoS and priority classes."""
    pod = review.view
    assert isinstance(pod, Pod)
    free = is_of_control_plane(review.objects, pod.metadata.namespace)
    if review.old is not None:
        may_change = review.objects.settings.skip_validating_priority
        return _errors(pod, review.old_view(Pod), free, priority_label_may_change=may_change)
    known = _known_errors(pod.spec)
    annotations = pod.metadata.annotations
    looked_at = (
        *pod.metadata.labels.items(),
        RESERVED_ANNOTATION in annotations,
        *(annotations.get(name) for name in (ANNOTATION_TTL_AFTER_FINISHED, *HINT_ANNOTATIONS)),
        free,
    )
    if acts_as_reservation(pod.metadata.labels):
        looked_at += (annotations.get(ANNOTATION_OWNERS), annotations.get(ANNOTATION_NODE_RESERVATION))
    if looked_at not in known:
        if len(known) >= REMEMBERED_LABELS:
            known.clear()
        known[looked_at] = _errors(pod, None, free)
    return known[looked_at]


@by_identity
def _known_errors(_: PodSpec) -> dict[tuple[object, ...], list[FieldError]]:
    """The errors found in new pods of a spec, by the other inputs of these checks: replicas of one workload are checked
    once."""
    return {}


def _errors(pod: Pod, old: Pod | None, free: bool, *, priority_label_may_change: bool = False) -> list[FieldError]:
    """`free`: any combination of classes is accepted."""
    found = validate_all(pod, POD_CHECKS)
    found += _operating_mode(pod)
    unreadable = any("resources" in error.field or "overhead" in error.field for error in found)
    if unreadable or free:
        return found
    return [*found, *colocation_errors(pod, old, priority_label_may_change=priority_label_may_change)]


def _operating_mode(pod: Pod) -> list[FieldError]:
    """Of a pod that acts as a reservation."""
    metadata = pod.metadata
    given = {"labels": metadata.labels, "annotations": metadata.annotations}
    return [
        invalid(f"metadata.{where}[{name}]", given[where][name], wrong)
        for where, name, wrong in operating_errors(metadata.labels, metadata.annotations)
    ]


def pod_update_is_allowed(review: Review) -> list[FieldError]:
    """A live pod's spec changes in few fields only."""
    if not isinstance(review.view, Pod) or review.old is None or review.old.stored is None:
        return []
    new, old = _spec(review.document), _spec(review.old.stored.raw)
    if _fixed(new) != _fixed(old):
        changed = sorted(name for name in {*new, *old} if _fixed({name: new.get(name)}) != _fixed({name: old.get(name)}))
        return [forbidden("spec", f"{_CANNOT_CHANGE}; changed: {', '.join(changed)}")]
    kept = _listed(old.get("tolerations"))
    given = _listed(new.get("tolerations"))
    if any(item not in given for item in kept):
        return [FieldError("spec.tolerations", FieldReason.FORBIDDEN, "Forbidden: existing toleration can not be modified")]
    return []


def _spec(document: msgspec.Raw) -> dict[str, object]:
    # Compared as values: numbers and white space may be written differently.
    spec = json.loads(bytes(document)).get("spec")
    return spec if isinstance(spec, dict) else {}


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _fixed(spec: dict[str, object]) -> dict[str, object]:
    fixed: dict[str, object] = {}
    for name, value in spec.items():
        if name in _MUTABLE or name == "tolerations" or value in (None, [], {}):
            continue
        if name in ("containers", "initContainers"):
            fixed[name] = [
                {field: inner for field, inner in item.items() if field != "image"} if isinstance(item, dict) else item
                for item in _listed(value)
            ]
        else:
            fixed[name] = value
    return fixed

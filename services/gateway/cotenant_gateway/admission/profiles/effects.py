"""What one ClusterColocationProfile does to a pod.

In: the pod as the profiles before it made it, and the profile. Out: the pod with the profile applied, in the order of
Koordinator's pod webhook: labels, annotations, mapped labels, mapped annotations, label suffixes, scheduler, QoS class,
priority class with its value and policy, sub-priority, patch. What the profile does not name stays byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.colocation_profile import ClusterColocationProfileSpec
from cotenant.api.patching.errors import PatchError
from cotenant.api.patching.strategic import strategic_merge_patch
from cotenant.api.splices import DocumentError, Members, member_object, members, raw
from cotenant.api.validation.fields import FieldError, invalid, not_found
from cotenant.model.names import LABEL_PRIORITY, LABEL_QOS_CLASS
from cotenant_gateway.admission.pods.priority import find_priority_class
from cotenant_gateway.admission.profiles.selection import ReadyProfile
from cotenant_gateway.admission.review import Review, type_error
from cotenant_gateway.statuses import ApiError, invalid_object

_TEXT = msgspec.json.Decoder(str)


def with_profile(review: Review, profile: ReadyProfile, *, again: bool = False) -> msgspec.Raw:
    """Return the pod with the profile applied. `again`: it may have been applied before, so a suffix that is there stays alone.
    Raises ApiError where it cannot be applied."""
    top = members(review.document)
    set_metadata(top, profile.spec, again=again)
    wanted = _spec_members(review, profile)
    if wanted:
        top["spec"] = raw({**member_object(top, "spec"), **wanted})
    document = raw(top)
    if profile.patch is not None:
        document = _patched(review, profile, document)
    return document


def set_metadata(top: Members, spec: ClusterColocationProfileSpec, *, again: bool = False) -> None:
    """Set on an object's metadata what a profile says of labels and annotations."""
    metadata = member_object(top, "metadata")
    labels, annotations = member_object(metadata, "labels"), member_object(metadata, "annotations")
    before = {**labels}, {**annotations}
    labels.update((key, raw(value)) for key, value in spec.labels.items())
    annotations.update((key, raw(value)) for key, value in spec.annotations.items())
    _map(labels, spec.label_keys_mapping)
    _map(annotations, spec.annotation_keys_mapping)
    for key, suffix in sorted(spec.label_suffixes.items()):
        if key in labels and not (again and _TEXT.decode(labels[key]).endswith(suffix)):
            labels[key] = raw(_TEXT.decode(labels[key]) + suffix)
    if spec.qos_class:
        labels[LABEL_QOS_CLASS] = raw(spec.qos_class)
    if spec.koordinator_priority is not None:
        labels[LABEL_PRIORITY] = raw(str(spec.koordinator_priority))
    if labels != before[0]:
        metadata["labels"] = raw(labels)
    if annotations != before[1]:
        metadata["annotations"] = raw(annotations)
    if (labels, annotations) != before:
        top["metadata"] = raw(metadata)


def _map(target: Members, mapping: Mapping[str, str]) -> None:
    """Where the old key is absent the new one becomes an empty text, as upstream."""
    for old, new in sorted(mapping.items()):
        target[new] = target.get(old, raw(""))


def _spec_members(review: Review, profile: ReadyProfile) -> Members:
    spec = profile.spec
    wanted: Members = {}
    if spec.scheduler_name:
        wanted["schedulerName"] = raw(spec.scheduler_name)
    if spec.priority_class_name:
        found = find_priority_class(review.objects, spec.priority_class_name)
        if found is None:
            detail = f"ClusterColocationProfile {profile.name} sets this PriorityClass: create it, or change the profile"
            raise _refused(review, not_found("spec.priorityClassName", spec.priority_class_name, detail))
        wanted["priorityClassName"] = raw(spec.priority_class_name)
        wanted["priority"] = raw(found.value)
        wanted["preemptionPolicy"] = raw(found.preemption_policy)
    return wanted


def _patched(review: Review, profile: ReadyProfile, document: msgspec.Raw) -> msgspec.Raw:
    assert profile.patch is not None
    try:
        patched = strategic_merge_patch(document, profile.patch)
        review.definition.decode(patched)
    except msgspec.ValidationError as error:
        wrong = type_error(error)
        detail = f"{wrong.message} after the patch of ClusterColocationProfile {profile.name}"
        raise _refused(review, FieldError(wrong.field, wrong.reason, detail)) from error
    except (DocumentError, PatchError) as error:
        detail = f"the patch of ClusterColocationProfile {profile.name} cannot be merged into this pod: {error}"
        raise _refused(review, invalid("metadata.name", review.view.metadata.name, detail)) from error
    return patched


def _refused(review: Review, error: FieldError) -> ApiError:
    return invalid_object(review.kind, review.view.metadata.name, [error])

"""ClusterColocationProfiles are applied to a Reservation when it is created: it is for pods that the profiles change
alike.

In: the Reservation and the profiles. Out: the Reservation with the labels and annotations that the profiles set on itself,
and scheduler, priority class, value and policy on its pod template, where it has one. A profile matches by its selector and
the Reservation's labels; its namespace selector is ignored, as a Reservation is in no namespace, and one that selects
by namespace alone matches none. Of a patch metadata is applied, and members of spec that a Reservation has.
Resources are not translated. Order and probability are those of pods. Source: Koordinator's Reservation webhook, which lets a
profile that selects by namespace alone match every Reservation.
"""

from __future__ import annotations

import msgspec

from cotenant.api.patching.errors import PatchError
from cotenant.api.patching.strategic import strategic_merge_patch
from cotenant.api.splices import DocumentError, Members, is_object, member_object, members, put_or_drop, raw
from cotenant.api.validation.fields import invalid, not_found
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.model.names import ANNOTATION_COLOCATION_PROFILES
from cotenant_gateway.admission.pods.priority import find_priority_class
from cotenant_gateway.admission.profiles.effects import set_metadata
from cotenant_gateway.admission.profiles.selection import ReadyProfile, draw, ready_profiles
from cotenant_gateway.admission.review import Mutation, Review
from cotenant_gateway.statuses import invalid_object

_OF_RESERVATION = frozenset(
    {
        "template",
        "owners",
        "ttl",
        "expires",
        "preAllocation",
        "allocateOnce",
        "allocatePolicy",
        "unschedulable",
        "taints",
    }
)


def apply_profiles_to_reservation(review: Review) -> Mutation | None:
    """Apply the profiles that match. Raises ApiError where one cannot be applied."""
    matched = _matched(review)
    if not matched:
        return None
    top = members(review.document)
    applied: list[str] = []
    notes: list[str] = []
    for profile in matched:
        name = review.view.metadata.name
        if profile.faults:
            notes.append(f"ClusterColocationProfile {profile.name} is not applied, it is invalid: {profile.faults[0]}")
        elif (0 < profile.percent < 100 and draw(profile.name, "", name) >= profile.percent) or not profile.percent:
            notes.append(f"ClusterColocationProfile {profile.name} left out: its probability is {profile.percent}%")
        else:
            top = _with_profile(review, top, profile)
            applied.append(profile.name)
            values = ", ".join(f"{what} {to}" for what, to in profile.sets.items())
            notes.append(f"ClusterColocationProfile {profile.name}: {values or 'sets nothing'}")
    metadata = member_object(top, "metadata")
    annotations = member_object(metadata, "annotations")
    annotations.pop(ANNOTATION_COLOCATION_PROFILES, None)
    if applied:
        annotations[ANNOTATION_COLOCATION_PROFILES] = raw(",".join(applied))
    put_or_drop(metadata, "annotations", annotations)
    top["metadata"] = raw(metadata)
    return Mutation(raw(top), tuple(notes), tuple(profile.cause for profile in matched))


def _matched(review: Review) -> list[ReadyProfile]:
    labels = review.view.metadata.labels
    profiles = review.objects.derived(PROFILES, ready_profiles).profiles
    return [profile for profile in profiles if _concerns(profile) and profile.selects_pod(labels)]


def _concerns(profile: ReadyProfile) -> bool:
    pods, namespaces = profile.spec.selector, profile.spec.namespace_selector
    by_labels = pods is not None and bool(pods.match_labels or pods.match_expressions)
    by_namespace = namespaces is not None and bool(namespaces.match_labels or namespaces.match_expressions)
    return by_labels or not by_namespace


def _with_profile(review: Review, top: Members, profile: ReadyProfile) -> Members:
    set_metadata(top, profile.spec)
    spec = member_object(top, "spec")
    if "template" in spec and is_object(spec["template"]):
        template = member_object(spec, "template")
        pod = member_object(template, "spec")
        if profile.spec.scheduler_name:
            pod["schedulerName"] = raw(profile.spec.scheduler_name)
        if profile.spec.priority_class_name:
            _set_priority(review, pod, profile)
        put_or_drop(template, "spec", pod)
        spec["template"] = raw(template)
        top["spec"] = raw(spec)
    return top if profile.patch is None else _patched(review, top, profile)


def _set_priority(review: Review, pod: Members, profile: ReadyProfile) -> None:
    name = profile.spec.priority_class_name
    found = find_priority_class(review.objects, name)
    if found is None:
        detail = f"ClusterColocationProfile {profile.name} sets this PriorityClass: create it, or change the profile"
        error = not_found("spec.template.spec.priorityClassName", name, detail)
        raise invalid_object(review.kind, review.view.metadata.name, [error])
    pod["priorityClassName"] = raw(name)
    pod["priority"] = raw(found.value)
    pod["preemptionPolicy"] = raw(found.preemption_policy)


def _patched(review: Review, top: Members, profile: ReadyProfile) -> Members:
    assert profile.patch is not None
    patch = members(profile.patch)
    spec = {name: value for name, value in member_object(patch, "spec").items() if name in _OF_RESERVATION}
    meant = {"metadata": raw(member_object(patch, "metadata")), "spec": raw(spec)}
    try:
        patched = strategic_merge_patch(raw(top), raw({name: value for name, value in meant.items() if bytes(value) != b"{}"}))
        review.definition.decode(patched)
    except (DocumentError, PatchError, msgspec.ValidationError) as error:
        name = review.view.metadata.name
        detail = f"the patch of ClusterColocationProfile {profile.name} cannot be merged into this Reservation: {error}"
        raise invalid_object(review.kind, name, [invalid("metadata.name", name, detail)]) from error
    return members(patched)

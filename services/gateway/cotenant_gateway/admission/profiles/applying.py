"""ClusterColocationProfiles are applied to a pod when it is created.

In: the pod, the profiles (`profile_set`), its namespace, the PriorityClasses. Out: the pod as the profiles make it, one note a
profile, and the profiles as causes. The rules are those of Koordinator's pod webhook:

1. All profiles are matched against the labels as submitted before any is applied; then they are applied in
   order of name, so a later one overwrites what an earlier one set.
2. Each is applied (`profile_effects`), unless its probability leaves the pod out.
3. If any matched, cpu and memory become the resources of the pod's tier, unless a matched profile has the annotation
   `config.koordinator.sh/skip-update-resources`. This happens even where every one was left out by its probability.

A pod that no profile matches is left as it is, and no profile changes a pod that has been placed
(`planning/waiting_pods.py` is about those that have not been). A live pod whose resources were translated
keeps them when its manifest is applied again: the cpu and memory that it then asks for are translated as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from cotenant.api.edits import with_metadata
from cotenant.api.objects.pod import Pod
from cotenant.api.splices import EMPTY_OBJECT, member_object, members, raw
from cotenant.domain.qos import priority_default
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.model.names import ANNOTATION_COLOCATION_PROFILES
from cotenant.model.quantities import QuantityError
from cotenant.model.tiers import TIER_RESOURCES
from cotenant_gateway.admission.pods.priority import resolve_priority
from cotenant_gateway.admission.pods.runtime_class import merge_runtime_class
from cotenant_gateway.admission.pods.tier_resources import translated_spec
from cotenant_gateway.admission.profiles.effects import with_profile
from cotenant_gateway.admission.profiles.selection import ReadyProfile, draw, ready_profiles
from cotenant_gateway.admission.review import Mutation, Review

Draw = Callable[[str, str, str], int]


def apply_colocation_profiles(review: Review) -> Mutation | None:
    """Apply the profiles that match, and record their names on the pod. Raises ApiError where one cannot be applied."""
    recorded = review.view.metadata.annotations.get(ANNOTATION_COLOCATION_PROFILES)
    if recorded is None and not review.objects.derived(PROFILES, ready_profiles).profiles:
        return None
    change, applied = changed_by_profiles(review, draw)
    names = ",".join(applied) or None
    if recorded == names:
        return change
    # A copied manifest may carry the record of the pod that it was copied from: it does not apply to this one.
    document = review.document if change is None else change.document
    document = _with_record(document, names)
    return Mutation(document, () if change is None else change.notes, () if change is None else change.causes)


def translate_again(review: Review) -> Mutation | None:
    """Translate what a live pod's manifest requests, if the pod's resources were translated when it was created."""
    old = review.old
    if old is None or old.stored is None or ANNOTATION_COLOCATION_PROFILES not in old.meta.annotations:
        return None
    change = in_tier_resources(review)
    was = Review(review.definition, old.stored.raw, old.pod, old, review.objects)
    return change if in_tier_resources(was) is None else None


def _with_record(document: msgspec.Raw, names: str | None) -> msgspec.Raw:
    annotations = member_object(member_object(members(document), "metadata"), "annotations")
    annotations.pop(ANNOTATION_COLOCATION_PROFILES, None)
    if names is not None:
        annotations[ANNOTATION_COLOCATION_PROFILES] = raw(names)
    return with_metadata(document, {"annotations": annotations or None})


def changed_by_profiles(review: Review, drawn: Draw) -> tuple[Mutation | None, Sequence[str]]:
    """Return the pod after all profiles (None if no profile matches), and the names of those that were applied."""
    matched = matched_profiles(review)
    return changed_by(review, matched, drawn) if matched else (None, ())


def reapply_colocation_profiles(review: Review) -> Mutation | None:
    """Apply to a waiting pod the profiles that match it now: those that request this by their label, and those that it was
    created with, so that the order of names decides as it did then. Raises ApiError where one cannot be applied."""
    recorded = review.view.metadata.annotations.get(ANNOTATION_COLOCATION_PROFILES, "")
    names = {*recorded.split(",")} - {""}
    matched = [profile for profile in matched_profiles(review) if profile.managed or profile.name in names]
    if not any(profile.managed for profile in matched):
        return None
    change, applied = changed_by(review, matched, draw, again=True)
    document = _with_record(change.document, ",".join(sorted({*names, *applied})) or None)
    return Mutation(document, change.notes, change.causes)


def changed_by(
    review: Review, matched: Sequence[ReadyProfile], drawn: Draw, *, again: bool = False
) -> tuple[Mutation, Sequence[str]]:
    """Return the pod after these profiles, and the names of those that were applied. `again`: they may have been before."""
    name, namespace = review.view.metadata.name, review.view.metadata.namespace
    working = Review(review.definition, review.document, review.view, None, review.objects)
    applied: list[str] = []
    set_by: dict[str, str] = {}
    notes: list[str] = []
    for profile in matched:
        if profile.faults:
            notes.append(f"ClusterColocationProfile {profile.name} is not applied, it is invalid: {profile.faults[0]}")
            continue
        number = drawn(profile.name, namespace, name) if 0 < profile.percent < 100 else 0
        if number >= profile.percent:
            chance = f"its probability is {profile.percent}%" + (f", the draw {number}" if profile.percent else "")
            notes.append(f"ClusterColocationProfile {profile.name} left out: {chance}")
            continue
        working.take(Mutation(with_profile(working, profile, again=again), ()))
        applied.append(profile.name)
        notes.append(_note(profile, set_by))
        set_by.update(dict.fromkeys(profile.sets, profile.name))
    if any(profile.patch is not None for profile in matched):
        # A patch may name classes: they are resolved as if the pod had been created with them.
        for resolve in (resolve_priority, merge_runtime_class):
            change = resolve(working)
            if change is not None:
                working.take(change)
    sound = [profile for profile in matched if not profile.faults]
    translated = not review.objects.settings.skip_mutating_resources
    if sound and translated and not any(profile.keeps_resources for profile in sound):
        translation = in_tier_resources(working)
        if translation is not None:
            working.take(translation)
    causes = tuple(profile.cause for profile in matched)
    return Mutation(working.document, (*notes, *working.notes), causes), applied


def matched_profiles(review: Review) -> list[ReadyProfile]:
    """Return the profiles that select the pod as it is."""
    meta = review.view.metadata

    def namespace_labels() -> Mapping[str, str]:
        namespace = review.objects.get(NAMESPACES, "", meta.namespace)
        return {} if namespace is None else namespace.labels

    return review.objects.derived(PROFILES, ready_profiles).matching(meta.labels, namespace_labels)


def _note(profile: ReadyProfile, set_by: Mapping[str, str]) -> str:
    changes = [f"{what} {to}" + (f" (over {set_by[what]})" if what in set_by else "") for what, to in profile.sets.items()]
    return f"ClusterColocationProfile {profile.name}: {', '.join(changes) or 'sets nothing'}"


def in_tier_resources(review: Review) -> Mutation | None:
    """Translate cpu and memory into the resources of the pod's tier; prod, free and no tier keep theirs."""
    pod = review.view
    assert isinstance(pod, Pod)
    top = members(review.document)
    spec = bytes(top.get("spec", EMPTY_OBJECT))
    try:
        tier = priority_default(pod)
        translated = translated_spec(spec, tier)
    except QuantityError:
        # The validators report the quantity that cannot be read.
        return None
    if translated == spec:
        return None
    top["spec"] = msgspec.Raw(translated)
    return Mutation(raw(top), (f"resources in {' and '.join(TIER_RESOURCES[tier].values())}, those of {tier.value}",))

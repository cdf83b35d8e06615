"""The ClusterColocationProfiles of the read model, made ready to be matched: once for each change of any of them.

In: the stored profiles. Out: a `ProfileSet` that finds the profiles of a pod, in order of name; each with its predicates, its
percentage, a description of its changes, and its faults. A profile that was stored by another writer than a gateway, and that a
gateway would have refused, is not applied, and the events of pods that it might select say so (Koordinator lets a selector that
cannot be read select every pod).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from cotenant.api.objects.colocation_profile import (
    ClusterColocationProfile,
    ClusterColocationProfileSpec,
    probability_percent,
)
from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import EMPTY_OBJECT, is_null
from cotenant.api.validation.fields import FieldError
from cotenant.domain.selectors import Predicate, SelectorError, predicate
from cotenant.kinds.koordinator.cluster_colocation_profiles import PROFILES, decode_profile
from cotenant.model.names import (
    ANNOTATION_SKIP_UPDATE_RESOURCES,
    LABEL_CONTROLLER_MANAGED,
    LABEL_PRIORITY,
    LABEL_QOS_CLASS,
)
from cotenant_gateway.admission.namespaces import LABEL_CONTROL_PLANE
from cotenant_gateway.admission.profiles.rules import profile_errors
from cotenant_gateway.admission.review import ObjectSource, type_error


class ReadyProfile(msgspec.Struct, frozen=True):
    """One profile. `cause` is the fact that declared it; `sets` describes what it sets."""

    name: str
    cause: str
    spec: ClusterColocationProfileSpec
    selects_namespace: Predicate
    selects_pod: Predicate
    percent: int
    keeps_resources: bool
    managed: bool
    """It is also applied to waiting pods when it changes."""
    sequence: int
    patch: msgspec.Raw | None
    sets: Mapping[str, str]
    faults: tuple[FieldError, ...] = ()


class ProfileSet(msgspec.Struct, frozen=True):
    """All profiles, in order of name; profiles that require a label of the pod are indexed under that label."""

    profiles: tuple[ReadyProfile, ...]
    by_label: Mapping[tuple[str, str], Sequence[int]]
    others: tuple[int, ...]
    managed: bool = False
    """Whether any is applied to waiting pods."""

    def matching(self, pod: Mapping[str, str], namespace: Callable[[], Mapping[str, str]]) -> list[ReadyProfile]:
        """Return the profiles that select these labels; the namespace's labels are looked up only if a profile needs them. In a
        control-plane namespace none does."""
        places = [*self.others, *(place for label in pod.items() for place in self.by_label.get(label, ()))]
        if not places:
            return []
        found = (self.profiles[place] for place in sorted(places))
        candidates = [profile for profile in found if profile.selects_pod(pod)]
        if not candidates:
            return []
        of_namespace = namespace()
        if LABEL_CONTROL_PLANE in of_namespace:
            return []
        return [profile for profile in candidates if profile.selects_namespace(of_namespace)]


def ready_profiles(objects: ObjectSource) -> ProfileSet:
    """Return the profiles of the read model."""
    profiles = tuple(ready_profile(snapshot) for snapshot in objects.objects(PROFILES) if snapshot.stored is not None)
    by_label: dict[tuple[str, str], list[int]] = {}
    others: list[int] = []
    for place, profile in enumerate(profiles):
        selector = profile.spec.selector
        if selector is not None and selector.match_labels and not profile.faults:
            # Indexed under one label; the predicate checks the others.
            by_label.setdefault(min(selector.match_labels.items()), []).append(place)
        else:
            others.append(place)
    return ProfileSet(profiles, by_label, tuple(others), any(profile.managed for profile in profiles))


def draw(profile: str, namespace: str, pod: str) -> int:
    """Return 0..99 for a profile's probability: it is applied where this is below its percentage.

    A hash, not a random number: every gateway, a dry run and a repeated request get the same result, and a percentage that
    grows keeps the pods that it selected before.
    """
    digest = hashlib.blake2b(f"{profile}/{namespace}/{pod}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % 100


def ready_profile(snapshot: Snapshot) -> ReadyProfile:
    """Return a profile made ready to be matched."""
    stored = snapshot.stored
    assert stored is not None
    profile = ClusterColocationProfile(metadata=stored.meta)
    try:
        view = snapshot.view(decode_profile)
        assert isinstance(view, ClusterColocationProfile)
        profile = view
        faults = tuple(profile_errors(profile))
    except msgspec.ValidationError as error:
        faults = (type_error(error),)
    spec = profile.spec
    patch = None if bytes(spec.patch) == b"" or is_null(spec.patch) or spec.patch == EMPTY_OBJECT else spec.patch
    return ReadyProfile(
        name=snapshot.address.name,
        cause=f"LOG:{stored.sequence}",
        spec=spec,
        selects_namespace=_predicate(spec.namespace_selector),
        selects_pod=_predicate(spec.selector),
        percent=0 if faults else probability_percent(spec.probability),
        keeps_resources=ANNOTATION_SKIP_UPDATE_RESOURCES in profile.metadata.annotations,
        managed=not faults and profile.metadata.labels.get(LABEL_CONTROLLER_MANAGED) == "true",
        sequence=stored.sequence,
        patch=patch,
        sets=_sets(spec, patch),
        faults=faults,
    )


def _predicate(selector: LabelSelector | None) -> Predicate:
    try:
        return predicate(selector, absent=True)
    except SelectorError:
        return lambda _labels: True


def _sets(spec: ClusterColocationProfileSpec, patch: msgspec.Raw | None) -> dict[str, str]:
    """The profile's changes, in the order in which they are applied."""
    found = {f"label {key}": value for key, value in spec.labels.items()}
    found |= {f"annotation {key}": value for key, value in spec.annotations.items()}
    found |= {f"label {new}": f"that of {old}" for old, new in sorted(spec.label_keys_mapping.items())}
    found |= {f"annotation {new}": f"that of {old}" for old, new in sorted(spec.annotation_keys_mapping.items())}
    found |= {f"suffix of label {key}": suffix for key, suffix in sorted(spec.label_suffixes.items())}
    if spec.scheduler_name:
        found["schedulerName"] = spec.scheduler_name
    if spec.qos_class:
        found[f"label {LABEL_QOS_CLASS}"] = spec.qos_class
    if spec.priority_class_name:
        found["priorityClassName"] = spec.priority_class_name
    if spec.koordinator_priority is not None:
        found[f"label {LABEL_PRIORITY}"] = str(spec.koordinator_priority)
    if patch is not None:
        found["patch"] = f"of {len(bytes(patch))} bytes"
    return found

"""A ClusterColocationProfile when it is written: its own rules, and whether its patch is valid.

The patch is tried on a small pod: it must be an object that can be merged, must not change the pod's identity, and
the result must have a pod's types, containers with names, and valid labels. Elements of `containers` without
a name would replace the containers of every pod instead of being merged into them.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.colocation_profile import ClusterColocationProfile
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.patching.errors import PatchError
from cotenant.api.patching.strategic import strategic_merge_patch
from cotenant.api.splices import DocumentError, is_null, is_object, member_object, members
from cotenant.api.validation.fields import FieldError, forbidden, invalid, labels, required
from cotenant.api.validation.metadata import annotation_errors
from cotenant.domain.colocation_profiles import colocation_profile_errors
from cotenant_gateway.admission.review import Review, type_error

_SAMPLE = msgspec.Raw(
    b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"sample"},"spec":{"containers":[{"name":"sample","image":"sample"}]}}'
)
_UNTOUCHED = ("apiVersion", "kind", "status")
_UNTOUCHED_METADATA = ("name", "generateName", "namespace", "uid", "resourceVersion", "creationTimestamp", "generation")
_UNTOUCHED_DETAIL = "a profile's patch may not change it; remove it from the patch"


def colocation_profile_is_valid(review: Review) -> list[FieldError]:
    """The profile's fields and its patch."""
    return profile_errors(review.view) if isinstance(review.view, ClusterColocationProfile) else []


def profile_errors(profile: ClusterColocationProfile) -> list[FieldError]:
    """Return everything that is wrong in a profile."""
    return [*colocation_profile_errors(profile), *_patch_errors(profile.spec.patch)]


def _patch_errors(patch: msgspec.Raw) -> list[FieldError]:
    if bytes(patch) == b"" or is_null(patch):
        return []
    if not is_object(patch):
        return [invalid("spec.patch", _shown(patch), "must be an object: a strategic merge patch of a pod")]
    try:
        found = _untouched(patch)
        if found:
            return found
        view = decode_pod(strategic_merge_patch(_SAMPLE, patch))
    except (DocumentError, PatchError) as error:
        return [invalid("spec.patch", _shown(patch), f"cannot be merged into a pod: {error}")]
    except msgspec.ValidationError as error:
        wrong = type_error(error)
        return [FieldError(f"spec.patch.{wrong.field}", wrong.reason, wrong.message)]
    assert isinstance(view, Pod)
    return _sample_errors(view)


def _untouched(patch: msgspec.Raw) -> list[FieldError]:
    top = members(patch)
    metadata = member_object(top, "metadata")
    return [
        *(forbidden(f"spec.patch.{name}", _UNTOUCHED_DETAIL) for name in _UNTOUCHED if name in top),
        *(forbidden(f"spec.patch.metadata.{name}", _UNTOUCHED_DETAIL) for name in _UNTOUCHED_METADATA if name in metadata),
    ]


def _sample_errors(pod: Pod) -> list[FieldError]:
    found: list[FieldError] = []
    for section, containers in (("containers", pod.spec.containers), ("initContainers", pod.spec.init_containers)):
        if any(not container.name for container in containers):
            found.append(required(f"spec.patch.spec.{section}[*].name", "names the container to merge the patch into"))
    if not pod.spec.containers:
        found.append(forbidden("spec.patch.spec.containers", "the patch would leave a pod without containers"))
    found += labels("spec.patch.metadata.labels", pod.metadata.labels)
    for error in annotation_errors(pod.metadata.annotations):
        found.append(FieldError(f"spec.patch.{error.field}", error.reason, error.message))
    return found


def _shown(patch: msgspec.Raw) -> str:
    text = bytes(patch).decode(errors="replace")
    return text if len(text) <= 100 else f"{text[:100]}..."

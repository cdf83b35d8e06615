"""The subresource `pods/resize`: which changes of a live pod's resources are accepted.

In: the pod as stored, and as written. Out: the stored pod with the written containers' `resources` and `resizePolicy`, all else
as it was; field errors. Rules and texts of Kubernetes 1.33 and later:

    only cpu and memory change (here also those of the batch and mid tiers), and the resize policies
    a request or limit that is there cannot be removed
    the QoS class stays, and init containers that are not sidecars keep their resources
    a memory limit may be lowered: the node applies it once less is in use (Kubernetes 1.34)

Source: Kubernetes, ValidatePodResize.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from cotenant.api.objects.pod import Container, Pod
from cotenant.api.splices import DocumentError, Members, elements, is_array, member_object, members, raw
from cotenant.api.validation.fields import FieldError, forbidden, invalid
from cotenant.domain.qos import kube_qos
from cotenant.domain.resizing import RESIZABLE
from cotenant.model.quantities import QuantityError
from cotenant_gateway.admission.review import Review

RESIZE = "resize"
_SECTIONS = ("initContainers", "containers")
_CHANGED = ("resources", "resizePolicy")


def resized_document(stored: msgspec.Raw, written: msgspec.Raw) -> msgspec.Raw:
    """Return the stored pod with the resources and resize policies of the written one. Raises DocumentError."""
    top = members(stored)
    spec, given = member_object(top, "spec"), member_object(members(written), "spec")
    for section in _SECTIONS:
        wanted = dict(_containers(given, section))
        if section in spec and is_array(spec[section]):
            spec[section] = raw([_resized(each, wanted) for each in elements(spec[section])])
    top["spec"] = raw(spec)
    return raw(top)


def _containers(spec: Members, section: str) -> Iterator[tuple[str, Members]]:
    if section not in spec:
        return
    for each in elements(spec[section]):
        inner = members(each)
        name = json.loads(bytes(inner["name"])) if "name" in inner else None
        if not isinstance(name, str):
            raise DocumentError(f"Object missing required field `name` - at `$.spec.{section}[...]`")
        yield name, inner


def _resized(container: msgspec.Raw, wanted: dict[str, Members]) -> msgspec.Raw:
    inner = members(container)
    given = wanted.get(json.loads(bytes(inner["name"]))) if "name" in inner else None
    if given is None:
        return container
    for member in _CHANGED:
        if member in given:
            inner[member] = given[member]
        else:
            inner.pop(member, None)
    return raw(inner)


def resize_is_allowed(review: Review) -> list[FieldError]:
    """See the module."""
    pod, old = review.view, review.old_view(Pod)
    if not isinstance(pod, Pod) or old is None:
        return []
    found: list[FieldError] = []
    for section, ours, theirs in (
        ("initContainers", pod.spec.init_containers, old.spec.init_containers),
        ("containers", pod.spec.containers, old.spec.containers),
    ):
        for at, (new, before) in enumerate(zip(ours, theirs, strict=False)):
            found += _of_container(f"spec.{section}[{at}]", section, new, before)
    if found:
        return found
    try:
        before_class, after_class = kube_qos(old), kube_qos(pod)
    except QuantityError:
        return []  # the pod's own rules report it
    if before_class is not after_class:
        return [invalid("spec", after_class.value, "Pod QOS Class may not change as a result of resizing")]
    return []


def _of_container(path: str, section: str, new: Container, old: Container) -> list[FieldError]:
    if new.resources == old.resources:
        return []
    if section == "initContainers" and old.restart_policy != "Always":
        return [forbidden(f"{path}.resources", "only sidecar containers can be resized among init containers")]
    found: list[FieldError] = []
    for member, ours, theirs in (
        ("requests", new.resources.requests, old.resources.requests),
        ("limits", new.resources.limits, old.resources.limits),
    ):
        if any(name not in ours for name in theirs if name in RESIZABLE):
            found.append(forbidden(f"{path}.resources.{member}", f"resource {member} cannot be removed"))
        if _others(ours) != _others(theirs):
            found.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return found


def _others(amounts: dict[str, str | int | float]) -> dict[str, str | int | float]:
    return {name: quantity for name, quantity in amounts.items() if name not in RESIZABLE}

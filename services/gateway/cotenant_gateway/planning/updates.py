"""Replacements and patches, of an object, its status or a pod's resources: from what a client sends to the plan that stores it.

Members that other services' facts added to the object that the client read are removed. Members of metadata that no writer
may change stay as they are; `generation` counts changes of everything but metadata and status.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.edits import same_json, spec_of
from cotenant.api.kinds import Kind
from cotenant.api.overlay import without_overlay
from cotenant.api.patching.errors import PatchError, PatchTestError, PatchTooLargeError
from cotenant.api.patching.json_patch import json_patch
from cotenant.api.patching.merge import merge_patch
from cotenant.api.patching.strategic import strategic_merge_patch
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import DocumentError, Members, is_object, member_object, members, put_or_drop, raw
from cotenant.events.objects import ObjectStored
from cotenant.log.plans import Plan, object_write
from cotenant_gateway.admission.chain import RESIZING
from cotenant_gateway.admission.pods.resizing import RESIZE, resized_document
from cotenant_gateway.admission.quotas.charging import charge_quota
from cotenant_gateway.admission.review import WrongTypes, type_error
from cotenant_gateway.planning.declared import with_document
from cotenant_gateway.planning.documents import (
    HEAD,
    Planned,
    admitted,
    check_kind,
    check_version,
    check_writable,
    existing,
    read_object,
    wrong_types,
)
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import (
    ApiError,
    bad_request,
    conflict,
    forbidden,
)


def plan_replacement(
    core: GatewayCore, kind: Kind, namespace: str, name: str, body: bytes, *, subresource: str = ""
) -> Planned:
    """Return the plan that replaces an object, or what a subresource writes of it. Raises ApiError, TooNew."""
    top, head = read_object(core.kinds, kind, namespace, body)
    if head.metadata.name != name:
        raise bad_request(
            f"the name of the object ({head.metadata.name or 'based on the URL'}) does not match the name on the URL ({name})"
        )
    snapshot, uid = _writable(core, existing(core, kind, namespace, name), head.metadata.uid)
    check_version(core, snapshot, head.metadata.resource_version)
    return _update(core, snapshot, raw(top), uid, subresource=subresource)


def _writable(core: GatewayCore, shown: Snapshot, uid: str) -> tuple[Snapshot, str]:
    """Return the object with the document to change, and the uid that the writer expects. Raises ApiError."""
    snapshot = with_document(core, shown)
    check_writable(snapshot)
    return snapshot, "" if snapshot is not shown and uid == shown.uid else uid


STRATEGIC = "application/strategic-merge-patch+json"
_PATCHES = {
    "application/merge-patch+json": merge_patch,
    "application/json-patch+json": json_patch,
    STRATEGIC: strategic_merge_patch,
}
PATCH_TYPES = tuple(_PATCHES)


def plan_patch(
    core: GatewayCore, kind: Kind, namespace: str, name: str, patch_type: str, patch: bytes, *, subresource: str = ""
) -> Planned:
    """Return the plan of a patch. The patch applies to the object as the API shows it. Raises ApiError, TooNew."""
    shown = existing(core, kind, namespace, name)
    snapshot, _ = _writable(core, shown, "")
    try:
        patched = _PATCHES[patch_type](msgspec.Raw(shown.document), msgspec.Raw(patch))
        top = members(patched)
        head = HEAD.decode(patched)
        given = _patched_version(patch_type, patch)
    except PatchTestError as error:
        raise invalid_patch(kind, name, str(error)) from error
    except PatchTooLargeError as error:
        raise ApiError(413, "RequestEntityTooLarge", f"the patch is too large: {error}") from error
    except (DocumentError, PatchError) as error:
        raise bad_request(f"the patch cannot be applied: {error}") from error
    except msgspec.ValidationError as error:
        raise wrong_types(kind, WrongTypes(type_error(error))) from error
    except UnicodeDecodeError as error:
        raise bad_request(f"the patch is not UTF-8: {error}") from error
    check_version(core, snapshot, given)
    if head.metadata.name != name or (kind.namespaced and head.metadata.namespace != namespace):
        raise bad_request("a patch cannot change the name or the namespace of an object")
    check_kind(core.kinds, kind, head)
    uid = "" if snapshot is not shown and head.metadata.uid == shown.uid else head.metadata.uid
    return _update(core, snapshot, raw(top), uid, subresource=subresource)


def invalid_patch(kind: Kind, name: str, why: str) -> ApiError:
    """422: a test in the patch did not hold, or its path is not there."""
    return ApiError(422, "Invalid", f'the patch of {kind.resource} "{name}" cannot be applied: {why}')


def _patched_version(patch_type: str, patch: bytes) -> str:
    """Return the resourceVersion in the patch itself: only this one is a precondition."""
    patch.decode()
    if patch_type == "application/json-patch+json" or not is_object(patch):
        return ""
    return HEAD.decode(raw({"metadata": raw(_version_only(patch))})).metadata.resource_version


def _version_only(patch: bytes) -> Members:
    metadata = member_object(members(patch), "metadata")
    version = metadata.get("resourceVersion")
    return {"resourceVersion": version} if version is not None and bytes(version) != b"null" else {}


def _update(core: GatewayCore, snapshot: Snapshot, written: msgspec.Raw, uid: str, *, subresource: str) -> Planned:
    stored = snapshot.stored
    assert stored is not None
    address = snapshot.address
    kind, name = address.kind, address.name
    if uid and uid != stored.meta.uid:
        raise conflict(kind, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.meta.uid}")
    try:
        if subresource == "status":
            shown: Mapping[str, msgspec.Raw] = snapshot.overlay.status if core.kinds.of(kind).declarable else {}
            document = _with_status_of(stored.raw, written, shown)
        elif subresource == RESIZE:
            document = resized_document(stored.raw, without_overlay(written, stored.raw, snapshot.overlay))
        else:
            document = _with_immutable_metadata(without_overlay(written, stored.raw, snapshot.overlay), stored.raw)
    except DocumentError as error:
        raise wrong_types(kind, WrongTypes(type_error(error))) from error
    review = admitted(core, address, document, snapshot, RESIZING if subresource == RESIZE else None)
    document = with_generation(review.document, stored.raw, stored.meta.generation)
    if same_json(document, stored.raw):
        return Planned(address, document, None, snapshot, review.warnings)
    if stored.meta.deletion_timestamp is not None:
        added = set(review.view.metadata.finalizers) - set(stored.meta.finalizers)
        if added:
            raise forbidden(kind, name, f"no new finalizers can be added if the object is being deleted: {sorted(added)}")
    payload = ObjectStored(object=document, admission=review.notes)
    # An empty document below other services' facts has no creation time: this write creates it.
    creates = stored.time is None
    causes = review.causes if creates else (f"LOG:{stored.sequence}", *review.causes)
    write = object_write(address, payload, stored.sequence, causes=causes)
    charge = charge_quota(review)
    plan = Plan((write,) if charge is None else (write, charge), creates)
    return Planned(address, document, plan, snapshot, review.warnings)


def _with_status_of(stored: msgspec.Raw, written: msgspec.Raw, shown: Mapping[str, msgspec.Raw]) -> msgspec.Raw:
    """The stored document with the written status, but for members that are written as other services' facts have them."""
    top = members(stored)
    given = members(written).get("status")
    if given is None:
        top.pop("status", None)
    elif not shown or not is_object(given):
        top["status"] = given
    else:
        own = {name: value for name, value in members(given).items() if name not in shown or not same_json(value, shown[name])}
        put_or_drop(top, "status", own)
    return raw(top)


_IMMUTABLE = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace")


def _with_immutable_metadata(document: msgspec.Raw, stored: msgspec.Raw) -> msgspec.Raw:
    """The document with the members of metadata that no writer may change."""
    top = members(document)
    metadata, before = member_object(top, "metadata"), member_object(members(stored), "metadata")
    for name in _IMMUTABLE:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    put_or_drop(top, "metadata", metadata)
    return raw(top)


def with_generation(document: msgspec.Raw, stored: msgspec.Raw, generation: int) -> msgspec.Raw:
    """Return the document with `generation`, which counts changes of everything but metadata and status."""
    if same_json(spec_of(document), spec_of(stored)):
        return document
    top = members(document)
    metadata = member_object(top, "metadata")
    metadata["generation"] = raw(generation + 1)
    top["metadata"] = raw(metadata)
    return raw(top)

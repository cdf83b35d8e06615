"""From a client's document to a plan: pure planning of creations, replacements, patches and deletions.

In: the read model, the document's bytes, the time and a uid. Out: a plan to store and the object's address, or an
ApiError. The shell stores the plan, and when it is refused plans again from what has been folded meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from cotenant.api.definitions import Registry
from cotenant.api.edits import same_json, spec_of
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import AnyObject
from cotenant.api.overlay import without_overlay
from cotenant.api.patches import (
    PatchError,
    PatchTestError,
    json_patch,
    merge_patch,
    strategic_merge_patch,
)
from cotenant.api.snapshots import Address, Snapshot
from cotenant.api.splices import DocumentError, Members, is_object, member_object, members, put_or_drop, raw
from cotenant.api.times import rfc3339
from cotenant.events.objects import ObjectStored
from cotenant.log.plans import Plan, object_write
from cotenant_gateway.admission.chain import admit
from cotenant_gateway.admission.namespaces import namespace_deletion_refusal, namespace_refusal
from cotenant_gateway.admission.quotas.tree import quota_deletion_refusal
from cotenant_gateway.admission.review import Review, WrongTypes, open_review, type_error
from cotenant_gateway.planning.endings import deletion
from cotenant_gateway.planning.statuses import (
    MODIFIED,
    ApiError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid_object,
    method_not_allowed,
    not_found,
    timeout,
    too_large,
)
from cotenant_gateway.read_model.core import GatewayCore

MAX_OBJECT_BYTES = 768 * 1024
_TRANSIENT = frozenset({"resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"})
"""Members of metadata that a new object does not have, whatever its document says."""
_HEAD = msgspec.json.Decoder(AnyObject)


class Planned(msgspec.Struct, frozen=True):
    """What to store for a request; `plan` is None where nothing changes. `document` is the object as it will be."""

    address: Address
    document: msgspec.Raw
    plan: Plan | None
    was: Snapshot | None = None


def read_object(kinds: Registry, kind: Kind, namespace: str, body: bytes) -> tuple[Members, AnyObject]:
    """Return the members and the head of a document that claims to be of this kind. Raises ApiError."""
    try:
        top = members(body)
        body.decode()
    except DocumentError as error:
        raise bad_request(f"the object provided is unrecognized: the body is not a JSON object: {error}") from error
    except UnicodeDecodeError as error:
        raise bad_request(f"the object provided is unrecognized: the body is not UTF-8: {error}") from error
    try:
        head = _HEAD.decode(body)
    except msgspec.ValidationError as error:
        head = _head_without_nulls(kind, top, error)
    _check_kind(kinds, kind, head)
    if head.metadata.namespace and kind.namespaced and head.metadata.namespace != namespace:
        raise bad_request(
            f"the namespace of the provided object does not match the namespace sent on the request "
            f"({head.metadata.namespace} is not {namespace})"
        )
    return top, head


def _head_without_nulls(kind: Kind, top: Members, error: msgspec.ValidationError) -> AnyObject:
    """`creationTimestamp: null` and the like are common in manifests."""
    wrong = type_error(error)
    try:
        metadata = {name: value for name, value in member_object(top, "metadata").items() if bytes(value) != b"null"}
        top["metadata"] = raw(metadata)
        return _HEAD.decode(raw(top))
    except (DocumentError, msgspec.ValidationError):
        raise _wrong_types(kind, WrongTypes(wrong)) from error


def _wrong_types(kind: Kind, wrong: WrongTypes) -> ApiError:
    message = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {wrong.error}'
    return bad_request(message, (wrong.error,))


def _check_kind(kinds: Registry, kind: Kind, head: AnyObject) -> None:
    if kinds.type(head.api_version, head.kind) is kind:
        return
    if not head.kind:
        raise bad_request("Object 'Kind' is missing: set `kind` in the document")
    raise bad_request(
        f"{head.api_version or 'no apiVersion'}, Kind={head.kind} in the body does not match the request's "
        f"{kind.api_version}, Kind={kind.kind}"
    )


def plan_creation(
    core: GatewayCore, kind: Kind, namespace: str, body: bytes, now: datetime, uid: str, suffix: Callable[[], str]
) -> Planned:
    """Return the plan that creates an object. `suffix` completes a generateName. Raises ApiError."""
    top, head = read_object(core.kinds, kind, namespace, body)
    name = head.metadata.name
    metadata: dict[str, object] = {**member_object(top, "metadata")}
    if not name and head.metadata.generate_name:
        name = head.metadata.generate_name + suffix()
        metadata["name"] = name
    for transient in _TRANSIENT.intersection(metadata):
        del metadata[transient]
    if kind.namespaced:
        metadata["namespace"] = namespace
    metadata["uid"] = uid
    metadata["creationTimestamp"] = rfc3339(now)
    metadata["generation"] = 1
    document = core.kinds.of(kind).default(raw({**top, "metadata": metadata}))
    address = Address(kind, namespace, name)
    review = _admitted(core, address, document, None)
    if core.get(kind, namespace, name) is not None:
        raise already_exists(kind, name)
    stored = ObjectStored(object=review.document, admission=review.notes)
    write = object_write(address, stored, core.own_sequence(kind, namespace, name), causes=review.causes)
    return Planned(address, review.document, Plan((write,)))


def _admitted(core: GatewayCore, address: Address, document: msgspec.Raw, old: Snapshot | None) -> Review:
    kind, name = address.kind, address.name
    if len(document) > MAX_OBJECT_BYTES:
        raise too_large(MAX_OBJECT_BYTES, "the object")
    try:
        review = open_review(core.kinds.of(kind), document, old, core)
    except WrongTypes as wrong:
        raise _wrong_types(kind, wrong) from wrong
    except (msgspec.DecodeError, DocumentError) as error:
        raise bad_request(f"the object provided cannot be read: {error}") from error
    refusal = namespace_refusal(review)
    if refusal is not None:
        raise refusal
    errors = admit(review)
    if errors:
        # Where a profile had a hand in it, the user must learn of it.
        raise invalid_object(kind, name, errors, review.notes if review.causes else ())
    return review


def existing(core: GatewayCore, kind: Kind, namespace: str, name: str) -> Snapshot:
    """Return an object that must exist. Raises ApiError."""
    found = core.get(kind, namespace, name)
    if found is None:
        raise not_found(kind, name)
    return found


def _writable(snapshot: Snapshot) -> None:
    if snapshot.stored is None:
        kind = snapshot.address.kind
        raise method_not_allowed(
            f"{kind.resource} {snapshot.address.name!r} is made of other services' facts, without a document: it is read only"
        )


def _check_version(core: GatewayCore, snapshot: Snapshot, wanted: str) -> None:
    """Compare a client's resourceVersion with the fold. Above what is folded: TooNew, and the shell waits for it."""
    kind, name = snapshot.address.kind, snapshot.address.name
    if not wanted or wanted == "0":
        return
    if not wanted.isascii() or not wanted.isdigit() or len(wanted) > 20:
        raise bad_request(f"metadata.resourceVersion: Invalid value: {wanted!r}: must be a number")
    version = int(wanted)
    if version > core.folded:
        raise TooNew(version, kind, name)
    if version < snapshot.version:
        raise conflict(kind, name, MODIFIED)


class TooNew(Exception):  # noqa: N818 - the shell waits and plans again
    """A resourceVersion above what this gateway has folded."""

    def __init__(self, version: int, kind: Kind, name: str) -> None:
        super().__init__(str(version))
        self.version = version
        self.answer = timeout(
            f'{kind.resource} "{name}": resourceVersion {version} was not reached within 2 seconds; try again or read it anew'
        )


def plan_replacement(
    core: GatewayCore, kind: Kind, namespace: str, name: str, body: bytes, *, status_only: bool = False
) -> Planned:
    """Return the plan that replaces an object (or its status). Raises ApiError, TooNew."""
    top, head = read_object(core.kinds, kind, namespace, body)
    if head.metadata.name != name:
        raise bad_request(
            f"the name of the object ({head.metadata.name or 'based on the URL'}) does not match the name on the URL ({name})"
        )
    snapshot = existing(core, kind, namespace, name)
    _writable(snapshot)
    _check_version(core, snapshot, head.metadata.resource_version)
    return _update(core, snapshot, raw(top), head.metadata.uid, status_only=status_only)


_PATCHES = {
    "application/merge-patch+json": merge_patch,
    "application/json-patch+json": json_patch,
    "application/strategic-merge-patch+json": strategic_merge_patch,
}
PATCH_TYPES = tuple(_PATCHES)


def plan_patch(
    core: GatewayCore, kind: Kind, namespace: str, name: str, patch_type: str, patch: bytes, *, status_only: bool = False
) -> Planned:
    """Return the plan that a patch leads to. The patch applies to the object as the API shows it. Raises ApiError, TooNew."""
    snapshot = existing(core, kind, namespace, name)
    _writable(snapshot)
    try:
        patched = _PATCHES[patch_type](msgspec.Raw(snapshot.document), msgspec.Raw(patch))
        top = members(patched)
        head = _HEAD.decode(patched)
        given = _patched_version(patch_type, patch)
    except PatchTestError as error:
        raise invalid_patch(kind, name, str(error)) from error
    except (DocumentError, PatchError) as error:
        raise bad_request(f"the patch cannot be applied: {error}") from error
    except msgspec.ValidationError as error:
        raise _wrong_types(kind, WrongTypes(type_error(error))) from error
    except UnicodeDecodeError as error:
        raise bad_request(f"the patch is not UTF-8: {error}") from error
    _check_version(core, snapshot, given)
    if head.metadata.name != name or (kind.namespaced and head.metadata.namespace != namespace):
        raise bad_request("a patch cannot change the name or the namespace of an object")
    _check_kind(core.kinds, kind, head)
    return _update(core, snapshot, raw(top), head.metadata.uid, status_only=status_only)


def invalid_patch(kind: Kind, name: str, why: str) -> ApiError:
    """422: a test in the patch did not hold, or its path is not there."""
    return ApiError(422, "Invalid", f'the patch of {kind.resource} "{name}" cannot be applied: {why}')


def _patched_version(patch_type: str, patch: bytes) -> str:
    """Return the resourceVersion that the patch itself states: only then it is a condition."""
    patch.decode()
    if patch_type == "application/json-patch+json" or not is_object(patch):
        return ""
    return _HEAD.decode(raw({"metadata": raw(_version_only(patch))})).metadata.resource_version


def _version_only(patch: bytes) -> Members:
    metadata = member_object(members(patch), "metadata")
    version = metadata.get("resourceVersion")
    return {"resourceVersion": version} if version is not None and bytes(version) != b"null" else {}


def _update(core: GatewayCore, snapshot: Snapshot, written: msgspec.Raw, uid: str, *, status_only: bool) -> Planned:
    stored = snapshot.stored
    assert stored is not None
    address = snapshot.address
    kind, name = address.kind, address.name
    if uid and uid != stored.meta.uid:
        raise conflict(kind, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored.meta.uid}")
    if status_only:
        document = _with_status_of(stored.raw, written)
    else:
        document = _kept_metadata(without_overlay(written, stored.raw, snapshot.overlay), stored.raw)
    review = _admitted(core, address, document, snapshot)
    document = _with_generation(review.document, stored.raw, stored.meta.generation)
    if same_json(document, stored.raw):
        return Planned(address, document, None, snapshot)
    if stored.meta.deletion_timestamp is not None:
        added = set(review.view.metadata.finalizers) - set(stored.meta.finalizers)
        if added:
            raise forbidden(kind, name, f"no new finalizers can be added if the object is being deleted: {sorted(added)}")
    payload = ObjectStored(object=document, admission=review.notes)
    plan = Plan((object_write(address, payload, stored.sequence, causes=(f"LOG:{stored.sequence}", *review.causes)),))
    return Planned(address, document, plan, snapshot)


def _with_status_of(stored: msgspec.Raw, written: msgspec.Raw) -> msgspec.Raw:
    top = members(stored)
    given = members(written).get("status")
    if given is None:
        top.pop("status", None)
    else:
        top["status"] = given
    return raw(top)


_KEPT = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace")


def _kept_metadata(document: msgspec.Raw, stored: msgspec.Raw) -> msgspec.Raw:
    """Members of metadata that no writer changes."""
    top = members(document)
    metadata, before = member_object(top, "metadata"), member_object(members(stored), "metadata")
    for name in _KEPT:
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    put_or_drop(top, "metadata", metadata)
    return raw(top)


def _with_generation(document: msgspec.Raw, stored: msgspec.Raw, generation: int) -> msgspec.Raw:
    """`generation` counts changes of everything but metadata and status."""
    if same_json(spec_of(document), spec_of(stored)):
        return document
    top = members(document)
    metadata = member_object(top, "metadata")
    metadata["generation"] = raw(generation + 1)
    top["metadata"] = raw(metadata)
    return raw(top)


class DeletionRequest(msgspec.Struct, frozen=True):
    """What a DELETE asks for: grace period, and preconditions on uid and resourceVersion."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""


def plan_deletion(core: GatewayCore, kind: Kind, namespace: str, name: str, wish: DeletionRequest, now: datetime) -> Planned:
    """Return the plan that ends an object, or marks it as ending. Raises ApiError, TooNew."""
    snapshot = existing(core, kind, namespace, name)
    _writable(snapshot)
    stored = snapshot.stored
    assert stored is not None
    if wish.uid and wish.uid != stored.meta.uid:
        why = f"Precondition failed: UID in precondition: {wish.uid}, UID in object meta: {stored.meta.uid}"
        raise conflict(kind, name, why)
    _check_version(core, snapshot, wish.resource_version)
    refusal = namespace_deletion_refusal(snapshot) or quota_deletion_refusal(snapshot, core)
    if refusal is not None:
        raise refusal
    return Planned(snapshot.address, stored.raw, deletion(snapshot, now, wish.grace_period_seconds), snapshot)

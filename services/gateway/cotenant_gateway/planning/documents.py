"""The start of every write request: read the document, find the object, check its version, admit what will be stored.

In: the read model and the document's bytes. Out: an admitted document, or an ApiError.
"""

from __future__ import annotations

import msgspec

from cotenant.api.definitions import Registry
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import AnyObject
from cotenant.api.snapshots import Address, Snapshot
from cotenant.api.splices import DocumentError, Members, member_object, members, raw
from cotenant.log.plans import Plan
from cotenant_gateway.admission.chain import AdmissionRules, admit
from cotenant_gateway.admission.namespaces import namespace_refusal
from cotenant_gateway.admission.review import Review, WrongTypes, open_review, type_error
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import (
    MODIFIED,
    ApiError,
    bad_request,
    conflict,
    invalid_object,
    method_not_allowed,
    not_found,
    timeout,
    too_large,
)

MAX_OBJECT_BYTES = 768 * 1024
HEAD = msgspec.json.Decoder(AnyObject)


class Planned(msgspec.Struct, frozen=True):
    """What to store for a request; `plan` is None if nothing changes. `document` is the resulting object."""

    address: Address
    document: msgspec.Raw
    plan: Plan | None
    was: Snapshot | None = None
    warnings: tuple[str, ...] = ()
    """Warnings for the writer, beside the object."""


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
        head = HEAD.decode(body)
    except msgspec.ValidationError as error:
        head = _head_without_nulls(kind, top, error)
    check_kind(kinds, kind, head)
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
        return HEAD.decode(raw(top))
    except (DocumentError, msgspec.ValidationError):
        raise wrong_types(kind, WrongTypes(wrong)) from error


def wrong_types(kind: Kind, wrong: WrongTypes) -> ApiError:
    """400: a field has another JSON type than the kind's."""
    message = f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {wrong.error}'
    return bad_request(message, (wrong.error,))


def check_kind(kinds: Registry, kind: Kind, head: AnyObject) -> None:
    """Refuse a document of another kind than the path's. Raises ApiError."""
    if kinds.type(head.api_version, head.kind) is kind:
        return
    if not head.kind:
        raise bad_request("Object 'Kind' is missing: set `kind` in the document")
    raise bad_request(
        f"{head.api_version or 'no apiVersion'}, Kind={head.kind} in the body does not match the request's "
        f"{kind.api_version}, Kind={kind.kind}"
    )


def admitted(
    core: GatewayCore, address: Address, document: msgspec.Raw, old: Snapshot | None, rules: AdmissionRules | None = None
) -> Review:
    """Return the review of a document after admission. `old` is the object as it is; `rules`: those of a subresource. Raises
    ApiError."""
    kind, name = address.kind, address.name
    if len(document) > MAX_OBJECT_BYTES:
        raise too_large(MAX_OBJECT_BYTES, "the object")
    try:
        review = open_review(core.kinds.of(kind), document, old, core)
    except WrongTypes as wrong:
        raise wrong_types(kind, wrong) from wrong
    except (msgspec.DecodeError, DocumentError) as error:
        raise bad_request(f"the object provided cannot be read: {error}") from error
    refusal = namespace_refusal(review)
    if refusal is not None:
        raise refusal
    try:
        errors = admit(review, rules)
    except DocumentError as error:
        # A member outside the kind's view may have another type than a mutator needs.
        raise bad_request(f"the object provided cannot be read: {error}") from error
    if errors:
        # If a profile changed it, the user gets a warning.
        raise invalid_object(kind, name, errors, review.notes if review.causes else ())
    return review


def existing(core: GatewayCore, kind: Kind, namespace: str, name: str) -> Snapshot:
    """Return an object that must exist. Raises ApiError."""
    found = core.get(kind, namespace, name)
    if found is None:
        raise not_found(kind, name)
    return found


def check_writable(snapshot: Snapshot) -> None:
    """Refuse a write to an object without a document (405). Raises ApiError."""
    if snapshot.stored is None:
        kind = snapshot.address.kind
        raise method_not_allowed(
            f"{kind.resource} {snapshot.address.name!r} is derived from other services' facts, without a document: read-only"
        )


def check_version(core: GatewayCore, snapshot: Snapshot, wanted: str) -> None:
    """Compare a client's resourceVersion with the fold. Above the folded sequence: TooNew, and the shell waits for it."""
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
            f'{kind.resource} "{name}": resourceVersion {version} was not reached within 2 seconds; try again or read it again'
        )

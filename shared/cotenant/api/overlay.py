"""Additions of other services' facts to an object's document: overlaid for reading, removed from writes.

In: the document and an `Overlay`. Out: the composed JSON with its resourceVersion; or, for a write by someone who
read the composed object, the document without the overlay's additions (so that a `get`, edit, `replace` does not
store other services' facts as if the user had declared them).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.edits import same_json
from cotenant.api.splices import (
    EMPTY_OBJECT,
    Members,
    elements,
    is_array,
    is_object,
    member_object,
    members,
    put_or_drop,
    raw,
)


class Overlay(msgspec.Struct, frozen=True, kw_only=True):
    """Additions to a document."""

    top: Mapping[str, msgspec.Raw] = {}
    """Top-level members that are set, for kinds without a spec."""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    spec: Mapping[str, msgspec.Raw] = {}
    """Members of spec that are set."""
    taints: tuple[Mapping[str, str], ...] = ()
    """Appended to spec.taints (nodes)."""
    status: Mapping[str, msgspec.Raw] = {}
    """Members of status that are set."""
    merged_status: Mapping[str, Mapping[str, str]] = {}
    """Text maps in status that are merged member by member (capacity, allocatable)."""
    conditions: tuple[Mapping[str, str], ...] = ()
    """Conditions in status, replacing those of the same type."""
    metadata: Mapping[str, str | int] = {}
    """Metadata of objects without a document (name, uid, creationTimestamp)."""
    head: Mapping[str, msgspec.Raw] = {}
    """Top-level members of objects without a document. Where there is one, members of its `spec` are set as those of `spec`.
    """
    fields: Mapping[str, str] = {}
    """Values for field selectors that differ from the document's."""
    uid: str = ""

    @property
    def empty(self) -> bool:
        return self == NO_OVERLAY


NO_OVERLAY = Overlay()


def composed_document(document: msgspec.Raw | None, overlay: Overlay, version: int, created: str = "") -> bytes:
    """Return the object as the API shows it; `created`: the creationTimestamp of one without a document."""
    top = members(document) if document is not None else dict(overlay.head)
    metadata = member_object(top, "metadata")
    if document is None:
        for name, value in overlay.metadata.items():
            metadata[name] = raw(value)
        if created:
            metadata["creationTimestamp"] = raw(created)
    elif overlay.head:
        top["spec"] = raw({**member_object(top, "spec"), **member_object(overlay.head, "spec")})
    metadata["resourceVersion"] = msgspec.Raw(b'"%d"' % version)
    if overlay is not NO_OVERLAY:
        _lay_texts(metadata, "labels", overlay.labels)
        _lay_texts(metadata, "annotations", overlay.annotations)
        _lay_spec(top, overlay)
        _lay_status(top, overlay)
        top.update(overlay.top)
    return msgspec.json.encode({**top, "metadata": metadata})


def _lay_texts(parent: Members, name: str, texts: Mapping[str, str]) -> None:
    if texts:
        merged = member_object(parent, name)
        merged.update((key, raw(value)) for key, value in texts.items())
        parent[name] = raw(merged)


def _lay_spec(top: Members, overlay: Overlay) -> None:
    if not overlay.spec and not overlay.taints:
        return
    spec = member_object(top, "spec")
    spec.update(overlay.spec)
    if overlay.taints:
        own = _listed(spec, "taints")
        known = {_taint_identity(members(taint)) for taint in own if is_object(taint)}
        added = [raw(taint) for taint in overlay.taints if (taint["key"], taint.get("effect", "")) not in known]
        spec["taints"] = raw([*own, *added])
    top["spec"] = raw(spec)


def _lay_status(top: Members, overlay: Overlay) -> None:
    if not (overlay.status or overlay.merged_status or overlay.conditions):
        return
    status = member_object(top, "status")
    status.update(overlay.status)
    for name, texts in overlay.merged_status.items():
        _lay_texts(status, name, texts)
    if overlay.conditions:
        replaced = {condition["type"] for condition in overlay.conditions}
        kept = [
            condition
            for condition in _listed(status, "conditions")
            if is_object(condition) and _text(members(condition), "type") not in replaced
        ]
        status["conditions"] = raw([*kept, *overlay.conditions])
    top["status"] = raw(status)


def _listed(parent: Members, name: str) -> list[msgspec.Raw]:
    value = parent.get(name)
    return elements(value) if value is not None and is_array(value) else []


def _text(parent: Members, name: str) -> str:
    value = parent.get(name)
    if value is None:
        return ""
    decoded: object = msgspec.json.decode(value)
    return decoded if isinstance(decoded, str) else ""


def _taint_identity(taint: Members) -> tuple[str, str]:
    return _text(taint, "key"), _text(taint, "effect")


def without_overlay(written: msgspec.Raw, stored: msgspec.Raw, overlay: Overlay) -> msgspec.Raw:
    """Return the writer's own document: `written` without the values that `overlay` shows and `stored` does not hold.

    `status` is taken from `stored`: it is changed through the status subresource only.
    """
    top, old = members(written), members(stored)
    metadata, old_metadata = member_object(top, "metadata"), member_object(old, "metadata")
    metadata.pop("resourceVersion", None)
    _take_off_texts(metadata, old_metadata, "labels", overlay.labels)
    _take_off_texts(metadata, old_metadata, "annotations", overlay.annotations)
    top["metadata"] = raw(metadata)
    if overlay.spec or overlay.taints:
        spec, old_spec = member_object(top, "spec"), member_object(old, "spec")
        for name, value in overlay.spec.items():
            if name in spec and bytes(spec[name]).strip() == bytes(value):
                _restore(spec, old_spec, name)
        _take_off_taints(spec, old_spec, overlay)
        top["spec"] = raw(spec)
    for name, value in overlay.top.items():
        if name in top and (bytes(top[name]).strip() == bytes(value) or same_json(top[name], value)):
            _restore(top, old, name)
    if overlay.head:
        _take_off_head(top, old, overlay)
    _restore(top, old, "status")
    return raw(top)


def _take_off_head(top: Members, old: Members, overlay: Overlay) -> None:
    spec, old_spec = member_object(top, "spec"), member_object(old, "spec")
    for name, value in member_object(overlay.head, "spec").items():
        if name in spec and same_json(spec[name], value):
            _restore(spec, old_spec, name)
    put_or_drop(top, "spec", spec)


def _restore(target: Members, old: Mapping[str, msgspec.Raw], name: str) -> None:
    if name in old:
        target[name] = old[name]
    else:
        target.pop(name, None)


def _take_off_texts(target: Members, old: Members, name: str, texts: Mapping[str, str]) -> None:
    if not texts or name not in target:
        return
    given, before = member_object(target, name), member_object(old, name)
    for key, value in texts.items():
        if key in given and _text(given, key) == value:
            _restore(given, before, key)
    put_or_drop(target, name, given)


def _take_off_taints(spec: Members, old_spec: Members, overlay: Overlay) -> None:
    if not overlay.taints or "taints" not in spec:
        return
    before = {_taint_identity(members(taint)) for taint in _listed(old_spec, "taints") if is_object(taint)}
    added = {(taint["key"], taint.get("effect", "")) for taint in overlay.taints} - before
    kept = [taint for taint in _listed(spec, "taints") if not is_object(taint) or _taint_identity(members(taint)) not in added]
    if kept:
        spec["taints"] = raw(kept)
    else:
        spec.pop("taints")


def head_of(api_version: str, kind: str, spec: object | None = None) -> dict[str, msgspec.Raw]:
    """Return the top-level members of an object that has no document."""
    head = {"apiVersion": raw(api_version), "kind": raw(kind), "metadata": EMPTY_OBJECT}
    if spec is not None:
        head["spec"] = raw(spec)
    return head

"""The gateway's own edits of `metadata`; every other byte of the document is unchanged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from cotenant.api.splices import Members, member_object, members, raw
from cotenant.api.times import rfc3339
from cotenant.model.bounds import saturated_seconds


def with_metadata(document: msgspec.Raw, changes: Mapping[str, object | None]) -> msgspec.Raw:
    """Return the document with members of metadata set, or removed where the value is None."""
    return _with_members(document, "metadata", changes)


def with_annotation(document: msgspec.Raw, key: str, value: str) -> msgspec.Raw:
    """Return the document with one annotation set."""
    top = members(document)
    metadata = member_object(top, "metadata")
    annotations = member_object(metadata, "annotations")
    annotations[key] = raw(value)
    metadata["annotations"] = raw(annotations)
    top["metadata"] = raw(metadata)
    return raw(top)


def with_status(document: msgspec.Raw, changes: Mapping[str, object | None]) -> msgspec.Raw:
    """Return the document with members of status set, or removed where the value is None."""
    return _with_members(document, "status", changes)


def _with_members(document: msgspec.Raw, of: str, changes: Mapping[str, object | None]) -> msgspec.Raw:
    top = members(document)
    changed = member_object(top, of)
    for name, value in changes.items():
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = raw(value)
    top[of] = raw(changed)
    return raw(top)


def marked_for_deletion(document: msgspec.Raw, now: datetime, grace_seconds: int) -> msgspec.Raw:
    """Return the document with deletionTimestamp (the end of the grace period, as in Kubernetes) and the grace period."""
    until = rfc3339(now + timedelta(seconds=saturated_seconds(grace_seconds)))
    return with_metadata(document, {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace_seconds})


def same_json(one: bytes | msgspec.Raw, other: bytes | msgspec.Raw) -> bool:
    """Return whether two documents are equal; white space, the order of members and the spelling of numbers do not
    count."""
    first, second = bytes(one), bytes(other)
    if first == second:
        return True
    left, right = json.loads(first), json.loads(second)
    return bool(left == right) and _same_types(left, right)


def _same_types(left: object, right: object) -> bool:
    """Distinguish true from 1, which are equal in Python."""
    if isinstance(left, dict) and isinstance(right, dict):
        return all(_same_types(value, right[name]) for name, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return all(_same_types(*both) for both in zip(left, right, strict=True))
    return isinstance(left, bool) == isinstance(right, bool)


def spec_of(document: msgspec.Raw) -> bytes:
    """Return the part whose changes `generation` counts: everything but metadata and status."""
    top: Members = members(document)
    return msgspec.json.encode({name: value for name, value in top.items() if name not in ("metadata", "status")})

"""Merge patch (RFC 7396): members of the patch replace, `null` removes, arrays are replaced whole."""

from __future__ import annotations

import msgspec

from cotenant.api.patching.errors import MAX_DEPTH, PatchError, Work
from cotenant.api.splices import (
    EMPTY_OBJECT,
    is_null,
    is_object,
    members,
    raw,
)


def merge_patch(document: msgspec.Raw, patch: msgspec.Raw) -> msgspec.Raw:
    """Return the document after an RFC 7396 merge patch. Raises DocumentError, PatchError, PatchTooLargeError."""
    return _merged(document, patch, Work(), 0)


def _merged(document: msgspec.Raw, patch: msgspec.Raw, work: Work, depth: int) -> msgspec.Raw:
    if not is_object(patch):
        return patch
    work.spend(len(document) + len(patch))
    if depth > MAX_DEPTH:
        raise PatchError(f"the patch is nested deeper than {MAX_DEPTH} levels")
    target = members(document) if is_object(document) else {}
    for name, value in members(patch).items():
        if is_null(value):
            target.pop(name, None)
        elif is_object(value):
            target[name] = _merged(target.get(name, EMPTY_OBJECT), value, work, depth + 1)
        else:
            target[name] = value
    return raw(target)

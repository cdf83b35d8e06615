"""JSON patch (RFC 6902): add, remove, replace, move, copy, test, at most 10,000 operations.

What the operations do not name stays byte for byte.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from cotenant.api.patching.errors import MAX_DEPTH, PatchError, PatchTestError
from cotenant.api.splices import (
    NULL,
    DocumentError,
    elements,
    is_array,
    is_object,
    members,
    raw,
)

MAX_OPERATIONS = 10_000


class _Operation(msgspec.Struct, frozen=True):
    op: str
    path: str
    source: str = msgspec.field(default="", name="from")
    value: msgspec.Raw = msgspec.Raw(b"")


_OPERATIONS = msgspec.json.Decoder(list[_Operation])


def json_patch(document: msgspec.Raw, patch: msgspec.Raw) -> msgspec.Raw:
    """Return the document after an RFC 6902 patch. Raises DocumentError, PatchError, PatchTestError."""
    try:
        operations = _OPERATIONS.decode(patch)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise DocumentError(f"a JSON patch is an array of operations: {error}") from error
    if len(operations) > MAX_OPERATIONS:
        raise PatchError(f"the patch has {len(operations)} operations: at most {MAX_OPERATIONS} are accepted")
    for index, operation in enumerate(operations):
        try:
            document = _apply(document, operation)
        except PatchError as error:
            raise type(error)(f"operation {index} ({operation.op} {operation.path}): {error}") from error
    return document


def _apply(document: msgspec.Raw, operation: _Operation) -> msgspec.Raw:
    path = _pointer(operation.path)
    if operation.op in ("add", "replace", "test") and not bytes(operation.value):
        raise PatchError("needs a value")
    if operation.op == "add":
        return _edit(document, path, operation.value, insert=True)
    if operation.op == "replace":
        _read(document, path)
        return _edit(document, path, operation.value, insert=False)
    if operation.op == "remove":
        _read(document, path)
        return _edit(document, path, None, insert=False)
    if operation.op == "test":
        found = _read(document, path)
        if json.loads(bytes(found)) != json.loads(bytes(operation.value)):
            raise PatchTestError(f"the value is {bytes(found)[:200].decode(errors='replace')}")
        return document
    if operation.op in ("move", "copy"):
        origin = _pointer(operation.source)
        value = _read(document, origin)
        if operation.op == "move":
            if path[: len(origin)] == origin and path != origin:
                raise PatchError("cannot move a value into itself")
            document = _edit(document, origin, None, insert=False)
        return _edit(document, path, value, insert=True)
    raise PatchError("unknown operation: expected add, remove, replace, move, copy or test")


def _pointer(text: str) -> list[str]:
    if not text:
        return []
    if not text.startswith("/"):
        raise PatchError(f"path {text!r} must start with '/'")
    path = [token.replace("~1", "/").replace("~0", "~") for token in text[1:].split("/")]
    if len(path) > MAX_DEPTH:
        raise PatchError(f"the path is deeper than {MAX_DEPTH} levels")
    return path


def _index(token: str, length: int, *, insert: bool) -> int:
    if token == "-" and insert:
        return length
    if not token.isascii() or not token.isdigit() or (len(token) > 1 and token[0] == "0"):
        raise PatchTestError(f"{token!r} is not an array index")
    index = int(token) if len(token) < 10 else length + 1
    if index > length or (index == length and not insert):
        raise PatchTestError(f"index {token} is out of the array's {length} elements")
    return index


def _read(document: msgspec.Raw, path: Sequence[str]) -> msgspec.Raw:
    for token in path:
        if is_object(document):
            inner = members(document).get(token)
            if inner is None:
                raise PatchTestError(f"no member {token!r} on the path")
            document = inner
        elif is_array(document):
            listed = elements(document)
            document = listed[_index(token, len(listed), insert=False)]
        else:
            raise PatchTestError(f"no member {token!r} on the path")
    return document


def _edit(document: msgspec.Raw, path: Sequence[str], value: msgspec.Raw | None, *, insert: bool) -> msgspec.Raw:
    if not path:
        return value if value is not None else NULL
    token, rest = path[0], path[1:]
    if is_object(document):
        target = members(document)
        if rest:
            if token not in target:
                raise PatchTestError(f"no member {token!r} on the path")
            target[token] = _edit(target[token], rest, value, insert=insert)
        elif value is None:
            target.pop(token, None)
        else:
            target[token] = value
        return raw(target)
    if is_array(document):
        listed = elements(document)
        index = _index(token, len(listed), insert=insert and not rest)
        if rest:
            listed[index] = _edit(listed[index], rest, value, insert=insert)
        elif value is None:
            del listed[index]
        elif insert:
            listed.insert(index, value)
        else:
            listed[index] = value
        return raw(listed)
    raise PatchTestError(f"no member {token!r} on the path")

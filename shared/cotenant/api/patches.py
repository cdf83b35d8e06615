"""The three PATCH types over verbatim documents.

* merge patch (RFC 7396): members of the patch replace, `null` removes, arrays are replaced whole;
* JSON patch (RFC 6902): add, remove, replace, move, copy, test, at most 10,000 operations;
* strategic merge patch: as merge patch, but the arrays that Kubernetes declares as maps are merged by their key
  (`containers` by name, ...), with `$patch: delete|replace`, `$retainKeys` and `$deleteFromPrimitiveList/...`; the
  order hints `$setElementOrder/...` order merged arrays.

In: the document and the patch as JSON bytes. Out: the new document; what the patch does not name stays byte for byte.
Source of the merge keys: the `patchMergeKey` tags of Kubernetes' core/v1 types.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from cotenant.api.splices import (
    EMPTY_OBJECT,
    NULL,
    DocumentError,
    Members,
    elements,
    is_array,
    is_null,
    is_object,
    members,
    raw,
)

MAX_OPERATIONS = 10_000
MAX_DEPTH = 100

_MERGE_KEYS: dict[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "ports": ("containerPort", "port"),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "topologySpreadConstraints": ("topologyKey",),
    "resourceClaims": ("name",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "addresses": ("type",),
}
"""Array-valued fields whose elements are merged by a key; the first of the keys that the patch's element has is used."""

_PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})


class PatchError(ValueError):
    """The patch cannot be applied; the message says which part."""


class PatchTestError(PatchError):
    """A JSON patch's `test` did not hold, or a path that it needs does not exist."""


def merge_patch(document: msgspec.Raw, patch: msgspec.Raw, depth: int = 0) -> msgspec.Raw:
    """Return the document after an RFC 7396 merge patch. Raises DocumentError, PatchError."""
    if not is_object(patch):
        return patch
    if depth > MAX_DEPTH:
        raise PatchError(f"the patch is nested deeper than {MAX_DEPTH} levels")
    target = members(document) if is_object(document) else {}
    for name, value in members(patch).items():
        if is_null(value):
            target.pop(name, None)
        elif is_object(value):
            target[name] = merge_patch(target.get(name, EMPTY_OBJECT), value, depth + 1)
        else:
            target[name] = value
    return raw(target)


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


_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


def strategic_merge_patch(document: msgspec.Raw, patch: msgspec.Raw, depth: int = 0) -> msgspec.Raw:
    """Return the document after a Kubernetes strategic merge patch. Raises DocumentError, PatchError."""
    if not is_object(patch):
        return patch
    if depth > MAX_DEPTH:
        raise PatchError(f"the patch is nested deeper than {MAX_DEPTH} levels")
    changes = members(patch)
    directive = _text(changes.pop(_PATCH, None))
    target = members(document) if is_object(document) and directive != "replace" else {}
    if directive == "delete":
        return EMPTY_OBJECT
    if directive not in ("", "replace", "merge"):
        raise PatchError(f"unknown directive $patch: {directive}")
    retained = changes.pop(_RETAIN, None)
    if retained is not None:
        kept = {_text(name) for name in elements(retained)}
        target = {name: value for name, value in target.items() if name in kept}
    orders: dict[str, msgspec.Raw] = {}
    for name, value in changes.items():
        if name.startswith(_ORDER):
            orders[name.removeprefix(_ORDER)] = value
        elif name.startswith(_DELETE_PRIMITIVES):
            _delete_primitives(target, name.removeprefix(_DELETE_PRIMITIVES), value)
        elif is_null(value):
            target.pop(name, None)
        elif is_object(value):
            target[name] = strategic_merge_patch(target.get(name, EMPTY_OBJECT), value, depth + 1)
        elif is_array(value):
            target[name] = _merge_arrays(name, target.get(name), value, depth)
        else:
            target[name] = value
    for name, order in orders.items():
        if name in target:
            target[name] = _ordered(name, target[name], order)
    return raw(target)


def _text(value: msgspec.Raw | None) -> str:
    if value is None:
        return ""
    try:
        return msgspec.json.decode(value, type=str)
    except msgspec.MsgspecError as error:
        raise PatchError(f"a directive must be text: {error}") from error


def _delete_primitives(target: Members, name: str, listed: msgspec.Raw) -> None:
    if name in target and is_array(target[name]):
        gone = {bytes(item).strip() for item in elements(listed)}
        target[name] = raw([item for item in elements(target[name]) if bytes(item).strip() not in gone])


def _merge_key(name: str, items: Sequence[msgspec.Raw]) -> str:
    for key in _MERGE_KEYS.get(name, ()):
        if items and all(is_object(item) for item in items):
            plain = [found for found in map(members, items) if _text_of_directive(found) != "replace"]
            if plain and all(key in found for found in plain):
                return key
    return ""


def _text_of_directive(item: Members) -> str:
    return _text(item[_PATCH]) if _PATCH in item else ""


def _merge_arrays(name: str, old: msgspec.Raw | None, patch: msgspec.Raw, depth: int) -> msgspec.Raw:
    changes = elements(patch)
    present = elements(old) if old is not None and is_array(old) else []
    if name in _PRIMITIVE_SETS:
        known = {bytes(item).strip() for item in present}
        return raw([*present, *(item for item in changes if bytes(item).strip() not in known)])
    if any(is_object(item) and _text_of_directive(members(item)) == "replace" for item in changes):
        return raw([item for item in changes if not (is_object(item) and _PATCH in members(item))])
    key = _merge_key(name, changes)
    if not key:
        return patch
    merged = list(present)
    for change in changes:
        change_members = members(change)
        identity = bytes(change_members[key]).strip()
        place = next(
            (
                index
                for index, item in enumerate(merged)
                if is_object(item) and bytes(members(item).get(key, NULL)).strip() == identity
            ),
            None,
        )
        if _text_of_directive(change_members) == "delete":
            if place is not None:
                del merged[place]
        elif place is None:
            merged.append(strategic_merge_patch(EMPTY_OBJECT, change, depth + 1))
        else:
            merged[place] = strategic_merge_patch(merged[place], change, depth + 1)
    return raw(merged)


def _ordered(name: str, listed: msgspec.Raw, order: msgspec.Raw) -> msgspec.Raw:
    if not is_array(listed) or not is_array(order):
        return listed
    wanted = elements(order)
    key = _merge_key(name, wanted)

    def identity(item: msgspec.Raw) -> bytes:
        return bytes(members(item).get(key, NULL)).strip() if key and is_object(item) else bytes(item).strip()

    ranks = {identity(item): rank for rank, item in enumerate(wanted)}
    # Elements that the order does not name keep their place after the ones before them.
    placed: list[tuple[int, int, msgspec.Raw]] = []
    last = -1
    for index, item in enumerate(elements(listed)):
        last = ranks.get(identity(item), last)
        placed.append((last, index, item))
    return raw([item for _, _, item in sorted(placed, key=lambda entry: entry[:2])])

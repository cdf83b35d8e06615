"""Strategic merge patch: as a merge patch, but the arrays that Kubernetes declares as maps are merged by their key
(`containers` by name, ...), with `$patch: delete|replace`, `$retainKeys` and `$deleteFromPrimitiveList/...`; the order hints
`$setElementOrder/...` order merged arrays. Source of the merge keys: the `patchMergeKey` tags of Kubernetes' core/v1 types.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from cotenant.api.patching.errors import MAX_DEPTH, PatchError, Work
from cotenant.api.splices import (
    EMPTY_OBJECT,
    NULL,
    Members,
    elements,
    is_array,
    is_null,
    is_object,
    members,
    raw,
)

MERGE_KEYS: dict[str, tuple[str, ...]] = {
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
PRIMITIVE_SETS = frozenset({"finalizers", "podCIDRs"})
_PATCH = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_PRIMITIVES = "$deleteFromPrimitiveList/"


def strategic_merge_patch(document: msgspec.Raw, patch: msgspec.Raw) -> msgspec.Raw:
    """Return the document after a Kubernetes strategic merge patch. Raises DocumentError, PatchError, PatchTooLargeError."""
    return _merged(document, patch, Work(), 0)


def _merged(document: msgspec.Raw, patch: msgspec.Raw, work: Work, depth: int) -> msgspec.Raw:
    if not is_object(patch):
        return patch
    work.spend(len(document) + len(patch))
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
            target[name] = _merged(target.get(name, EMPTY_OBJECT), value, work, depth + 1)
        elif is_array(value):
            target[name] = _merge_arrays(name, target.get(name), value, work, depth)
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
    for key in MERGE_KEYS.get(name, ()):
        if items and all(is_object(item) for item in items):
            plain = [found for found in map(members, items) if _text_of_directive(found) != "replace"]
            if plain and all(key in found for found in plain):
                return key
    return ""


def _text_of_directive(item: Members) -> str:
    return _text(item[_PATCH]) if _PATCH in item else ""


def _merge_arrays(name: str, old: msgspec.Raw | None, patch: msgspec.Raw, work: Work, depth: int) -> msgspec.Raw:
    changes = elements(patch)
    present = elements(old) if old is not None and is_array(old) else []
    if name in PRIMITIVE_SETS:
        known = {bytes(item).strip() for item in present}
        return raw([*present, *(item for item in changes if bytes(item).strip() not in known)])
    if any(is_object(item) and _text_of_directive(members(item)) == "replace" for item in changes):
        return raw([item for item in changes if not (is_object(item) and _PATCH in members(item))])
    key = _merge_key(name, changes)
    if not key:
        return patch
    merged: list[msgspec.Raw | None] = [*present]
    places: dict[bytes, deque[int]] = {}
    """By the key's value, the elements that have it, first things first."""
    for index, item in enumerate(present):
        if is_object(item):
            places.setdefault(bytes(members(item).get(key, NULL)).strip(), deque()).append(index)
    for change in changes:
        change_members = members(change)
        identity = bytes(change_members[key]).strip()
        known_at = places.setdefault(identity, deque())
        if _text_of_directive(change_members) == "delete":
            if known_at:
                merged[known_at.popleft()] = None
        elif known_at:
            before = merged[known_at[0]]
            assert before is not None
            merged[known_at[0]] = _merged(before, change, work, depth + 1)
        else:
            known_at.append(len(merged))
            merged.append(_merged(EMPTY_OBJECT, change, work, depth + 1))
    return raw([item for item in merged if item is not None])


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

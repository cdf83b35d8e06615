"""A copy of a core that shares what cannot change: to be asked questions that must leave the live one as it is.

In: a core. Out: one with containers and objects of its own. Frozen structs, texts and numbers are shared, as no core changes
them; that makes the copy ten times as cheap as `copy.deepcopy`, which serves for whatever is known to neither.
"""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from enum import Enum
from types import FunctionType, MethodType
from typing import TypeVar, cast

import msgspec

T = TypeVar("T")
Memo = dict[int, object]
"""Copies by the identity of what they were made from, and a list that keeps the latter alive."""

ATOMS = frozenset({int, float, str, bytes, bool, type(None), FunctionType, type, frozenset})


def copied(core: T) -> T:
    """Copy a core."""
    return cast("T", _copied(core, {}))


def _copied(value: object, memo: Memo) -> object:
    kind = type(value)
    if kind in ATOMS or isinstance(value, Enum) or (isinstance(value, msgspec.Struct) and value.__struct_config__.frozen):
        return value
    found = memo.get(id(value), memo)
    if found is not memo:
        return found
    if kind is tuple:
        return _tuple(cast("tuple[object, ...]", value), memo)
    if kind is MethodType:
        method = cast("MethodType", value)
        return MethodType(method.__func__, _copied(method.__self__, memo))
    if hasattr(value, "__deepcopy__") or not _known(kind):
        return copy.deepcopy(value, memo)
    return _mutable(value, memo)


def _known(kind: type) -> bool:
    plain = kind in (dict, list, set, deque, defaultdict, OrderedDict, Counter)
    return plain or (kind.__module__.startswith("cotenant") and "__reduce__" not in kind.__dict__)


def _tuple(value: tuple[object, ...], memo: Memo) -> object:
    members = tuple(_copied(member, memo) for member in value)
    if all(new is old for new, old in zip(members, value, strict=True)):
        return value
    # Who compares tuples by identity finds one tuple where there was one.
    cast("list[object]", memo.setdefault(0, [])).append(value)
    memo[id(value)] = members
    return members


def _mutable(value: object, memo: Memo) -> object:
    """Copy a container or an object; it is known before its members are, as they may lead back to it."""
    memo.setdefault(0, [])
    cast("list[object]", memo[0]).append(value)
    made: object
    if isinstance(value, defaultdict):
        made = defaultdict(cast("None", _copied(value.default_factory, memo)))
    elif isinstance(value, deque):
        made = deque(maxlen=value.maxlen)
    elif isinstance(value, dict | list | set):
        made = type(value)()
    else:
        made = object.__new__(type(value))
    memo[id(value)] = made
    if isinstance(value, dict):
        # Keys are hashable, so they cannot change either.
        cast("dict[object, object]", made).update({key: _copied(member, memo) for key, member in value.items()})
    elif isinstance(value, list | deque):
        cast("list[object]", made).extend([_copied(member, memo) for member in value])
    elif isinstance(value, set):
        cast("set[object]", made).update(value)
    for name, member in getattr(value, "__dict__", {}).items():
        object.__setattr__(made, name, _copied(member, memo))
    for base in type(value).__mro__:
        for name in base.__dict__.get("__slots__", ()):
            if name != "__weakref__" and hasattr(value, name):
                object.__setattr__(made, name, _copied(getattr(value, name), memo))
    return made

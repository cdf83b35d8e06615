"""Copies of cores, which checks may use freely without changing the core that is in use.

In: a core. Out: one that decides alike, and shares immutable objects with it: frozen structs of only such (events,
payloads, decoded objects, a service's own facts), text, numbers, functions. Containers, the services' own objects and frozen
structs that refer to these are copied; everything else (arrays, weak dictionaries, types with a rule of their own)
`copy.deepcopy` copies. `deepcopy` alone takes ten times as long, most of it for facts.
"""

from __future__ import annotations

import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from datetime import datetime, timedelta
from enum import Enum
from typing import TypeVar, get_args, get_type_hints

import msgspec

T = TypeVar("T")
Memo = dict[int, object]
"""The copies by the original's id, as in `deepcopy`."""
Way = Callable[[object, Memo], object]


def copied(core: T) -> T:
    """Copy a core."""
    memo: Memo = {}
    made = _copy(core, memo)
    assert isinstance(made, type(core))
    return made


def _copy(here: object, memo: Memo) -> object:
    kind = type(here)
    way = _WAYS.get(kind)
    if way is None:
        way = _WAYS[kind] = _way(kind)
    if way is _shared:
        return here
    made = memo.get(id(here))
    if made is None:
        made = way(here, memo)
        memo[id(here)] = made
    return made


def _shared(here: object, _memo: Memo) -> object:
    return here


def _dict(here: object, memo: Memo) -> object:
    assert isinstance(here, dict)
    made: dict[object, object] = {}
    memo[id(here)] = made
    for key, value in here.items():
        made[_copy(key, memo)] = _copy(value, memo)
    return made


def _default_dict(here: object, memo: Memo) -> object:
    assert isinstance(here, defaultdict)
    made: defaultdict[object, object] = defaultdict(here.default_factory)
    memo[id(here)] = made
    for key, value in here.items():
        made[_copy(key, memo)] = _copy(value, memo)
    return made


def _list(here: object, memo: Memo) -> object:
    assert isinstance(here, list)
    made: list[object] = []
    memo[id(here)] = made
    made.extend([_copy(member, memo) for member in here])
    return made


def _tuple(here: object, memo: Memo) -> object:
    assert isinstance(here, tuple)
    made = [_copy(member, memo) for member in here]
    return here if all(old is new for old, new in zip(here, made, strict=True)) else tuple(made)


def _set(here: object, memo: Memo) -> object:
    assert isinstance(here, set)
    return {_copy(member, memo) for member in here}


def _deep(here: object, memo: Memo) -> object:
    return deepcopy(here, memo)


def _object(kind: type) -> Way:
    """How an object of a plain class is copied: its attributes, including slots."""
    slots = [
        member
        for owner in kind.__mro__
        for member in vars(owner).values()
        if isinstance(member, types.MemberDescriptorType)
    ]

    def way(here: object, memo: Memo) -> object:
        made: object = object.__new__(kind)
        memo[id(here)] = made
        own = getattr(here, "__dict__", None)
        if own is not None:
            made.__dict__.update({name: _copy(value, memo) for name, value in own.items()})
        for slot in slots:
            try:
                value = slot.__get__(here, kind)
            except AttributeError:
                # The slot is empty.
                continue
            slot.__set__(made, _copy(value, memo))
        return made

    return way


def _struct(kind: type[msgspec.Struct]) -> Way:
    """How a struct that may change, or refers to something that may, is copied: field by field."""
    fields = kind.__struct_fields__

    def way(here: object, memo: Memo) -> object:
        made = copy(here)
        assert isinstance(made, msgspec.Struct)
        memo[id(here)] = made
        for field in fields:
            msgspec.structs.force_setattr(made, field, _copy(getattr(here, field), memo))
        return made

    return way


def _may_change(kind: type, within: set[type]) -> bool:
    """Whether a struct, or something that it refers to by the types of its fields, may change. Dictionaries and lists in a
    frozen struct are assumed to be immutable, like those of payloads; an unresolvable type counts as mutable.
    """
    if not issubclass(kind, msgspec.Struct):
        return kind is object or (kind.__module__.startswith("cotenant") and not issubclass(kind, (Enum, str, int, tuple)))
    if not kind.__struct_config__.frozen:
        return True
    if kind in within:
        return False
    within.add(kind)
    try:
        hints = get_type_hints(kind)
    except NameError:
        # A type that is imported for type checkers only.
        return True
    fields = (hints[field] for field in kind.__struct_fields__)
    return any(_may_change(each, within) for hint in fields for each in _named_in(hint))


def _named_in(hint: object) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for argument in get_args(hint):
        yield from _named_in(argument)


def _way(kind: type) -> Way:
    if issubclass(kind, Enum):
        return _shared
    if issubclass(kind, msgspec.Struct):
        if not _may_change(kind, set()):
            return _shared
        return _deep if hasattr(kind, "__deepcopy__") else _struct(kind)
    # Objects that define how they are copied, and the standard library's types.
    plain = (
        kind.__module__.startswith("cotenant")
        and not hasattr(kind, "__deepcopy__")
        and not hasattr(kind, "__setstate__")
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__new__ is object.__new__
    )
    return _object(kind) if plain else _deep


_UNCHANGING = (str, int, float, bool, bytes, type(None), frozenset, object, type)
_WAYS: dict[type, Way] = {
    **dict.fromkeys((*_UNCHANGING, datetime, timedelta, msgspec.Raw, types.FunctionType), _shared),
    dict: _dict,
    defaultdict: _default_dict,
    list: _list,
    tuple: _tuple,
    set: _set,
}
"""By type; a type that was not seen before is inspected once."""

"""Sections of the NodeSLO and JSON documents of pods as typed structs.

In: the NodeSLO's spec, or an annotation's text. Out: a frozen struct, or None for a section that is missing or unreadable. Names
match in any case and null counts as absent, as in Koordinator's decoder: `MBAPercent` and `mbaPercent`, `iocfg` and `ioCfg` both
occur. A section is decoded once for each NodeSLO. Bound: that of `by_identity`, and REMEMBERED texts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TypeVar

import msgspec
from msgspec import Struct, inspect

from cotenant.events.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity

REMEMBERED = 256
T = TypeVar("T", bound=Struct)


def decoded(text: str | bytes, kind: type[T]) -> T:
    """A JSON object as a struct. Raises msgspec.MsgspecError; too deep a document is one of these errors."""
    try:
        return msgspec.convert(_spelled(msgspec.json.decode(text), inspect.type_info(kind)), kind)
    except RecursionError as error:
        raise msgspec.DecodeError("the document is nested too deeply") from error


def section(field: str, kind: type[T]) -> Callable[[NodeSLORendered], T | None]:
    """A reader of one section of the spec."""

    @lru_cache(maxsize=REMEMBERED)
    def of_text(spec: bytes) -> T | None:
        try:
            document = _part(spec, field)
            return msgspec.convert(_spelled(document, inspect.type_info(kind)), kind) if document is not None else None
        except (msgspec.MsgspecError, RecursionError):
            return None

    @by_identity
    def read(slo: NodeSLORendered) -> T | None:
        return of_text(bytes(slo.spec))

    return read


def _part(spec: bytes, field: str) -> object:
    """A member of an object, its name in any case; None without it."""
    document = msgspec.json.decode(spec)
    if not isinstance(document, dict):
        return None
    return {str(key).lower(): value for key, value in document.items()}.get(field.lower())


@cache
def _fields(kind: type[Struct]) -> dict[str, tuple[str, inspect.Type]]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {each.encode_name.lower(): (each.encode_name, each.type) for each in info.fields}


def _spelled(value: object, kind: inspect.Type) -> object:
    """The value with the names of the structs that it is to become, without nulls and unknown members."""
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for option in options:
        if isinstance(option, inspect.StructType) and isinstance(value, dict):
            fields = _fields(option.cls)
            named = ((fields.get(str(key).lower()), each) for key, each in value.items())
            return {found[0]: _spelled(each, found[1]) for found, each in named if found is not None and each is not None}
        if isinstance(option, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
            return [_spelled(each, option.item_type) for each in value]
    return value

"""Sections of the NodeSLO and JSON documents of pods as typed structs.

In: the NodeSLO's spec, or an annotation's text. Out: a frozen struct, or None for a section that is missing or unreadable; the
sections that are a dry run. Names match in any case and null counts as absent, as in Koordinator's decoder: `MBAPercent` and
`mbaPercent`, `iocfg` and `ioCfg` both occur. A section is decoded once for each NodeSLO. Bound: that of `by_identity`, and
REMEMBERED texts.

A section with `dryRun: true` is decided by as any other; what its strategies decide is reported and not done.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import TypeVar

import msgspec
from msgspec import Struct, inspect

from cotenant.events.node.resources import NodeSLORendered
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
    """A reader of one section of the spec; of the whole spec where `field` is empty."""

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


THRESHOLD, QOS = "resourceUsedThresholdWithBE", "resourceQOSStrategy"
"""Sections that several strategies share."""
_DRY_RUN = "dryrun"


def is_dry_run(slo: NodeSLORendered | None, field: str) -> bool:
    """Whether a section is a dry run; "" is no section."""
    return bool(field) and slo is not None and field.lower() in _dry_sections(slo)


@by_identity
def _dry_sections(slo: NodeSLORendered) -> frozenset[str]:
    return _dry_sections_of(bytes(slo.spec))


@lru_cache(maxsize=REMEMBERED)
def _dry_sections_of(spec: bytes) -> frozenset[str]:
    try:
        document = msgspec.json.decode(spec)
    except (msgspec.MsgspecError, RecursionError):
        return frozenset()
    if not isinstance(document, dict):
        return frozenset()
    return frozenset(
        str(name).lower()
        for name, part in document.items()
        if isinstance(part, dict) and any(str(key).lower() == _DRY_RUN and value is True for key, value in part.items())
    )


def _part(spec: bytes, field: str) -> object:
    """A member of an object, its name in any case; None without it. The object itself for no name."""
    document: object = msgspec.json.decode(spec)
    if not field:
        return document
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

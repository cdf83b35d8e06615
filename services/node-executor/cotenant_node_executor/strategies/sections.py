"""Sections of the NodeSLO and JSON documents of pods as typed structs.

In: the NodeSLO's spec, or an annotation's text. Out: a frozen struct. Names match in any case, as in Koordinator's
decoder: `MBAPercent` and `mbaPercent`, `iocfg` and `ioCfg` both occur. A spec is decoded once.

There are two readers. `section` raises SectionError with the field's path for a value of another type, and null unsets a field:
the strategy keeps its last decision. `readable_section` returns None, and null counts as absent, for strategies that are off
without a readable section. The NodeSLO in force has no such values (`strategies.node_slo`), so that they are the second guard.

The QoS classes are merged with their built-in defaults, and a disabled class has neutral values, so that its consumer applies
the values as they are. A section with `dryRun: true` is read like any other; its strategies' decisions are reported and not
applied. Source: Koordinator NodeSLO, merge of the node agent.

Bounds: that of `by_identity`, and REMEMBERED documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct, inspect

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"
T = TypeVar("T", bound=Struct)

REMEMBERED = 256
THRESHOLD, QOS, SYSTEM = "resourceUsedThresholdWithBE", "resourceQOSStrategy", "systemStrategy"
"""Sections."""
CLASSES = {"LSR": "lsrclass", "LS": "lsclass", "BE": "beclass", "SYSTEM": "systemclass"}
"""The field of each QoS class in the QoS strategy; LSE has that of LSR."""
ROOT_CLASS = "cgrouproot"
CPU_PART = "cpuQOS"
"""The part of a class that several strategies follow."""
CLASS_NAMES = ("lsrClass", "lsClass", "beClass", "systemClass", "cgroupRoot")
"""The fields of the QoS strategy as documents spell them."""
_NEVER_DISABLED = frozenset(("systemclass", ROOT_CLASS))
_DRY_RUN = "dryrun"


class SectionError(ValueError):
    """A document, a section or a field of another type than its reader expects; the text names it."""


class SectionShape(Struct, frozen=True):
    """A part of the NodeSLO that a strategy reads: its path, such as resourceQOSStrategy, beClass, blkioQOS, and the struct
    that it becomes, whose fields all have defaults."""

    path: tuple[str, ...]
    shape: type[Struct]


class DryRunSwitch(Struct, frozen=True, rename="camel"):
    """The member that every section of strategies, and every part of a QoS class, has."""

    dry_run: bool | None = None


def of_classes(part: str, *shapes: type[Struct], classes: Iterable[str] = CLASS_NAMES) -> tuple[SectionShape, ...]:
    """Return the shapes of a part of the QoS classes, such as memoryQOS."""
    return tuple([SectionShape((QOS, name, part), shape) for name in classes for shape in shapes])


# -- documents -----------------------------------------------------------------------------------------------------------


def lower_name(field: str) -> str:
    """Return the name of a struct's field as documents spell it here: read_bps -> readbps."""
    return field.replace("_", "")


def camel_name(field: str) -> str:
    """Return the same as Koordinator spells it: low_limit_percent -> lowLimitPercent."""
    head, *rest = field.split("_")
    return head + "".join([word.capitalize() for word in rest])


def lowered_object(text: str | bytes | msgspec.Raw) -> JsonObject:
    """Decode a JSON object, its names in lower case; of two names that become equal the last one counts. Raises SectionError,
    for a document that is nested too deeply as well."""
    try:
        value: JsonValue = msgspec.json.decode(text)
        if not isinstance(value, dict):
            raise SectionError(f"expected a JSON object, got {type(value).__name__}")
        return _lowered_members(value)
    except msgspec.MsgspecError as error:
        raise SectionError(str(error)) from error
    except RecursionError as error:
        raise SectionError("the document is nested too deeply") from error


def _lowered_members(value: Mapping[str, JsonValue]) -> JsonObject:
    return {key.lower(): lowered(below) for key, below in value.items()}


def lowered(value: JsonValue) -> JsonValue:
    """Return a value with the names of all its objects in lower case. Raises RecursionError."""
    if isinstance(value, dict):
        return _lowered_members(value)
    return [lowered(below) for below in value] if isinstance(value, list) else value


def without_nulls(value: JsonObject) -> JsonObject:
    """Return the document without members that are null."""
    return {key: _without_nulls(below) for key, below in value.items() if below is not None}


def _without_nulls(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return without_nulls(value)
    return [_without_nulls(below) for below in value] if isinstance(value, list) else value


def object_of(parent: Mapping[str, JsonValue], name: str) -> JsonObject:
    """Return a member that is an object; an empty one where it is absent or null. Raises SectionError."""
    value = parent.get(name.lower())
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise SectionError(f"{name}: expected an object, got {type(value).__name__}")
    return value


def fitted(given: Mapping[str, JsonValue], shape: type[T], where: str) -> T:
    """Convert a document with lower-case names. Raises SectionError, which names the section and the field."""
    try:
        return msgspec.convert(_spelled(dict(given), inspect.type_info(shape)), shape)
    except msgspec.ValidationError as error:
        raise SectionError(f"{where}: {error}") from error


def annotation_as(name: str, text: str, shape: type[T]) -> T:
    """Return a pod's annotation as a struct; null counts as absent. Raises SectionError, which names the annotation."""
    try:
        given = without_nulls(lowered_object(text))
    except SectionError as error:
        raise SectionError(f"annotation {name}: {error}") from error
    return fitted(given, shape, f"annotation {name}")


@cache
def fields_of(kind: type[Struct]) -> dict[str, tuple[str, inspect.Type]]:
    """Return the name and the type of each field of a struct, by the name in lower case."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return {each.encode_name.lower(): (each.encode_name, each.type) for each in info.fields}


def _spelled(value: JsonValue, kind: inspect.Type) -> JsonValue:
    """The value with the names of the structs that it is to become, without unknown members."""
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for option in options:
        if isinstance(option, inspect.StructType) and isinstance(value, dict):
            fields = fields_of(option.cls)
            named = ((fields.get(key), each) for key, each in value.items())
            return {found[0]: _spelled(each, found[1]) for found, each in named if found is not None}
        if isinstance(option, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
            return [_spelled(each, option.item_type) for each in value]
    return value


# -- the NodeSLO ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=REMEMBERED)
def _document(spec: bytes) -> JsonObject:
    return lowered_object(spec)


@by_identity
def _spec(slo: NodeSLORendered) -> JsonObject:
    return _document(bytes(slo.spec))


def raw_section(slo: NodeSLORendered | None, name: str) -> JsonObject:
    """Return a section with lower-case names, the whole spec for no name; empty where there is none. Raises SectionError."""
    if slo is None:
        return {}
    return object_of(_spec(slo), name) if name else _spec(slo)


def section(slo: NodeSLORendered | None, name: str, shape: type[T]) -> T:
    """Return a section as a struct, whose defaults count for what is absent. Raises SectionError."""
    return fitted(raw_section(slo, name), shape, name)


def readable_section(name: str, shape: type[T]) -> Callable[[NodeSLORendered], T | None]:
    """Return a reader of a section, of the whole spec for no name; it returns None where that is missing or unreadable."""

    @by_identity
    def read(slo: NodeSLORendered) -> T | None:
        try:
            given = without_nulls(_spec(slo))
            if name and name.lower() not in given:
                return None
            return fitted(object_of(given, name) if name else given, shape, name)
        except ValueError:
            return None

    return read


def is_asked(slo: NodeSLORendered | None, of: Callable[[NodeSLORendered], bool]) -> bool:
    """Return `of` a NodeSLO; False before there is one and for an unreadable one, which the decision reports."""
    try:
        return slo is not None and of(slo)
    except ValueError:
        return False


def class_part(
    strategy: Mapping[str, JsonValue],
    field: str,
    part: str,
    defaults: Mapping[str, JsonValue],
    neutral: Mapping[str, JsonValue],
) -> JsonObject:
    """Return one class's part (such as memoryQOS) over its defaults; names in lower case. A disabled class is neutral, except
    for the SYSTEM class and the root."""
    given = object_of(object_of(strategy, field), part)
    merged = {**defaults, **given}
    if field not in _NEVER_DISABLED and merged.get("enable") is False:
        return {**neutral, "enable": False}
    return merged


def states(strategy: Mapping[str, JsonValue], part: str) -> bool:
    """Return whether any class of the QoS strategy has this part; null counts as absent."""
    return any(object_of(strategy, field).get(part.lower()) is not None for field in (*CLASSES.values(), ROOT_CLASS))


def is_dry_run(slo: NodeSLORendered | None, name: str, part: str = "") -> bool:
    """Whether a section is a dry run, or a part of the QoS classes in any class; "" is no section, or no part."""
    if not name or slo is None:
        return False
    dry = _dry_sections(slo)
    return name.lower() in dry or bool(part and part.lower() in dry)


@by_identity
def _dry_sections(slo: NodeSLORendered) -> frozenset[str]:
    """The names of sections, and of parts of QoS classes, in lower case; no name is both."""
    try:
        document = _spec(slo)
    except ValueError:
        return frozenset()
    classes = document.get(QOS.lower())
    of_classes = list(classes.values()) if isinstance(classes, dict) else []
    return frozenset(
        name
        for holder in (document, *of_classes)
        if isinstance(holder, dict)
        for name, below in holder.items()
        if isinstance(below, dict) and below.get(_DRY_RUN) is True
    )

"""Sections of a NodeSLO whose strategies say what is wrong in them, decoded once per NodeSLO.

In: the rendered NodeSLO, whose `spec` is the whole document as JSON, and a struct for what is read of a section. Out: the
struct. Names are matched in any case, as Koordinator's decoder does (`MBAPercent`, `mbaPercent`). A field that is absent has
the struct's default; null unsets it. Raises ValueError with the field's path for a value of another type: the strategy keeps
its last decision until there is another NodeSLO. `sections` has the readers of strategies that are off without a readable one.

The QoS classes are merged with their built-in defaults, and a disabled class has neutral values, so that its consumer applies
the values as they are. Source: Koordinator NodeSLO, merge of the node agent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

import msgspec

from cotenant.events.node.resources import NodeSLORendered
from cotenant.model.by_identity import by_identity

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"
StructT = TypeVar("StructT", bound=msgspec.Struct)

SYSTEM = "systemStrategy"
CLASSES = {"LSR": "lsrclass", "LS": "lsclass", "BE": "beclass", "SYSTEM": "systemclass"}
"""The field of each QoS class in the QoS strategy; LSE has that of LSR."""
ROOT_CLASS = "cgrouproot"
_NEVER_DISABLED = frozenset(("systemclass", ROOT_CLASS))


def lower_name(field: str) -> str:
    """Return the name of a struct's field as `lowered` spells it: read_bps -> readbps."""
    return field.replace("_", "")


def lowered(value: JsonValue) -> JsonValue:
    """Return the document with all names in lower case; of two that become equal the last one counts."""
    if isinstance(value, dict):
        return {key.lower(): lowered(below) for key, below in value.items()}
    if isinstance(value, list):
        return [lowered(below) for below in value]
    return value


def lowered_object(text: str | bytes | msgspec.Raw) -> JsonObject:
    """Decode a JSON object. Raises ValueError."""
    value: JsonValue = msgspec.json.decode(text)
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return {key.lower(): lowered(below) for key, below in value.items()}


@by_identity
def _spec(slo: NodeSLORendered) -> JsonObject:
    return lowered_object(slo.spec)


def object_of(parent: Mapping[str, JsonValue], name: str) -> JsonObject:
    """Return a member that is an object; an empty one where it is absent or null. Raises ValueError."""
    value = parent.get(name.lower())
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{name}: expected an object, got {type(value).__name__}")
    return value


def raw_section(slo: NodeSLORendered | None, name: str) -> JsonObject:
    """Return a section with lower-case names; empty where there is none."""
    return object_of(_spec(slo), name) if slo is not None else {}


def section(slo: NodeSLORendered | None, name: str, shape: type[StructT]) -> StructT:
    """Return what `shape`, whose fields are renamed by `lower_name`, reads of a section."""
    return fitted(raw_section(slo, name), shape, name)


def fitted(given: Mapping[str, JsonValue], shape: type[StructT], where: str) -> StructT:
    """Convert a document with lower-case names. Raises ValueError that names the section and the field."""
    try:
        return msgspec.convert(dict(given), shape)
    except msgspec.ValidationError as error:
        raise ValueError(f"{where}: {error}") from error


def is_asked(slo: NodeSLORendered | None, of: Callable[[NodeSLORendered], bool]) -> bool:
    """Return what `of` says of a NodeSLO; False before there is one and of one that cannot be read, whose decision says why."""
    try:
        return slo is not None and of(slo)
    except (ValueError, RecursionError):
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
    """Return whether any class of the QoS strategy has this part."""
    return any(part.lower() in object_of(strategy, field) for field in (*CLASSES.values(), ROOT_CLASS))

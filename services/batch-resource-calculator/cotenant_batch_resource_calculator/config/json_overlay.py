"""JSON documents of the configuration: field names in any case, null as absent, one document laid over another.

In: JSON texts and the struct that a document must fit. Out: documents in canonical spelling, or a ConfigError with the
location. The documents are intermediate, between decoding and the typed structs. Source: the semantics of Go's
encoding/json that existing ConfigMaps rely on, and Koordinator's merge of strategies:

    objects merge key by key; scalars and lists of the newer document win; keys that it lacks keep the old value
    of a map (MAPS) each value is replaced as a whole
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import inspect

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = "dict[str, JsonValue]"
StructT = TypeVar("StructT", bound=msgspec.Struct)

MAPS = frozenset({"extensions", "schedFeatures", "ratioModel", "resourceAmplificationRatio"})
"""Fields whose keys are the user's."""

_WITHOUT_NULLS = MAPS - {"extensions"}
"""Maps whose null members are absent; an extension that is null takes back the cluster's."""
_UPPER = frozenset({"cpu", "be", "qos", "iops", "bps"})


class ConfigError(ValueError):
    """An invalid section of the configuration; the message has the location and the reason."""


def camel_name(field: str) -> str:
    """Return the JSON name of a field as Koordinator spells it: cpu_evict_be_usage -> cpuEvictBEUsage."""
    head, *rest = field.split("_")
    return head + "".join(part.upper() if part in _UPPER else part.capitalize() for part in rest)


def decode_object(text: str, where: str) -> JsonObject:
    """Decode a JSON object. Raises ConfigError."""
    if not text.strip():
        raise ConfigError(f"{where}: the text is empty; remove the key for the defaults")
    try:
        document: JsonValue = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: expected a JSON object, got {type(document).__name__}")
    return document


@cache
def _fields(cls: type[msgspec.Struct]) -> dict[str, tuple[str, inspect.Type]]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name.lower(): (field.encode_name, field.type) for field in info.fields}


def _nested(kind: inspect.Type) -> tuple[type[msgspec.Struct] | None, bool]:
    """Return the struct type of a field, and whether the field is a list of it."""
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    for option in options:
        if isinstance(option, inspect.StructType):
            return option.cls, False
        if isinstance(option, (inspect.ListType, inspect.VarTupleType)) and isinstance(option.item_type, inspect.StructType):
            return option.item_type.cls, True
    return None, False


def canonical(document: JsonObject, cls: type[msgspec.Struct]) -> JsonObject:
    """Return the document with the struct's spelling of each field; unknown fields and nulls are dropped."""
    fields = _fields(cls)
    result: JsonObject = {}
    for key, value in document.items():
        known = fields.get(key.lower())
        if known is None or value is None:
            continue
        name, kind = known
        nested, many = _nested(kind)
        if nested is not None and not many and isinstance(value, dict):
            result[name] = canonical(value, nested)
        elif nested is not None and many and isinstance(value, list):
            result[name] = [canonical(item, nested) if isinstance(item, dict) else item for item in value]
        elif name in _WITHOUT_NULLS and isinstance(value, dict):
            result[name] = {inner: each for inner, each in value.items() if each is not None}
        else:
            result[name] = value
    return result


def overlay(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return `old` merged with `new`."""
    result = dict(old)
    for key, value in new.items():
        below = result.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            result[key] = {**below, **value} if key in MAPS else overlay(below, value)
        elif value is not None:
            result[key] = value
    return result


def fit(document: JsonObject, cls: type[StructT], where: str) -> StructT:
    """Convert the document to the struct. Raises ConfigError with the field's path."""
    try:
        return msgspec.json.decode(msgspec.json.encode(document), type=cls)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error

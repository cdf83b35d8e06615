"""Schemas of the kinds, by Kubernetes' name.

In: the registry of kinds. Out: for Kubernetes' own kinds its schemas (`kubernetes.json`, made by `tests.kubernetes_schemas`);
for the others those of the types that decode them, with the members that no service reads (`unread`). Both are complete but
for objects marked `x-kubernetes-preserve-unknown-fields`, such as the status of the others, which services write. Documents
keep members that a schema does not have. Lists that a strategic merge patch merges by a key say so by the table that the
server itself merges by.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect

from cotenant.api.definitions import KindDefinition, Registry
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta
from cotenant.api.objects.pod import PodSpec
from cotenant.api.patching.strategic import MERGE_KEYS, PRIMITIVE_SETS
from cotenant_gateway.http.openapi.unread import OPEN, OPEN_TYPES, UNREAD

Schema = dict[str, Any]
REF = "#/components/schemas/"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{_META}.ObjectMeta"
STATUS = f"{_META}.Status"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_KUBERNETES_OWN: dict[type, str] = {ObjectMeta: OBJECT_META, PodSpec: "io.k8s.api.core.v1.PodSpec"}
"""Types of which only some members are read, and the schemas that have them all."""
_STATUS: Schema = {
    "type": "object",
    "description": "The answer to a request that returns no object.",
    PRESERVE: True,
    "properties": {
        "kind": {"type": "string"},
        "apiVersion": {"type": "string"},
        "status": {"type": "string"},
        "message": {"type": "string"},
        "reason": {"type": "string"},
        "code": {"type": "integer"},
    },
}


@cache
def _of_kubernetes() -> dict[str, Schema]:
    text = resources.files(__package__).joinpath("kubernetes.json").read_bytes()
    found: dict[str, Schema] = msgspec.json.decode(text)
    for schema in found.values():
        for name, property_ in schema.get("properties", {}).items():
            _mark_merged(name, property_)
    return found


def _mark_merged(name: str, property_: Schema) -> None:
    if property_.get("type") != "array":
        return
    if name in MERGE_KEYS and REF in str(property_["items"]):
        property_["x-kubernetes-patch-merge-key"] = MERGE_KEYS[name][0]
        property_["x-kubernetes-patch-strategy"] = "merge,retainKeys" if name == "volumes" else "merge"
    elif name in PRIMITIVE_SETS:
        property_["x-kubernetes-patch-strategy"] = "merge"


def schema_name(kind: Kind) -> str:
    """Return the name of a kind's schema."""
    group = kind.group.removesuffix(".k8s.io") or "core"
    of_kubernetes = f"io.k8s.api.{group}.{kind.version}.{kind.kind}"
    if of_kubernetes in _of_kubernetes():
        return of_kubernetes
    return f"{_prefix(kind)}.{kind.kind}"


def _prefix(kind: Kind) -> str:
    return ".".join([*reversed(kind.group.split(".")), kind.version])


@cache
def schemas_of(kinds: Registry) -> dict[str, Schema]:
    """Return all schemas by name."""
    found = {name: dict(schema) for name, schema in _of_kubernetes().items()}
    found[STATUS] = _STATUS
    for definition in kinds:
        name = schema_name(definition.kind)
        if name not in found:
            found |= _own(definition)
        kind = definition.kind
        found[name]["x-kubernetes-group-version-kind"] = [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
    for definition in kinds:
        found[f"{schema_name(definition.kind)}List"] = _list_of(definition.kind)
    return found


def _list_of(kind: Kind) -> Schema:
    items = {"type": "array", "items": {"$ref": REF + schema_name(kind)}}
    return {
        "type": "object",
        "description": f"A list of objects of kind {kind.kind}.",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", PRESERVE: True},
            "items": items,
        },
        "x-kubernetes-group-version-kind": [{"group": kind.group, "version": kind.version, "kind": f"{kind.kind}List"}],
    }


def is_of_kubernetes(kind: Kind) -> bool:
    """Return whether it is one of Kubernetes' own kinds; the others are custom resources there."""
    return schema_name(kind) in _of_kubernetes()


def _decoded(definition: KindDefinition) -> Any:
    """The type that a kind's documents are decoded to."""
    decoder = getattr(definition.decode, "__self__", None)
    return decoder.type if isinstance(decoder, msgspec.json.Decoder) else get_type_hints(definition.decode)["return"]


def _own(definition: KindDefinition) -> dict[str, Schema]:
    """The schemas of a kind of cotenant or Koordinator, from the type that decodes it."""
    kind, prefix = definition.kind, _prefix(definition.kind)
    found: dict[str, Schema] = {}
    reference = _of_type(inspect.type_info(_decoded(definition)), prefix, found)
    own = found.pop(reference["$ref"].removeprefix(REF))
    named = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, **own.get("properties", {})}
    named = {"status": OPEN, **UNREAD.get(kind.kind, {}), **named}
    own["properties"] = {**named, "metadata": {"$ref": REF + OBJECT_META}}
    return {**found, f"{prefix}.{kind.kind}": own}


def _of_type(info: inspect.Type, prefix: str, found: dict[str, Schema]) -> Schema:
    """The schema of a type; those of structs go to `found` by name."""
    if isinstance(info, inspect.Metadata):
        return _of_type(info.type, prefix, found)
    if isinstance(info, inspect.StructType):
        return _of_struct(info, prefix, found)
    if isinstance(info, inspect.UnionType):
        options = [_of_type(each, prefix, found) for each in info.types if not isinstance(each, inspect.NoneType)]
        if {"type": "string"} in options and len(options) > 1:
            return {"$ref": REF + (QUANTITY if {"type": "number"} in options else INT_OR_STRING)}
        return options[0] if len(options) == 1 else {"oneOf": options}
    if isinstance(info, inspect.DictType):
        return {"type": "object", "additionalProperties": _of_type(info.value_type, prefix, found)}
    if isinstance(info, (inspect.ListType, inspect.VarTupleType)):
        return {"type": "array", "items": _of_type(info.item_type, prefix, found)}
    if isinstance(info, inspect.EnumType):
        return {"type": "string", "enum": [member.value for member in info.cls]}
    word = _WORDS.get(type(info))
    return {"type": word} if word is not None else {PRESERVE: True}


def _of_struct(info: inspect.StructType, prefix: str, found: dict[str, Schema]) -> Schema:
    cls = info.cls
    if cls in _KUBERNETES_OWN:
        return {"$ref": REF + _KUBERNETES_OWN[cls]}
    word = cls.__name__.strip("_")
    name = f"{prefix}.{word}"
    if name not in found:
        schema: Schema = {"type": "object", "description": " ".join((cls.__doc__ or "").split())}
        found[name] = schema
        if word in OPEN_TYPES:
            schema[PRESERVE] = True
        own = {field.encode_name: _of_type(field.type, prefix, found) for field in info.fields}
        schema["properties"] = {**own, **UNREAD.get(word, {})}
        required = [field.encode_name for field in info.fields if field.required]
        if required:
            schema["required"] = required
    return {"$ref": REF + name}


_WORDS: dict[type, str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.BoolType: "boolean",
    inspect.FloatType: "number",
    inspect.DateTimeType: "string",
}

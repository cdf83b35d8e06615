"""The OpenAPI documents: v3 by group and version, v2 in one.

In: the registry of kinds. Out: documents as Kubernetes publishes them, which `kubectl explain`, `apply` and generators of
clients read: paths with the parameters that the handlers know, schemas of `schemas`. They depend on the registry alone and
are generated once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from cotenant.api.definitions import KindDefinition, Registry
from cotenant.api.kinds import Kind
from cotenant_gateway.http.discovery import group_versions, kinds_of
from cotenant_gateway.http.openapi.schemas import OBJECT_META, REF, STATUS, Schema, is_of_kubernetes, schema_name, schemas_of
from cotenant_gateway.planning.updates import PATCH_TYPES, STRATEGIC

_INFO = {"title": "cotenant", "version": "v1"}
_DEFINITIONS = "#/definitions/"
_WRITES = ("dryRun", "fieldManager", "fieldValidation")
_LISTS = ("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion")
_INTEGERS = frozenset({"limit"})


def openapi_index(kinds: Registry) -> dict[str, object]:
    """`/openapi/v3`."""
    paths = {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}
    for group, version in group_versions(kinds):
        paths[f"apis/{group}/{version}"] = {"serverRelativeURL": f"/openapi/v3/apis/{group}/{version}"}
    return {"paths": paths}


def openapi_group(kinds: Registry, group: str, version: str) -> dict[str, object] | None:
    """`/openapi/v3/api/v1`, `/openapi/v3/apis/<group>/<version>`."""
    return _group(kinds, group, version) if kinds_of(kinds, group, version) else None


@cache
def _group(kinds: Registry, group: str, version: str) -> dict[str, object]:
    definitions, schemas = kinds_of(kinds, group, version), schemas_of(kinds)
    paths: dict[str, object] = {}
    needed = {STATUS, OBJECT_META}
    for definition in definitions:
        paths |= _paths(definition)
        needed |= {schema_name(definition.kind), f"{schema_name(definition.kind)}List"}
    components = {name: schemas[name] for name in sorted(_closure(needed, schemas))}
    return {"openapi": "3.0.0", "info": _INFO, "paths": paths, "components": {"schemas": components}}


def _closure(names: set[str], schemas: dict[str, Schema]) -> set[str]:
    """The schemas that some schemas refer to, themselves among them."""
    found: set[str] = set()
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name not in found:
            found.add(name)
            open_names += _references(schemas[name])
    return found


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for each in schema for name in _references(each)]
    if not isinstance(schema, dict):
        return []
    own = schema.get("$ref")
    if isinstance(own, str):
        return [own.removeprefix(REF)]
    return [name for each in schema.values() for name in _references(each)]


def _paths(definition: KindDefinition) -> dict[str, object]:
    kind = definition.kind
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    collection, item = f"{root}{scope}/{kind.plural}", f"{root}{scope}/{kind.plural}/{{name}}"
    verbs = definition.verbs
    of_collection = tuple(verb for verb in _OF_COLLECTIONS if verb in verbs)
    paths: dict[str, object] = {collection: _operations(definition, "", of_collection)}
    if "get" in verbs:
        paths[item] = _operations(definition, "", tuple(verb for verb in _OF_ITEMS if verb in verbs), named=True)
    if kind.namespaced and "list" in verbs:
        paths[f"{root}/{kind.plural}"] = {"get": _operation(kind, "list", "ForAllNamespaces")}
    if definition.has_status and not definition.read_only:
        paths[f"{item}/status"] = _operations(definition, "Status", ("get", "update", "patch"), named=True)
    for below in definition.subresources:
        if below.kind == kind.kind and "update" in below.verbs:
            suffix = below.name.capitalize()
            paths[f"{item}/{below.name}"] = _operations(definition, suffix, ("get", "update", "patch"), named=True)
    return paths


_OF_COLLECTIONS = ("list", "create", "deletecollection")
_OF_ITEMS = ("get", "update", "patch", "delete")
_METHODS = {
    "get": "get",
    "list": "get",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}


def _operations(definition: KindDefinition, suffix: str, verbs: tuple[str, ...], *, named: bool = False) -> dict[str, object]:
    kind = definition.kind
    parts = [name for name, there in (("namespace", kind.namespaced), ("name", named)) if there]
    operations: dict[str, object] = {_METHODS[verb]: _operation(kind, verb, suffix) for verb in verbs}
    if parts:
        operations["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in parts
        ]
    return operations


def _operation(kind: Kind, verb: str, suffix: str) -> dict[str, object]:
    name = schema_name(kind)
    queries = {"list": _LISTS, "deletecollection": (*_LISTS[:2], "dryRun"), "delete": ("dryRun", "gracePeriodSeconds")}.get(
        verb, () if verb == "get" else _WRITES
    )
    shown = {"list": f"{name}List", "deletecollection": f"{name}List", "delete": ""}.get(verb, name)
    body: dict[str, object] = {"content": {"application/json": {"schema": {"$ref": REF + shown} if shown else {}}}}
    operation: dict[str, object] = {
        "operationId": f"{verb}{kind.kind}{suffix}",
        "parameters": [
            {"name": query, "in": "query", "schema": {"type": "integer" if query in _INTEGERS else "string"}}
            for query in queries
        ],
        "responses": {
            "201" if verb == "create" else "200": {"description": "OK", **body},
            "default": {"description": "An error", "content": {"application/json": {"schema": {"$ref": REF + STATUS}}}},
        },
        "x-kubernetes-action": {"get": "get", "update": "put", "create": "post"}.get(verb, verb),
        "x-kubernetes-group-version-kind": {"group": kind.group, "kind": kind.kind, "version": kind.version},
    }
    if verb in ("create", "update"):
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": {"$ref": REF + name}}}}
    elif verb == "patch":
        # As in Kubernetes, custom resources do not offer the strategic patch: kubectl would need a schema of every member.
        offered = [each for each in PATCH_TYPES if each != STRATEGIC or is_of_kubernetes(kind)]
        operation["requestBody"] = {"required": True, "content": {each: {"schema": {}} for each in offered}}
    return operation


OPENAPI_V2 = "/openapi/v2"
OPENAPI_V2_PROTOBUF = "com.github.proto-openapi.spec.v2"
"""The Accept header of a client that reads v2 only as protobuf: kubectl, for a `List` in a manifest."""
OPENAPI_V2_PROTOBUF_SENT = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
NO_SCHEMAS = b"\x0a\x032.0"
"""That document with its version and no schemas, so that the client leaves validation of each item to the gateway."""


@cache
def openapi_v2(kinds: Registry) -> dict[str, object]:
    """`/openapi/v2`: the same schemas as definitions. Paths are those of v3; clients look for definitions here."""
    text = msgspec.json.encode(schemas_of(kinds)).replace(REF.encode(), _DEFINITIONS.encode())
    definitions: dict[str, Any] = {name: _of_v2(schema) for name, schema in msgspec.json.decode(text).items()}
    return {"swagger": "2.0", "info": _INFO, "paths": {}, "definitions": definitions}


def _of_v2(schema: Any) -> Any:
    """Return a schema without the keywords that v2 does not have."""
    if isinstance(schema, list):
        return [_of_v2(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _of_v2(value) for key, value in schema.items() if key not in ("oneOf", "anyOf", "nullable")}
    if "oneOf" in schema:
        made |= {"type": "string", "format": "int-or-string"}
    return made

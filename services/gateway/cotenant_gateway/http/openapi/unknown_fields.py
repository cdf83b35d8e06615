"""Members of a body that its kind's schema does not have, for `fieldValidation`.

In: a body, the kind. Out: the paths of unknown members, such as `spec.containers[0].imgae`, at most MAX_NAMED. A patch is
checked as a part of an object; its directives (`$patch`) are no members. Rule: Kubernetes' strict decoding, without its
duplicate members.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.api.definitions import Registry
from cotenant.api.kinds import Kind
from cotenant_gateway.http.openapi.schemas import PRESERVE, REF, Schema, schema_name, schemas_of

MAX_NAMED = 20


def unknown_fields(kinds: Registry, kind: Kind, body: bytes) -> list[str]:
    """Return the paths; none for a body that is no JSON object, which is refused elsewhere."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    found: list[str] = []
    schemas = schemas_of(kinds)
    _look(document, schemas[schema_name(kind)], schemas, "", found)
    return found


def _resolved(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    if "allOf" in schema:
        schema = schema["allOf"][0]
    reference = schema.get("$ref")
    return schemas[reference.removeprefix(REF)] if reference is not None else schema


def _look(value: Any, schema: Schema, schemas: dict[str, Schema], path: str, found: list[str]) -> None:
    if len(found) >= MAX_NAMED:
        return
    schema = _resolved(schema, schemas)
    if isinstance(value, list):
        items: Schema = schema.get("items", {})
        for index, each in enumerate(value) if items else ():
            _look(each, items, schemas, f"{path}[{index}]", found)
    elif isinstance(value, dict):
        _look_into(value, schema, schemas, path, found)


def _look_into(value: dict[str, Any], schema: Schema, schemas: dict[str, Schema], path: str, found: list[str]) -> None:
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties")
    known = PRESERVE in schema or rest is not None or "properties" not in schema
    for name, each in value.items():
        member = f"{path}.{name}" if path else name
        if name in properties:
            _look(each, properties[name], schemas, member, found)
        elif isinstance(rest, dict):
            _look(each, rest, schemas, member, found)
        elif not known and not name.startswith("$") and len(found) < MAX_NAMED:
            found.append(member)

"""`python -m cotenant.reference FOLDER`: the event reference, generated from the structs.

Out: `events.md` for people, `asyncapi.json` (AsyncAPI 3.0) and `schemas.json` (JSON Schema) for other languages.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from cotenant import events
from cotenant.events.envelope import Payload
from cotenant.log.nats.streams import LOG_SUBJECTS

CHANNELS: tuple[tuple[str, str, str, str], ...] = (
    ("LOG", "objects.<group>.<plural>.<namespace>.<name>", "cotenant.object.v1", "gateway"),
    ("LOG", "objects.<group>.<plural>.<namespace>.<name>", "cotenant.object.deleted.v1", "gateway"),
    ("LOG", "metrics.<node>", "cotenant.nodemetric.v1", "metrics-ingest"),
    ("LOG", "predictions.<node>", "cotenant.predictions.v1", "metrics-ingest"),
    ("LOG", "node.<node>.resources", "cotenant.noderesources.v1", "batch-resource-calculator"),
    ("LOG", "node.<node>.slo", "cotenant.nodeslo.v1", "batch-resource-calculator"),
    ("LOG", "configmaps.<namespace>.<name>", "cotenant.configuration.rejected.v1", "batch-resource-calculator"),
    ("LOG", "node.<node>.condition", "cotenant.node.condition.v1", "descheduler-arbiter"),
    ("LOG", "node.<node>.placement.<namespace>.<pod>", "cotenant.placement.v1", "scheduler"),
    ("LOG", "node.<node>.run.<namespace>.<pod>", "cotenant.run.v1", "node-executor"),
    ("LOG", "node.<node>.executor", "cotenant.executor.v1", "node-executor"),
    ("LOG", "node.<node>.topology", "cotenant.topology.v1", "node-executor"),
    ("LOG", "waiting.<namespace>.<pod>", "cotenant.waiting.v1", "scheduler"),
    ("LOG", "podgroups.<namespace>.<name>", "cotenant.podgroup.v1", "scheduler"),
    ("LOG", "node.<node>.reservation.<name>", "cotenant.reservation.v1", "scheduler"),
    ("LOG", "reservations.<name>", "cotenant.reservationstatus.v1", "scheduler"),
    ("LOG", "quotas.<tree>.<quota>", "cotenant.quota.v1", "quota-tree"),
    ("LOG", "quotas.<tree>.<quota>.profile", "cotenant.quotaprofile.v1", "quota-tree"),
    ("LOG", "migrations.<job>", "cotenant.migration.v1", "descheduler-arbiter"),
    ("LOG", "descheduling.<node>", "cotenant.nodeload.v1", "descheduler-arbiter"),
    ("LOG", "descheduling.cycles.<profile>", "cotenant.deschedulingcycle.v1", "descheduler-arbiter"),
    ("LOG", "evictions.<namespace>.<pod>", "cotenant.eviction.v1", "gateway"),
    ("LOG", "yarn.<node>", "cotenant.yarnnode.v1", "yarn-copilot"),
    ("LOG", "commits.<service>.<partition>", "cotenant.commit.v1", "each deciding service"),
    ("LOG", "services.<service>.<replica>", "cotenant.service.started.v1", "each deciding service"),
    ("LOG", "services.streams.log", "cotenant.log.declared.v1", "cotenant admin streams"),
    ("USAGE", "usage.<node>", "cotenant.usage.v1", "node-executor"),
    ("EXECUTION", "execution.<node>.<topic>", "cotenant.execution.v1", "node-executor"),
    ("EXECUTION", "execution._.commits", "cotenant.commit.refused.v1", "each deciding service"),
    ("EXECUTION", "execution._.audit", "cotenant.audit.v1", "gateway"),
    ("EXECUTION", "deadletter.<stream>.<writer>", "cotenant.deadletter.v1", "each reader"),
)
"""stream, subject, wire type, writer"""


def schemas() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON Schema of each wire type, and the definitions that they refer to."""
    types = events.payload_types()
    made, components = msgspec.json.schema_components(types.values(), ref_template="#/$defs/{name}")
    return dict(zip(types, made, strict=True)), components


def events_page() -> str:
    """Return the reference for people."""
    types = events.payload_types()
    _, components = schemas()
    lines = [
        "# Event reference",
        "",
        "Generated from the structs by `make docs`. Every message is a CloudEvents 1.0 JSON object with the extensions",
        "`causes` (list of `STREAM:sequence`), `actor`, `commit` (the record of a commit that is this one event, as",
        "`cotenant.commit.v1`) and W3C `traceparent`; `data` is one of the types below. Unknown fields",
        "are ignored, unknown types skipped and counted; what cannot be decoded goes to `deadletter.<stream>.<writer>`.",
        "",
        "An event's `traceparent` has the trace id and the flags of its first cause, and the BLAKE2b digest of its `id` in 8",
        "bytes as span id; who writes events beside cotenant's services does the same, or leaves it out.",
        "",
        "| stream | subject | type | written by |",
        "|---|---|---|---|",
        *(f"| {stream} | `{subject}` | `{wire}` | {writer} |" for stream, subject, wire, writer in CHANNELS),
        "",
        f"Subjects on LOG: {', '.join(f'`{subject}`' for subject in LOG_SUBJECTS)}.",
        "",
    ]
    for wire, cls in types.items():
        lines += [f"## {wire}", "", inspect.cleandoc(cls.__doc__ or ""), "", *_fields(cls, components), ""]
    return "\n".join(lines).rstrip() + "\n"


def _fields(cls: type[Payload], components: dict[str, Any]) -> list[str]:
    properties = components.get(cls.__name__, {}).get("properties", {})
    required = set(components.get(cls.__name__, {}).get("required", ()))
    rows = ["| field | type | default |", "|---|---|---|"]
    for name, schema in properties.items():
        default = "required" if name in required else f"`{json.dumps(schema.get('default'), default=str)}`"
        rows.append(f"| `{name}` | {_type(schema)} | {default} |")
    return rows


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in schema:
        return " or ".join(_type(option) for option in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {})}" if isinstance(schema.get("items"), dict) else "list"
    if schema.get("type") == "object":
        values = schema.get("additionalProperties")
        return f"map of {_type(values)}" if isinstance(values, dict) else "object"
    return str(schema.get("format") or schema.get("type") or "JSON")


def asyncapi() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document."""
    types, components = schemas()
    text = json.dumps({"types": types, "components": components}, default=str).replace("#/$defs/", "#/components/schemas/")
    moved = json.loads(text)
    channels: dict[str, Any] = {}
    for stream, subject, wire, writer in CHANNELS:
        if wire not in types:
            continue
        address = subject.replace("<", "{").replace(">", "}")
        parameters: dict[str, Any] = {part[1:-1]: {} for part in address.split(".") if part.startswith("{")}
        key = f"{stream}/{subject}"
        description = f"Stream {stream}, written by {writer}"
        entry = channels.setdefault(
            key, {"address": address, "description": description, "parameters": parameters, "messages": {}}
        )
        entry["messages"][wire] = {"$ref": f"#/components/messages/{wire}"}
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "cotenant events", "version": "0.1.0", "license": {"name": "Apache-2.0"}},
        "defaultContentType": "application/cloudevents+json",
        "channels": channels,
        "components": {
            "schemas": moved["components"],
            "messages": {
                wire: {"name": wire, "contentType": "application/cloudevents+json", "payload": {"properties": {"data": schema}}}
                for wire, schema in moved["types"].items()
            },
        },
    }


def main() -> None:
    """Write the three files into the folder that the command line names."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    folder.mkdir(parents=True, exist_ok=True)
    types, components = schemas()
    (folder / "events.md").write_text(events_page())
    (folder / "asyncapi.json").write_text(json.dumps(asyncapi(), indent=1, default=str) + "\n")
    (folder / "schemas.json").write_text(json.dumps({"$defs": components, "types": types}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()

"""`cotenant describe`: one object in detail, for people, with its events.

In: the object and the core/v1 Events about it. Out: metadata first, then every section of the document as indented
fields, then the events. Pods and nodes begin with the most important: place, state, reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import click

from cotenant.api.ages import age
from cotenant.api.kinds import Kind
from cotenant.kinds.events import EVENTS
from cotenant_console.api.client import Client, Document, Json, list_at, mapping_at, text_at
from cotenant_console.api.connection import with_client, with_namespace
from cotenant_console.api.resolve import resolve_targets
from cotenant_console.manifests.three_way import LAST_APPLIED
from cotenant_console.tables import Table

HIDDEN_METADATA = ("name", "namespace", "labels", "annotations", "managedFields", "creationTimestamp", "uid")
LABEL_WIDTH = 14
MAX_SHOWN = 300


@click.command("describe")
@click.argument("arguments", nargs=-1, required=True, metavar="KIND [NAME...] | KIND/NAME...")
@with_namespace
@click.option("-l", "--selector", default="", help="Label selector.")
@with_client
def command(client: Client, arguments: tuple[str, ...], namespace: str, selector: str) -> None:
    """Show one object in detail, with its events."""
    texts = []
    for target in resolve_targets(client, arguments):
        if target.name:
            documents: list[Json] = [client.get(target.kind.path(namespace, target.name))]
        else:
            query = {"labelSelector": selector} if selector else {}
            documents = list_at(client.get(target.kind.path(namespace), query), "items")
        for document in documents:
            if isinstance(document, dict):
                events = events_about(client, target.kind, document)
                texts.append("\n".join(described(document, events, datetime.now(UTC))))
    click.echo("\n\n\n".join(texts) if texts else "No resources found")


def events_about(client: Client, kind: Kind, document: Document) -> list[Json]:
    """The core/v1 Events whose subject is this object."""
    name, scope = text_at(document, "metadata", "name"), text_at(document, "metadata", "namespace")
    selector = f"involvedObject.kind={kind.kind},involvedObject.name={name}"
    found = list_at(client.get(EVENTS.path(scope), {"fieldSelector": selector}), "items")
    about = [
        event
        for event in found
        if text_at(event, "involvedObject", "kind") == kind.kind and text_at(event, "involvedObject", "name") == name
    ]
    return sorted(about, key=lambda event: (text_at(event, "lastTimestamp"), text_at(event, "metadata", "name")))


def described(document: Document, events: list[Json], now: datetime) -> list[str]:
    """The lines of one object."""
    metadata = mapping_at(document, "metadata")
    lines = [labelled("Name", text_at(metadata, "name"))]
    if "namespace" in metadata:
        lines.append(labelled("Namespace", text_at(metadata, "namespace")))
    lines += pairs("Labels", mapping_at(metadata, "labels"), "=")
    annotations = {key: value for key, value in mapping_at(metadata, "annotations").items() if key != LAST_APPLIED}
    lines += pairs("Annotations", annotations, ": ")
    created = text_at(metadata, "creationTimestamp")
    if created:
        lines.append(labelled("Created", f"{created} ({age(created, now)} ago)"))
    if text_at(document, "kind") == "Pod":
        lines += pod_heading(document)
    for key, value in metadata.items():
        if key not in HIDDEN_METADATA:
            lines += field_lines(key, value, 0)
    for key, value in document.items():
        if key not in ("apiVersion", "kind", "metadata"):
            lines += field_lines(key, value, 0)
    lines += event_lines(events, now)
    return lines


def pod_heading(pod: Document) -> Iterator[str]:
    """A pod's node, its state, and why it waits."""
    yield labelled("Node", text_at(pod, "spec", "nodeName", default="<none>"))
    ending = text_at(pod, "metadata", "deletionTimestamp")
    yield labelled("Status", f"Terminating (since {ending})" if ending else text_at(pod, "status", "phase"))
    for condition in list_at(pod, "status", "conditions"):
        if text_at(condition, "status") == "False" and text_at(condition, "message"):
            yield labelled("Why", f"{text_at(condition, 'type')}: {text_at(condition, 'message')}")


def labelled(label: str, text: str) -> str:
    """`Label:        text`, as kubectl aligns it."""
    return f"{label + ':':<{LABEL_WIDTH}}{text}"


def cut(text: str) -> str:
    """A text shortened for a terminal: `get -o yaml` shows all of it."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def pairs(label: str, fields: Document, joint: str) -> list[str]:
    """A field per line under one label."""
    texts = [cut(f"{key}{joint}{value}") for key, value in sorted(fields.items())] or ["<none>"]
    return [labelled(label, texts[0]), *(" " * LABEL_WIDTH + text for text in texts[1:])]


def field_lines(key: str, value: Json, depth: int) -> Iterator[str]:
    """A field with everything below it, indented; camelCase names are split into words."""
    indent = "  " * depth
    title = key[:1].upper() + key[1:] if "/" not in key and "." not in key else key
    if isinstance(value, dict):
        if value:
            yield f"{indent}{title}:"
            for name, below in value.items():
                yield from field_lines(name, below, depth + 1)
    elif isinstance(value, list):
        if value and all(isinstance(item, str | int | float | bool) for item in value):
            yield f"{indent}{title}:  {' '.join(str(item) for item in value)}"
        elif value:
            yield f"{indent}{title}:"
            for item in value:
                yield from _item_lines(item, depth + 1)
    elif value is not None:
        first, *more = str(value).split("\n") if not isinstance(value, bool) else [str(value).lower()]
        yield f"{indent}{title}:  {first}"
        yield from (f"{indent}  {line}" for line in more if line)


def _item_lines(item: Json, depth: int) -> Iterator[str]:
    if not isinstance(item, dict):
        yield from field_lines("-", item, depth)
        return
    name = text_at(item, "name") or text_at(item, "type")
    yield f"{'  ' * depth}{name or '-'}:"
    for key, below in item.items():
        if below != name or key not in ("name", "type"):
            yield from field_lines(key, below, depth + 1)


def event_lines(events: list[Json], now: datetime) -> list[str]:
    """The events as a table."""
    if not events:
        return ["Events:  <none>"]
    table = Table(("  Type", "Reason", "Age", "From", "Message"))
    for event in events:
        count = int(text_at(event, "count", default="1"))
        first, last = text_at(event, "firstTimestamp"), text_at(event, "lastTimestamp")
        shown = age(last, now) if count < 2 else f"{age(last, now)} (x{count} over {age(first, now)})"
        source = text_at(event, "source", "component")
        table.rows.append(
            ("  " + text_at(event, "type"), text_at(event, "reason"), shown, source, text_at(event, "message"))
        )
    return ["Events:", *table.lines()]

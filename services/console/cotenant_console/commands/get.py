"""`cotenant get`: objects as kubectl shows them.

In: kinds, names, selectors. Out: the server's table (`-o wide` for all its columns), or the documents as JSON, YAML
or names. `-w` follows: it lists, then prints changes from that version on; a watch that the server ends is
resumed where it stopped, and one that is too old (410) starts with a new list.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from cotenant.api.kinds import Kind
from cotenant.kinds.elastic_quotas import ELASTIC_QUOTAS
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pod_groups import POD_GROUPS
from cotenant.kinds.pods import PODS
from cotenant.kinds.priority_classes import PRIORITY_CLASSES
from cotenant_console.api.client import (
    ACCEPT_JSON,
    ACCEPT_TABLE,
    Client,
    Document,
    Json,
    StatusError,
    UnreachableError,
    list_at,
    mapping_at,
    text_at,
)
from cotenant_console.api.connection import with_client, with_namespace
from cotenant_console.api.resolve import Target, resolve_targets
from cotenant_console.commands import dead_letters, queue, quota_tree
from cotenant_console.rendering import rendered
from cotenant_console.tables import row_from, shown_columns, table_from

_SEEN_AHEAD = (POD_GROUPS, ELASTIC_QUOTAS, PRIORITY_CLASSES)
"""Kinds that a simulation ahead uses beside pods and nodes."""


@click.command("get")
@click.argument("arguments", nargs=-1, metavar="KIND[,KIND] [NAME...] | KIND/NAME...")
@with_namespace
@click.option("-A", "--all-namespaces", is_flag=True, help="Objects of all namespaces.")
@click.option("-o", "--output", type=click.Choice(["wide", "json", "yaml", "name"]), help="Output format.")
@click.option("-l", "--selector", default="", help="Label selector, such as app=web,tier!=db.")
@click.option("--field-selector", default="", help="Field selector, such as spec.nodeName=a.")
@click.option("-w", "--watch", is_flag=True, help="Print changes as they happen, until interrupted.")
@click.option("--no-headers", is_flag=True, help="Leave out the headings.")
@click.option("--tree", is_flag=True, help="Of quotas: draw their trees, with a bar per resource.")
@click.option("--order", type=click.Choice(queue.ORDERS), help="Of the queue: the scheduler's queue.order (priority).")
@with_client
def command(
    client: Client,
    arguments: tuple[str, ...],
    namespace: str,
    all_namespaces: bool,
    output: str | None,
    selector: str,
    field_selector: str,
    watch: bool,
    no_headers: bool,
    tree: bool,
    order: str | None,
) -> None:
    """List objects as a table, JSON, YAML or names; `deadletters` are the messages that services could not use, `queue` the
    jobs that wait for nodes."""
    first, *names = arguments or ("",)
    if first in dead_letters.NAMES:
        dead_letters.show(client, tuple(names), output, watch=watch, headings=not no_headers)
        return
    if first == queue.NAME:
        if names or output or watch:
            raise click.UsageError("the queue is one table: cotenant get queue [-n NAMESPACE | -A] [-l SELECTOR]")
        _print_queue(client, "" if all_namespaces else namespace, selector, not no_headers, order or queue.PRIORITY)
        return
    if order:
        raise click.UsageError("--order is for the queue: cotenant get queue --order fair")
    if tree:
        if first not in quota_tree.NAMES or names:
            raise click.UsageError("--tree is for quotas: cotenant get quotas --tree")
        listed = client.get(f"{ELASTIC_QUOTAS.path('')}")
        click.echo("\n".join(quota_tree.tree_lines(item for item in list_at(listed, "items") if isinstance(item, dict))))
        return
    if first in ("quota", "quotas"):
        arguments = (ELASTIC_QUOTAS.plural, *names)
    targets = resolve_targets(client, arguments)
    if watch and len(targets) > 1:
        raise click.UsageError("-w follows one kind or one object at a time")
    scope = "" if all_namespaces else namespace
    query = {
        key: value for key, value in (("labelSelector", selector), ("fieldSelector", field_selector)) if value
    }
    if output in ("json", "yaml", "name"):
        _print_documents(client, targets, scope, query, output)
        if watch:
            _follow_documents(client, targets[0], scope, query, output)
        return
    _print_tables(client, targets, scope, query, output == "wide", not no_headers, watch)


def _print_queue(client: Client, scope: str, selector: str, headings: bool, order: str) -> None:
    """Print the jobs that wait; positions are among the selected jobs."""
    query = {"labelSelector": selector} if selector else {}
    pods, groups, quotas = (
        [item for item in list_at(client.get(kind.path(where), asked), "items") if isinstance(item, dict)]
        for kind, where, asked in (
            (PODS, scope, {**query, "fieldSelector": "spec.nodeName="}),
            (POD_GROUPS, scope, {}),
            (ELASTIC_QUOTAS, "", {}),
        )
    )
    now = datetime.now(UTC)
    table = queue.queue_table(pods, groups, now, order, quotas, _starts(client, now, order) if pods else {})
    click.echo("\n".join(table.lines(headings)) if table.rows else queue.NOTHING)


def _starts(client: Client, now: datetime, order: str) -> dict[tuple[str, str], datetime]:
    """When waiting pods are placed, by simulating the scheduler ahead over the whole cluster; nothing is known if the caller
    may not see all of it, or it is too large."""
    try:
        runs = importlib.import_module("cotenant_verification.simulate.queue_starts")
        seen = {kind: client.get(kind.path(""), {"limit": str(runs.MOST_PODS)}) for kind in (PODS, NODES, *_SEEN_AHEAD)}
    except (StatusError, ImportError):
        return {}
    if any(text_at(listed, "metadata", "continue") for listed in seen.values()):
        return {}
    items = {kind: [item for item in list_at(listed, "items") if isinstance(item, dict)] for kind, listed in seen.items()}
    others = [((kind.group, kind.plural), item) for kind in _SEEN_AHEAD for item in items[kind]]
    found: dict[tuple[str, str], datetime] = runs.starts(items[NODES], items[PODS], others, now, order)
    return found


def fetch(client: Client, target: Target, scope: str, query: dict[str, str], accept: str = ACCEPT_JSON) -> Document:
    """One object, or the list that the target means."""
    if target.name:
        return client.get(target.kind.path(scope, target.name), accept=accept)
    return client.get(target.kind.path(scope), query, accept)


def _print_tables(
    client: Client, targets: list[Target], scope: str, query: dict[str, str], wide: bool, headings: bool, watch: bool
) -> None:
    several = len({target.kind for target in targets}) > 1
    for kind in dict.fromkeys(target.kind for target in targets):
        with_ns = kind.namespaced and not scope
        found = [fetch(client, target, scope, query, ACCEPT_TABLE) for target in targets if target.kind == kind]
        table = table_from(found[0], wide, with_ns)
        for more in found[1:]:
            table.rows += table_from(more, wide, with_ns).rows
        if several:
            prefix = 1 if with_ns else 0
            table.rows = [
                (*row[:prefix], f"{kind.qualified}/{row[prefix]}", *row[prefix + 1 :]) for row in table.rows
            ]
        if table.rows:
            click.echo("\n".join(table.lines(headings)))
            if several:
                click.echo()
        elif not watch:
            click.echo(nothing_found(kind, scope), err=True)
    if not watch:
        return
    columns = shown_columns(found[0], wide)
    for event in follow(client, targets[0], scope, query, text_at(found[0], "metadata", "resourceVersion"), ACCEPT_TABLE):
        document = mapping_at(event, "object")
        if event.get("type") == "LISTED" or document.get("kind") != "Table":
            continue
        if not columns:
            columns = shown_columns(document, wide)
        for row in list_at(document, "rows"):
            if not table.widths:
                table = table_from(document, wide, with_ns)
                click.echo("\n".join(table.lines(headings)))
            else:
                click.echo(table.line(row_from(row, columns, with_ns)))


def nothing_found(kind: Kind, scope: str) -> str:
    """What kubectl prints for an empty list."""
    return f"No resources found in {scope} namespace." if kind.namespaced and scope else "No resources found"


def follow(
    client: Client, target: Target, scope: str, query: dict[str, str], version: str, accept: str
) -> Iterator[Document]:
    """Watch events of a target from a version on, forever; a new list (after 410) comes as one event LISTED."""
    selection = dict(query)
    if target.name:
        selection["fieldSelector"] = f"metadata.name={target.name}"
    while True:
        try:
            asked = {**selection, "resourceVersion": version, "allowWatchBookmarks": "true"}
            for event in client.watch(target.kind.path(scope), asked, accept):
                version = _version_of(event.get("object")) or version
                if event.get("type") != "BOOKMARK":
                    yield event
        except StatusError as error:
            if error.code != 410:
                raise
            listed = fetch(client, target, scope, query, accept)
            version = text_at(listed, "metadata", "resourceVersion")
            yield {"type": "LISTED", "object": listed}
        except UnreachableError:
            # The stream broke: the list request that follows shows whether the server is down.
            client.get("/version")


def _version_of(document: Json) -> str:
    return text_at(document, "metadata", "resourceVersion") or text_at(
        document, "rows", -1, "object", "metadata", "resourceVersion"
    )


def _print_documents(
    client: Client, targets: list[Target], scope: str, query: dict[str, str], output: str
) -> None:
    documents = [(target, fetch(client, target, scope, query)) for target in targets]
    if output == "name":
        for target, document in documents:
            for item in [document] if target.name else list_at(document, "items"):
                click.echo(f"{target.kind.qualified}/{text_at(item, 'metadata', 'name')}")
        return
    if len(documents) == 1:
        click.echo(rendered(_with_types(documents[0][1], documents[0][0].kind), output), nl=False)
        return
    items: list[Json] = []
    for target, document in documents:
        typed = _with_types(document, target.kind)
        items += [typed] if target.name else list_at(typed, "items")
    merged: Document = {"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}}
    click.echo(rendered(merged, output), nl=False)


def _with_types(document: Document, kind: Kind) -> Document:
    """A list whose items have apiVersion and kind, which a server may leave out of list items."""
    if "items" not in document:
        return document
    types: Document = {"apiVersion": kind.api_version, "kind": kind.kind}
    items: list[Json] = [{**types, **item} if isinstance(item, dict) else item for item in list_at(document, "items")]
    return {**document, "items": items}


def _follow_documents(client: Client, target: Target, scope: str, query: dict[str, str], output: str) -> None:
    listed = fetch(client, target, scope, query)
    version = text_at(listed, "metadata", "resourceVersion")
    for event in follow(client, target, scope, query, version, ACCEPT_JSON):
        document = mapping_at(event, "object")
        if output == "name":
            click.echo(f"{target.kind.qualified}/{text_at(document, 'metadata', 'name')}")
        else:
            click.echo(("---\n" if output == "yaml" else "") + rendered(document, output), nl=False)

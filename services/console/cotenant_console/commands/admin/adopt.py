"""`cotenant admin adopt`: let nodes adopt a LOG that they do not know.

After LOG was set up again, or restored from an old backup, executors keep the pods that it does not place on them. Without
names the command lists these nodes and why; with names, or --all, they adopt LOG: from then on they stop pods without a
placement.
"""

from __future__ import annotations

import click

from cotenant.kinds.nodes import CONDITION_LOG_UNKNOWN, NODES
from cotenant_console.api.client import Client, Json, list_at, text_at
from cotenant_console.api.connection import with_client
from cotenant_console.tables import Table

ADOPT_PATH = "/apis/cotenant.io/v1/nodes/{name}/adopt"


@click.command("adopt")
@click.argument("nodes", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All nodes whose executor does not know this LOG.")
@with_client
def command(client: Client, nodes: tuple[str, ...], every: bool) -> None:
    """List the nodes that follow an unknown LOG, or let them adopt it: pods without a placement are then stopped."""
    if nodes and every:
        raise click.UsageError("name nodes, or give --all, not both")
    unknown = nodes_with_unknown_log(client)
    for name in unknown if every else nodes:
        answer = client.create(ADOPT_PATH.format(name=name), {})
        if answer.get("wasUnknown"):
            count = int(text_at(answer, "pods", default="0"))
            click.echo(f"node/{name} adopts LOG; {count} pod{'' if count == 1 else 's'} without a placement will be stopped")
        else:
            click.echo(f"node/{name} has adopted LOG already")
    if nodes or (every and unknown):
        return
    if not unknown:
        click.echo("every node follows this LOG", err=True)
        return
    table = Table(("NODE", "REASON"))
    table.rows = list(unknown.items())
    click.echo("\n".join(table.lines()))


def nodes_with_unknown_log(client: Client) -> dict[str, str]:
    """Return why, by node."""
    found: dict[str, str] = {}
    for node in list_at(client.get(NODES.path()), "items"):
        for condition in list_at(node, "status", "conditions"):
            if _is_unknown(condition):
                found[text_at(node, "metadata", "name")] = text_at(condition, "message")
    return found


def _is_unknown(condition: Json) -> bool:
    return text_at(condition, "type") == CONDITION_LOG_UNKNOWN and text_at(condition, "status") == "True"

"""What services leave to a person, or to whatever supervises processes.

`cotenant admin adopt`: let nodes take a LOG that they do not know for their own.
After LOG was set up again, or restored from an old backup, executors keep the pods that it does not place on them. Without
names the command lists these nodes and why; with names, or --all, they adopt LOG: from then on they stop pods without a
placement.

`cotenant admin credentials`: make what `cotenant up` makes in its data folder for a gateway that runs by itself: a CA, the
gateway's certificate, an administrator's token and kubeconfig.

`cotenant admin streams` (`streams`), `cotenant admin nats-credentials` (`nats_credentials`).

`cotenant admin check-server`: whether nats-server must be started again, for systemd and container runtimes; `cotenant up` does
by itself what they need it for.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import click

from cotenant.kinds.nodes import CONDITION_LOG_UNKNOWN, NODES
from cotenant_console.api.client import Client, Json, list_at, text_at
from cotenant_console.api.connection import with_client
from cotenant_console.api.credentials import KUBECONFIG_FILE
from cotenant_console.commands.admin.nats_credentials import command as nats_credentials
from cotenant_console.commands.admin.streams import command as streams
from cotenant_console.pki.identity import ADMINISTRATOR, IdentityError, prepared
from cotenant_console.tables import Table
from cotenant_console.up.server_watch import verdict
from cotenant_console.up.stack import GATEWAY_NAMES

ADOPT_PATH = "/apis/cotenant.io/v1/nodes/{name}/adopt"


@click.group("admin")
def command() -> None:
    """Operations that need an administrator's decision."""


command.add_command(streams)
command.add_command(nats_credentials)


@command.command("adopt")
@click.argument("nodes", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All nodes whose executor does not know this LOG.")
@with_client
def adopt(client: Client, nodes: tuple[str, ...], every: bool) -> None:
    """List the nodes that follow an unknown LOG, or have them adopt it: pods without a placement are then stopped."""
    if nodes and every:
        raise click.UsageError("name nodes, or say --all, not both")
    unknown = nodes_with_unknown_log(client)
    for name in unknown if every else nodes:
        answer = client.create(ADOPT_PATH.format(name=name), {})
        if answer.get("wasUnknown"):
            count = int(text_at(answer, "pods", default="0"))
            click.echo(f"node/{name} adopts LOG; {count} pod{'' if count == 1 else 's'} without a placement will be stopped")
        else:
            click.echo(f"node/{name} knows LOG already")
    if nodes or (every and unknown):
        return
    if not unknown:
        click.echo("every node knows LOG", err=True)
        return
    table = Table(("NODE", "REASON"))
    table.rows = list(unknown.items())
    click.echo("\n".join(table.lines()))


@command.command("credentials")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A name or address by which clients reach the gateway.")
@click.option("--url", default="https://127.0.0.1:8001", show_default=True, help="The gateway's address, for the kubeconfig.")
def credentials(folder: Path, hosts: tuple[str, ...], url: str) -> None:
    """Make certificates and an administrator's token in FOLDER/pki, and FOLDER/kubeconfig; what is there and lasts stays."""
    try:
        identity = prepared(folder, tuple(dict.fromkeys((*GATEWAY_NAMES, *hosts))))
        identity.write_kubeconfig(folder / KUBECONFIG_FILE, url.rstrip("/"))
    except (IdentityError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"kubeconfig of {ADMINISTRATOR}: {folder / KUBECONFIG_FILE}")
    click.echo(f"start the gateway with: {' '.join(identity.gateway_flags())}")


@command.command("check-server")
@click.option(
    "--monitor", default="http://127.0.0.1:8222", show_default=True, metavar="URL", help="Monitoring port of nats-server."
)
@click.option(
    "--store",
    default="/data/jetstream",
    show_default=True,
    type=click.Path(path_type=Path),
    help="The folder that it stores in, on this machine.",
)
def check_server(monitor: str, store: Path) -> None:
    """Exit status 1 if nats-server must be started again: it has refused to store since its disk was full, and there is space.

    0 in any other case: it stores, there is no space yet, or it does not answer (its own supervisor sees to that).
    """
    at = urlsplit(monitor)
    if not at.hostname or not at.port:
        raise click.UsageError(f"--monitor {monitor}: expected http://HOST:PORT")
    found = verdict(at.hostname, at.port, store)
    click.echo(str(found))
    if found.restart:
        raise click.exceptions.Exit(1)


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

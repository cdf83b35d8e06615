"""`cotenant admin check-server`: whether nats-server must be restarted, for systemd and container runtimes.

`cotenant up` does it by itself. It is called every few seconds, so it imports only what it needs.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import click

from cotenant_console.up.server_watch import verdict


@click.command("check-server")
@click.option(
    "--monitor", default="http://127.0.0.1:8222", show_default=True, metavar="URL", help="Monitoring port of nats-server."
)
@click.option(
    "--store",
    default="/data/jetstream",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Its storage folder on this machine.",
)
def command(monitor: str, store: Path) -> None:
    """Exit status 1 if nats-server must be restarted: it has refused writes since its disk was full, and there is space again.

    0 in any other case: it stores writes, there is no space yet, or it does not answer (its own supervisor handles that).
    """
    at = urlsplit(monitor)
    if not at.hostname or not at.port:
        raise click.UsageError(f"--monitor {monitor}: expected http://HOST:PORT")
    found = verdict(at.hostname, at.port, store)
    click.echo(str(found))
    if found.restart:
        raise click.exceptions.Exit(1)

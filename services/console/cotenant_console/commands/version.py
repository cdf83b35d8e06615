"""`cotenant version`: versions of the command and of the server."""

from __future__ import annotations

from importlib.metadata import version

import click

from cotenant_console.api.client import ApiError, Client, UnreachableError, text_at
from cotenant_console.api.endpoint import EndpointUnknownError, find_endpoint


@click.command("version")
@click.option("--server", metavar="URL", help="The gateway's address (or COTENANT_SERVER).")
@click.option("--data", metavar="DIR", help="The data folder of the `cotenant up` to talk to (or COTENANT_DATA).")
def command(server: str | None, data: str | None) -> None:
    """Print the versions of the command and of the server."""
    click.echo(f"Client Version: {version('cotenant-console')}")
    try:
        with Client(find_endpoint(server, data).api_url, timeout_seconds=3) as client:
            answer = client.get("/version")
    except (UnreachableError, EndpointUnknownError, ApiError) as error:
        click.echo(f"Server: none ({error})")
        return
    click.echo(f"Server Version: {text_at(answer, 'gitVersion', default='unknown')}")

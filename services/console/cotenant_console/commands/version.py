"""`cotenant version`: versions of the command and of the server."""

from __future__ import annotations

from importlib.metadata import version

import click

from cotenant_console.api.client import Client, StatusError, UnreachableError, text_at
from cotenant_console.api.connection import chosen_server, with_server
from cotenant_console.api.credentials import CredentialsError
from cotenant_console.api.endpoint import EndpointUnknownError, find_endpoint


@click.command("version")
@with_server
def command(**options: object) -> None:
    """Print the versions of the command and of the server."""
    click.echo(f"Client Version: {version('cotenant-console')}")
    try:
        with Client(find_endpoint(chosen_server(options)).server, timeout_seconds=3) as client:
            answer = client.get("/version")
    except (UnreachableError, EndpointUnknownError, CredentialsError, StatusError) as error:
        click.echo(f"Server: none ({error})")
        return
    click.echo(f"Server Version: {text_at(answer, 'gitVersion', default='unknown')}")

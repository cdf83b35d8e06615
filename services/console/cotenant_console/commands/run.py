"""`cotenant run SERVICE`: one service in the foreground, for example a second scheduler beside the first.

In: the service's name and its own arguments. It takes the addresses of the running `cotenant up` unless the environment
names others. Out: whatever the service prints; its exit status.
"""

from __future__ import annotations

import os
import sys

import click

from cotenant_console.api.endpoint import EndpointUnknownError, find_endpoint
from cotenant_console.up.services import SERVICES, module_of


@click.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("service", type=click.Choice(SERVICES))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(service: str, arguments: tuple[str, ...]) -> None:
    """Run one service in the foreground."""
    environment = dict(os.environ)
    if "COTENANT_NATS_URL" not in environment:
        try:
            environment["COTENANT_NATS_URL"] = find_endpoint().nats_url
        except EndpointUnknownError as error:
            raise click.ClickException(str(error)) from error
    os.execve(sys.executable, [sys.executable, "-m", module_of(service), *arguments], environment)

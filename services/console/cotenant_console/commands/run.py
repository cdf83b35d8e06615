"""`cotenant run SERVICE`: one service in the foreground, for example a second scheduler beside the first.

In: the service's name and its own arguments. It takes the addresses of the running `cotenant up` unless the environment
names others. Out: whatever the service prints; its exit status.
"""

from __future__ import annotations

import os
import socket
import sys

import click

from cotenant_console.api.endpoint import EndpointUnknownError, data_folder, find_endpoint
from cotenant_console.nats_access.finding import access_of, keys_folder
from cotenant_console.nats_access.keys import NatsKeysError, prepared_keys
from cotenant_console.nats_access.roles import SIMULATED_NODES
from cotenant_console.up.services import SERVICES, module_of


@click.command("run", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("service", type=click.Choice(SERVICES))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(service: str, arguments: tuple[str, ...]) -> None:
    """Run one service in the foreground."""
    environment = dict(os.environ)
    if "COTENANT_NATS_URL" not in environment:
        try:
            url = environment["COTENANT_NATS_URL"] = find_endpoint().nats_url
            environment |= _access(service, arguments, url)
        except (EndpointUnknownError, NatsKeysError) as error:
            raise click.ClickException(str(error)) from error
    os.execve(sys.executable, [sys.executable, "-m", module_of(service), *arguments], environment)


def _access(service: str, arguments: tuple[str, ...], url: str) -> dict[str, str]:
    """Return the variables that name the service's credentials in the data folder; none where there are none."""
    folder, user = data_folder(), service
    if not keys_folder(folder).is_dir():
        return {}
    if service == "node-executor":
        # As in the executor's own arguments.
        named = [word.partition("=")[2] or after for word, after in zip(arguments, (*arguments[1:], ""), strict=True)
                 if word.partition("=")[0] == "--node"]
        simulated = any(word.partition("=")[0] == "--simulate" for word in arguments)
        node = named[-1] if named else socket.gethostname().lower()
        user = SIMULATED_NODES if simulated else prepared_keys(keys_folder(folder)).issue_node(node).stem
    access = access_of(folder, user, url)
    files = {"COTENANT_NATS_CREDS": access.credentials, "COTENANT_NATS_CA": access.ca}
    return {name: str(path) for name, path in files.items() if path is not None}

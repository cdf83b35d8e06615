"""Operations for an administrator, or for a process supervisor: one module per command."""

from __future__ import annotations

import click

from cotenant_console.lazy_group import LazyGroup

_HERE = "cotenant_console.commands.admin"
COMMANDS = {
    "adopt": (f"{_HERE}.adopt", "Let nodes adopt a LOG that they do not know."),
    "check-server": (f"{_HERE}.check_server", "Check whether nats-server must be restarted."),
    "credentials": (f"{_HERE}.credentials", "Create certificates and an administrator's token for a gateway."),
    "nats-credentials": (f"{_HERE}.nats_credentials", "Create keys, accounts and credentials of NATS."),
    "streams": (f"{_HERE}.streams", "Declare the streams."),
}


@click.group("admin", cls=LazyGroup, modules=COMMANDS)
def command() -> None:
    """Operations that need an administrator's decision."""

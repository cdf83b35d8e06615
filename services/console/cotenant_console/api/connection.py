"""The shared options of commands that call the gateway: `--server`, `--kubeconfig`, `--data`, `-n`, and how errors are shown.

A refusal of the server is printed as kubectl prints it and ends the command with exit status 1; so does a server
that does not answer, with what to do about it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import IO, Concatenate, ParamSpec, TypeVar

import click

from cotenant_console.api.client import Client, StatusError, UnreachableError
from cotenant_console.api.credentials import CredentialsError
from cotenant_console.api.endpoint import EndpointUnknownError, ServerOptions, find_endpoint

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_NAMESPACE = "default"


class RefusedError(click.ClickException):
    """A refusal of the server, printed without a prefix, as kubectl does."""

    def show(self, file: IO[str] | None = None) -> None:
        """Print the message."""
        click.echo(self.message, file=file, err=file is None)


_SERVER_OPTIONS = {
    "server": ("URL", "The gateway's address (or COTENANT_SERVER)."),
    "token": ("TOKEN", "A bearer token for it (or COTENANT_TOKEN)."),
    "certificate_authority": ("FILE", "The CA of its certificate (or COTENANT_CERTIFICATE_AUTHORITY)."),
    "kubeconfig": ("FILE", "Address and credentials as kubectl has them (or KUBECONFIG)."),
    "data": ("DIR", "The data folder of the `cotenant up` to talk to (or COTENANT_DATA)."),
}


def with_server(body: Callable[P, R]) -> Callable[P, R]:
    """The options for the server and its credentials."""
    for name, (metavar, help_text) in reversed(_SERVER_OPTIONS.items()):
        body = click.option(f"--{name.replace('_', '-')}", metavar=metavar, help=help_text)(body)
    return body


def chosen_server(arguments: dict[str, object]) -> ServerOptions:
    """Extract the values of these options from a command's arguments."""
    return ServerOptions(**{name: str(arguments.pop(name) or "") for name in _SERVER_OPTIONS})


def with_client(body: Callable[Concatenate[Client, P], R]) -> Callable[P, R]:
    """Give a command's body a client as its first argument, and the options for the server."""

    @with_server
    @functools.wraps(body)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        chosen = chosen_server(kwargs)
        try:
            with Client(find_endpoint(chosen).server) as client:
                return body(client, *args, **kwargs)
        except StatusError as error:
            raise RefusedError(describe_refusal(error)) from error
        except (UnreachableError, EndpointUnknownError, CredentialsError) as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None

    return called


def with_namespace(body: Callable[P, R]) -> Callable[P, R]:
    """The option `-n`."""
    return click.option("-n", "--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Namespace.")(body)


def describe_refusal(error: StatusError) -> str:
    """The server's message, with the refused fields below it unless the message names them already."""
    lines = [str(error)]
    for cause in error.causes:
        if cause.message not in error.message:
            lines.append(f"  * {cause.field_path}: {cause.message}" if cause.field_path else f"  * {cause.message}")
    return "\n".join(lines)

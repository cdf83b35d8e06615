"""`cotenant logs`: a pod's output: all of it, its end, or as it is written."""

from __future__ import annotations

import sys

import click

from cotenant.kinds.pods import PODS
from cotenant_console.api.client import Client
from cotenant_console.api.connection import with_client, with_namespace


@click.command("logs")
@click.argument("pod")
@with_namespace
@click.option("-c", "--container", default="", help="The container, where there are several.")
@click.option("-f", "--follow", is_flag=True, help="Print new output as it is written.")
@click.option("--tail", type=click.IntRange(0), default=None, help="Only the last lines.")
@click.option("-p", "--previous", is_flag=True, help="The output of the container's previous run.")
@with_client
def command(
    client: Client, pod: str, namespace: str, container: str, follow: bool, tail: int | None, previous: bool
) -> None:
    """Print a pod's output."""
    name = pod.removeprefix("pod/").removeprefix("pods/")
    query = {
        key: value
        for key, value in (
            ("container", container),
            ("tailLines", "" if tail is None else str(tail)),
            ("previous", "true" if previous else ""),
            ("follow", "true" if follow else ""),
        )
        if value
    }
    path = PODS.path(namespace, name, "log")
    if not follow:
        click.echo(client.text(path, query), nl=False)
        return
    for line in client.stream(path, query, accept="*/*"):
        sys.stdout.buffer.write(line)
        sys.stdout.flush()

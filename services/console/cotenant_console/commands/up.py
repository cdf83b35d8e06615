"""`cotenant up`: the whole stack on this machine, until Ctrl-C or for a stated time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from cotenant_console.api.endpoint import data_folder
from cotenant_console.durations import parse_duration_seconds
from cotenant_console.pki.identity import ProvidedCertificate
from cotenant_console.up.folder_lock import FolderInUseError
from cotenant_console.up.nats_server import NatsServerMissingError
from cotenant_console.up.services import DECIDING, GATED
from cotenant_console.up.session import Session, UpOptions
from cotenant_console.up.stack import NotReadyError


class Duration(click.ParamType[float]):
    """`90s`, `10m`, `1h30m` as seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a duration; fails with the expected format."""
        try:
            seconds = parse_duration_seconds(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if seconds <= 0:
            self.fail("the time must be above zero", param, ctx)
        return seconds


def _of_service(value: object, services: Sequence[str], wanted: str) -> tuple[str, str]:
    """Return a service and what `SERVICE=...` gives it. Raises ValueError; `wanted`: what is expected behind the service."""
    service, _, given = str(value).partition("=")
    if service not in services:
        raise ValueError(f"{service!r} is none of the services {', '.join(services)}")
    if not given:
        raise ValueError(f"{service!r} is a service: give SERVICE={wanted}")
    return service, given


class ServiceFile(click.ParamType[tuple[str, Path]]):
    """`SERVICE=FILE`, a service that decides and an existing file."""

    name = "service"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        """Parse it; fails with what is wrong."""
        try:
            service, file = _of_service(value, DECIDING, "FILE")
        except ValueError as error:
            self.fail(str(error), param, ctx)
        path = Path(file)
        if not path.is_file():
            self.fail(f"{file!r} is not a file", param, ctx)
        return service, path.resolve()


class ServiceGates(click.ParamType[tuple[str, str]]):
    """`SERVICE=GATE=true,...`, a service with feature gates and what its own `--feature-gates` takes."""

    name = "gates"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Parse it; fails with what is wrong. The service itself knows its gates."""
        try:
            return _of_service(value, GATED, "GATE=true,...")
        except ValueError as error:
            self.fail(str(error), param, ctx)


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("up")
@click.option("--data", metavar="DIR", help="Data folder (or COTENANT_DATA; default: cotenant in your state folder).")
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API; by default 8001, or a free one.")
@click.option("--nats-port", type=click.IntRange(1, 65535), help="Port of nats-server; by default 4222, or a free one.")
@click.option("--nodes", type=click.IntRange(0, 100), default=3, show_default=True, help="Simulated nodes beside this host.")
@click.option(
    "--replicas",
    type=click.Choice(["1", "3"]),
    help="How many nats-servers hold the log; by default as many as the data folder was created with, else 1.",
)
@click.option("--tls-cert-file", type=_FILE, help="The gateway's certificate, instead of a generated one.")
@click.option("--tls-private-key-file", type=_FILE, help="Its key.")
@click.option("--certificate-authority", type=_FILE, help="The CA that signed it.")
@click.option("--nats-tls/--no-nats-tls", default=True, show_default=True, help="TLS between NATS and its clients.")
@click.option(
    "--config", "configs", type=ServiceFile(), multiple=True, metavar="SERVICE=FILE", help="The configuration of a service."
)
@click.option(
    "--feature-gates",
    "gates",
    type=ServiceGates(),
    multiple=True,
    metavar="SERVICE=GATE=true,...",
    help="Feature gates of the gateway or of node-executor.",
)
@click.option("--allow-root-pods", "root_pods", is_flag=True, help="Pods of this host may run as root.")
@click.option("--demo", is_flag=True, help="Run the demonstration: a service under load, and batch jobs.")
@click.option("--for", "for_seconds", type=Duration(), help="Stop after this time and print a summary.")
def command(
    data: str | None,
    port: int | None,
    nats_port: int | None,
    nodes: int,
    replicas: str | None,
    tls_cert_file: Path | None,
    tls_private_key_file: Path | None,
    certificate_authority: Path | None,
    nats_tls: bool,
    configs: tuple[tuple[str, Path], ...],
    gates: tuple[tuple[str, str], ...],
    root_pods: bool,
    demo: bool,
    for_seconds: float | None,
) -> None:
    """Start everything on this machine: nats-server (one or three), every service, this host as a node."""
    given = ProvidedCertificate(tls_cert_file, tls_private_key_file, certificate_authority)
    ports = port or 0, nats_port or 0
    servers = int(replicas or 0)
    folder = data_folder(data)
    options = UpOptions(
        folder, nodes, demo, for_seconds, *ports, servers, given, root_pods, nats_tls, dict(configs), dict(gates)
    )
    try:
        status = asyncio.run(_run(options))
    except (FolderInUseError, NatsServerMissingError, NotReadyError) as error:
        raise click.ClickException(str(error)) from error
    raise click.exceptions.Exit(status)


async def _run(options: UpOptions) -> int:
    return await Session(options).run()

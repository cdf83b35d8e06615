"""`cotenant admin streams`: declare the streams, as an operator configures them. `cotenant up` does it by itself.

In: a YAML file (deploy/streams.yaml is an example), an address, an administrator's credentials. Out: the streams, and a line
for each difference: `+` created, `~` changed, `=` unchanged since the server has more, `!` refused for lack of disk space.
With --dry-run nothing is changed. Streams are never made smaller; a second run changes nothing.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from cotenant.log.contract import EXECUTION, HISTORY, LOG, USAGE
from cotenant.log.nats.access import Access, AccessError
from cotenant.log.nats.declaring import StreamPlacement, StreamSettings, wanted_of
from cotenant.log.nats.jetstream import API_ERRORS, BusError
from cotenant.log.nats.log import connect
from cotenant.log.nats.streams import StreamSizes
from cotenant.model.quantities import QuantityError, parse_value
from cotenant_console.api.endpoint import data_folder, read_endpoint
from cotenant_console.durations import parse_duration_seconds
from cotenant_console.nats_access.finding import access_of
from cotenant_console.nats_access.roles import ADMINISTRATOR

CONNECT_SECONDS = 60.0
"""Servers that are started together with this command need some time."""
SILENT_SECONDS = 2.0
STREAMS = (LOG, HISTORY, USAGE, EXECUTION)


class _Stream(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    replicas: int | None = None
    max_bytes: str | int | None = None
    max_age: str | None = None
    placement: StreamPlacement | None = None


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    replicas: int | None = None
    store_bytes: str | int | None = None
    placement: StreamPlacement | None = None
    streams: dict[str, _Stream] = {}


@click.command("streams")
@click.option("-f", "--file", "file", type=click.Path(path_type=Path), help="The desired streams (YAML; default: built in).")
@click.option("--dry-run", is_flag=True, help="Show what would be changed without changing it.")
@click.option("--nats", metavar="URL", help="The servers (or COTENANT_NATS_URL; by default those of the data folder's stack).")
@click.option("--nats-creds", type=click.Path(path_type=Path), help="An administrator's credentials (or COTENANT_NATS_CREDS).")
@click.option("--nats-ca", type=click.Path(path_type=Path), help="CA of the servers' certificates (or COTENANT_NATS_CA).")
@click.option("--data", metavar="DIR", help="Data folder with keys and addresses (or COTENANT_DATA).")
def command(
    file: Path | None, dry_run: bool, nats: str | None, nats_creds: Path | None, nats_ca: Path | None, data: str | None
) -> None:
    """Declare the streams: replicas, sizes and placement. Larger values on the server are kept."""
    folder = data_folder(data)
    endpoint = read_endpoint(folder)
    url = nats or os.environ.get("COTENANT_NATS_URL") or (endpoint.nats_url if endpoint else "nats://127.0.0.1:4222")
    found = access_of(folder, ADMINISTRATOR, url)
    access = Access(nats_creds or found.credentials, nats_ca or found.ca)
    try:
        wanted = wanted_in(file.read_text(), str(file)) if file is not None else {}
        lines = asyncio.run(_declare(url, access, wanted, dry_run))
    except (OSError, ValueError, AccessError, BusError, *API_ERRORS) as error:
        raise click.ClickException(str(error) or f"{url} does not answer within {CONNECT_SECONDS:.0f} s") from error
    click.echo("\n".join(lines) or "the streams match the declaration")


async def _declare(url: str, access: Access, wanted: dict[str, StreamSettings], dry_run: bool) -> list[str]:
    async with asyncio.timeout(CONNECT_SECONDS):
        connecting = asyncio.ensure_future(connect(url, "streams", access))
        if not (await asyncio.wait({connecting}, timeout=SILENT_SECONDS))[0]:
            click.echo(f"{url} does not answer yet; waiting up to {CONNECT_SECONDS:.0f} s", err=True)
        log = await connecting
    try:
        if dry_run:
            return await log.differences(wanted)
        lines = await log.declare(wanted)
        await log.store_identity()
        return lines
    finally:
        await log.close()


def wanted_in(text: str, name: str) -> dict[str, StreamSettings]:
    """Return what a file sets for each stream. Raises ValueError with the file's name, the place and what is expected."""
    try:
        declared = msgspec.convert(yaml.safe_load(text) or {}, _File, strict=False)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"{name}: {error}") from error
    if unknown := sorted(set(declared.streams) - set(STREAMS)):
        raise ValueError(f"{name}: streams.{unknown[0]}: the streams are {', '.join(STREAMS)}")
    store = _octets(declared.store_bytes, f"{name}: storeBytes")
    found = wanted_of(_replicas(declared.replicas, f"{name}: replicas") or 0, StreamSizes.within(store) if store else None)
    for stream in STREAMS:
        own, where = declared.streams.get(stream, _Stream()), f"{name}: streams.{stream}"
        changes: dict[str, Any] = {
            "replicas": _replicas(own.replicas, f"{where}.replicas"),
            "max_bytes": _octets(own.max_bytes, f"{where}.maxBytes"),
            "max_age_seconds": _seconds(own.max_age, f"{where}.maxAge"),
            "placement": own.placement or declared.placement,
        }
        given = {key: value for key, value in changes.items() if value is not None}
        found[stream] = msgspec.structs.replace(found.get(stream, StreamSettings()), **given)
    return found


def _replicas(number: int | None, where: str) -> int | None:
    if number not in (None, 1, 3, 5):
        raise ValueError(f"{where}: {number}: expected 1, 3 or 5")
    return number


def _octets(text: str | int | None, where: str) -> int | None:
    if text is None:
        return None
    try:
        octets = parse_value(str(text))
    except QuantityError as error:
        raise ValueError(f"{where}: {error}") from error
    if octets < 1 << 20:
        raise ValueError(f"{where}: {text}: expected 1Mi or more")
    return octets


def _seconds(text: str | None, where: str) -> int | None:
    if text is None:
        return None
    try:
        return max(int(parse_duration_seconds(text)), 1)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error

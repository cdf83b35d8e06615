"""Settings of every process: command line and environment."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from cotenant.log.nats.access import NOBODY, Access

DEFAULT_NATS_URL = "nats://127.0.0.1:4222"
ONLY_PARTITION = "0"
"""No service partitions its entities: quotas, gangs, preemption, spread and budgets count pods on all nodes, so two partitions
would each decide about the same pods, and each use the same room."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Common settings. `http_port` 0 picks a free port, -1 serves nothing; `config` is JSON text, `{}` for defaults."""

    nats_url: str = DEFAULT_NATS_URL
    nats_access: Access = NOBODY
    cell: str = "cell"
    partition: str = ONLY_PARTITION
    replica: str = "0"
    http_host: str = "127.0.0.1"
    http_port: int = 0
    log_level: str = "INFO"
    log_format: str = "text"
    config: str = "{}"
    longest_ttl_seconds: int = 0
    """For tests and benchmarks: upper bound of tombstones' TTL on LOG; 0: none."""
    clock_offset_seconds: float = 0.0
    """For tests of wrong clocks: added to the machine's clock."""


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    """Return a parser with the common flags; a service adds its own."""
    made = argparse.ArgumentParser(prog=f"cotenant-{name}", description=summary)
    made.add_argument(
        "--nats",
        default=os.environ.get("COTENANT_NATS_URL", DEFAULT_NATS_URL),
        help="URL of the NATS server, or several, comma-separated",
    )
    for flag, variable, help_text in (
        ("--nats-creds", "COTENANT_NATS_CREDS", "this service's NATS credentials (.creds); by default it connects without any"),
        ("--nats-ca", "COTENANT_NATS_CA", "CA of the NATS servers' certificates (PEM); with it, connect over TLS only"),
    ):
        given = os.environ.get(variable)
        made.add_argument(flag, type=Path, default=Path(given) if given else None, metavar="FILE", help=help_text)
    made.add_argument("--cell", default=os.environ.get("COTENANT_CELL", "cell"), help="name of the cell (one log)")
    made.add_argument(
        "--partition", type=_only_partition, default=ONLY_PARTITION, help="partition of its entities; only 0 is supported"
    )
    made.add_argument(
        "--replica",
        default=os.environ.get("COTENANT_REPLICA", f"{socket.gethostname()}-{os.getpid()}"),
        help="name of this replica, unique among those of the partition",
    )
    made.add_argument("--http-host", default="127.0.0.1", help="address of /metrics, /healthz and /readyz")
    made.add_argument("--http-port", type=int, default=0, help="their port; 0 picks one, -1 serves none")
    made.add_argument("--log-level", default=os.environ.get("COTENANT_LOG_LEVEL", "INFO"))
    made.add_argument("--log-format", choices=("text", "json"), default=os.environ.get("COTENANT_LOG_FORMAT", "text"))
    made.add_argument(
        "--longest-ttl", type=int, default=int(os.environ.get("COTENANT_LONGEST_TTL") or 0), help=argparse.SUPPRESS
    )
    made.add_argument("--clock-offset", type=float, default=0.0, help=argparse.SUPPRESS)
    made.add_argument("--config", metavar="FILE", help="YAML or JSON file with the service's configuration")
    made.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="one configuration field (VALUE is YAML)")
    return made


def _only_partition(given: str) -> str:
    """Raises argparse.ArgumentTypeError for any other: the process ends with status 2 before it decides anything."""
    if given != ONLY_PARTITION:
        raise argparse.ArgumentTypeError(
            f"{given!r}: no service divides its nodes or quotas among partitions; two would both decide about every pod. "
            "Leave --partition out, and start further processes as replicas (--replica)"
        )
    return given


def clock_of(settings: Settings) -> Callable[[], datetime]:
    """Return the wall clock in UTC, shifted by the settings' offset."""
    offset = timedelta(seconds=settings.clock_offset_seconds)
    return lambda: datetime.now(UTC) + offset


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Return the settings from parsed arguments. Raises SystemExit with a message on an unreadable configuration."""
    return Settings(
        nats_url=arguments.nats,
        nats_access=Access(arguments.nats_creds, arguments.nats_ca),
        cell=arguments.cell,
        partition=arguments.partition,
        replica=arguments.replica,
        http_host=arguments.http_host,
        http_port=arguments.http_port,
        log_level=arguments.log_level.upper(),
        log_format=arguments.log_format,
        config=_config_text(arguments.config, arguments.set),
        longest_ttl_seconds=max(arguments.longest_ttl, 0),
        clock_offset_seconds=arguments.clock_offset,
    )


def _config_text(path: str | None, assignments: Sequence[str]) -> str:
    if not path and not assignments:
        return "{}"
    # A node's executor is started without a configuration, and these modules take 1.5 MiB.
    import yaml

    fields: dict[str, object] = {}
    if path:
        try:
            with open(path, encoding="utf-8") as file:
                loaded = yaml.safe_load(file)
        except (OSError, yaml.YAMLError) as error:
            raise SystemExit(f"--config {path}: {error}") from error
        if loaded is not None and not isinstance(loaded, dict):
            raise SystemExit(f"--config {path}: expected a mapping of fields, found {type(loaded).__name__}")
        fields.update(loaded or {})
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals:
            raise SystemExit(f"--set {assignment}: expected KEY=VALUE")
        try:
            fields[key.strip()] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SystemExit(f"--set {assignment}: {error}") from error
    return msgspec.json.encode(fields, order="sorted").decode()

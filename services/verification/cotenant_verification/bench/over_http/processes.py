"""The stack of `bench churn`: `cotenant up` on a folder, and its processes' usage.

In: a folder, a number of simulated nodes; process ids. Out: the running stack with its gateway; CPU seconds and resident memory
(MiB) from /proc.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from cotenant_console.api.credentials import Server
from cotenant_console.api.endpoint import read_endpoint
from cotenant_console.up.forking.client import FORK_SERVER
from cotenant_verification.bench.testbed import BenchError

CONSOLE = str(Path(sys.executable).parent / "cotenant")
"""The command of this installation."""
READY_SECONDS = 150.0
STOP_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.asynccontextmanager
async def stack(
    folder: Path,
    nodes: int,
    *,
    nats_tls: bool = True,
    flags: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    started: Callable[[int], None] = lambda _pid: None,
) -> AsyncIterator[tuple[subprocess.Popen[bytes], Server]]:
    """Start `cotenant up` on a folder and wait until it is ready; stop it as Ctrl-C would. `flags`: further ones of
    the command; `environment`: of its services, this process's where None; `started` gets its process id."""
    process = _start(folder, nodes, (*flags, "--nats-tls" if nats_tls else "--no-nats-tls"), environment)
    try:
        started(process.pid)
        deadline = time.monotonic() + READY_SECONDS
        while (endpoint := read_endpoint(folder)) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"the stack did not start: {(folder.parent / 'up.log').read_text(errors='replace')[-600:]}")
            await asyncio.sleep(0.05)
        yield process, endpoint.server
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.to_thread(_ended, process)


def _start(
    folder: Path, nodes: int, flags: Sequence[str], environment: Mapping[str, str] | None
) -> subprocess.Popen[bytes]:
    command = [CONSOLE, "up", "--data", str(folder), "--nodes", str(nodes), *flags]
    with (folder.parent / "up.log").open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def processes(root: int) -> dict[str, int]:
    """The stack's processes by service."""
    found: dict[str, int] = {}
    seen: dict[int, tuple[int, list[str]]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            seen[int(entry.name)] = parent, (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (OSError, IndexError):
            continue
    # `cotenant up` starts nats-server, and its fork server the services.
    starters = {root, *(pid for pid, (parent, argv) in seen.items() if parent == root and FORK_SERVER in argv)}
    for pid, (parent, argv) in seen.items():
        if parent not in starters:
            continue
        if "--replica" in argv:
            found[argv[argv.index("--replica") + 1]] = pid
        elif argv and argv[0].endswith("nats-server"):
            found["nats-server"] = pid
    return found


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(pid: int) -> int:
    """Resident memory of a process; 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except OSError:
        return 0

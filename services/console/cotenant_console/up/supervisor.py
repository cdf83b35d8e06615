"""The supervisor: starts processes, restarts them when they end, and ends them all at the end.

In: `ProcessSpec`s. Out: running processes, their states for the screen, and a list of `Crash`es. Every process gets
a session of its own, so that Ctrl-C in the terminal reaches only the supervisor, which then ends them in the stated
order; if the supervisor itself is killed, the kernel sends each of them SIGTERM. Output goes to one file per
process. An exit that the supervisor did not order is a crash, whatever the cause: it is recorded, shown, and counted in
the exit status.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import BinaryIO

from cotenant_console.up.forking.client import ForkServer
from cotenant_console.up.process_settings import prepare
from cotenant_console.up.restarts import Backoff

MAX_LOG_BYTES = 16 * 1024 * 1024
MAX_CRASHES_KEPT = 200
TAIL_BYTES = 2000
RESTART_LOOK_SECONDS = 0.05
KILLED = "killed by SIGKILL"


class ProcessState(StrEnum):
    """State of a supervised process."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPED = "stopped"


@dataclass(frozen=True)
class ProcessSpec:
    """One process to keep running."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    stop_seconds: float = 5.0
    forked: bool = False
    """`argv` is `python -m MODULE ...`, and a fork of the supervisor's fork server, where it has one, runs it, in the fork
    server's environment."""
    timer_slack_us: int = 0
    """How much later the kernel may end the process' sleeps; 0: its default, 50 us. Not of forks."""


@dataclass(frozen=True)
class Crash:
    """An exit that was not ordered."""

    name: str
    at: datetime
    how: str
    last_line: str

    def __str__(self) -> str:
        last_line = f": {self.last_line}" if self.last_line else ""
        return f"{self.name} ended unexpectedly ({self.how}){last_line}"


@dataclass
class Supervised:
    """The state of one process."""

    spec: ProcessSpec
    log: Path
    state: ProcessState = ProcessState.STARTING
    pid: int = 0
    starts: int = 0
    backoff: Backoff = field(default_factory=Backoff)


class Supervisor:
    """Keeps a set of processes running until `stop`."""

    def __init__(self, log_folder: Path, forks: ForkServer | None = None) -> None:
        """`forks`: starts the processes that are to be forked."""
        self.processes: dict[str, Supervised] = {}
        self.crashes: deque[Crash] = deque(maxlen=MAX_CRASHES_KEPT)
        self.crash_count = 0
        self._log_folder = log_folder
        self._forks = forks
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()
        self._restarting: set[str] = set()

    async def prepare(self) -> None:
        """Start the fork server, which imports while others do their part. Raises OSError."""
        if self._forks is not None:
            self._log_folder.mkdir(parents=True, exist_ok=True)
            with (self._log_folder / "fork-server.log").open("ab") as log:
                await self._forks.start(log)

    def start(self, spec: ProcessSpec) -> None:
        """Start a process and keep it running. Names are unique."""
        assert spec.name not in self.processes, spec.name
        self._log_folder.mkdir(parents=True, exist_ok=True)
        process = Supervised(spec, self._log_folder / f"{spec.name}.log")
        _make_room(process.log)
        self.processes[spec.name] = process
        self._tasks[spec.name] = asyncio.create_task(self._keep(process), name=f"keep-{spec.name}")

    async def stop(self, *stages: Sequence[str]) -> None:
        """End everything, stage by stage: SIGTERM, its time to end, SIGKILL. Processes in no stage end last."""
        named = {name for stage in stages for name in stage}
        rest = [name for name in self.processes if name not in named]
        for stage in [*stages, rest]:
            await asyncio.gather(*(self.stop_one(name) for name in stage if name in self.processes))
        if self._forks is not None:
            await self._forks.close()

    async def stop_one(self, name: str) -> None:
        """Stop one process and do not restart it."""
        process, task = self.processes[name], self._tasks[name]
        self._stopping.add(name)
        if process.pid:
            _signal(process.pid, signal.SIGTERM)
            _, late = await asyncio.wait([task], timeout=process.spec.stop_seconds)
            if late:
                _signal(process.pid, signal.SIGKILL)
        else:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        process.state, process.pid = ProcessState.STOPPED, 0

    async def replace(self, spec: ProcessSpec) -> None:
        """End a process and keep one of another specification running in its place."""
        await self.stop_one(spec.name)
        self._stopping.discard(spec.name)
        del self.processes[spec.name], self._tasks[spec.name]
        self.start(spec)

    async def restart(self, name: str) -> None:
        """End one process and start it again; that is no crash. Returns once it has ended."""
        process = self.processes[name]
        pid, ends_at = process.pid, time.monotonic() + process.spec.stop_seconds
        if not pid or name in self._stopping:
            return
        self._restarting.add(name)
        _signal(pid, signal.SIGTERM)
        while process.pid == pid and name not in self._stopping:
            if time.monotonic() > ends_at:
                _signal(pid, signal.SIGKILL)
            await asyncio.sleep(RESTART_LOOK_SECONDS)

    async def _keep(self, process: Supervised) -> None:
        while process.spec.name not in self._stopping:
            await asyncio.sleep(process.backoff.pause_seconds)
            began = time.monotonic()
            try:
                how = await self._run_once(process)
            except OSError as error:
                how = f"cannot be started: {error}"
            process.pid = 0
            if process.spec.name in self._stopping:
                return
            process.state = ProcessState.RESTARTING
            if process.spec.name in self._restarting:
                self._restarting.discard(process.spec.name)
                continue
            process.backoff = process.backoff.after_exit(time.monotonic() - began)
            self.crash_count += 1
            # A process that was killed had no time to log why.
            last_line = "" if how == KILLED else _last_line(process.log)
            self.crashes.append(Crash(process.spec.name, datetime.now(UTC), how, last_line))

    async def _run_once(self, process: Supervised) -> str:
        """Run the process until it exits, and report how."""
        with process.log.open("ab") as log:
            process.pid, ended = await self._started(process.spec, log)
        process.state = ProcessState.RUNNING
        process.starts += 1
        if process.spec.name in self._stopping:
            _signal(process.pid, signal.SIGTERM)
        code = await ended
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    async def _started(self, spec: ProcessSpec, log: BinaryIO) -> tuple[int, Awaitable[int]]:
        if spec.forked and self._forks is not None:
            await self.prepare()
            return await self._forks.fork(spec.argv, log)
        child = await asyncio.create_subprocess_exec(
            *spec.argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(spec.environment),
            start_new_session=True,
            preexec_fn=partial(prepare, os.getpid(), spec.timer_slack_us),
        )
        return child.pid, child.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _make_room(log: Path) -> None:
    """Keep one older log beside the current one: a log that has grown too large becomes `.1`."""
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))


def _last_line(log: Path) -> str:
    """The last line a process wrote, for the screen."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1].strip()[:200] if lines else ""

"""The private testbed of a benchmark: one server or three of its own (disk, fsync, HISTORY), and processes whose CPU and memory
are read.

Everything is in one temporary folder, which is removed at the end; processes are ended by their ids.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import msgspec

from cotenant.events.envelope import Event
from cotenant.log.contract import LOG, Stored, Write
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.log.nats.streams import StreamSizes
from cotenant_console.up.nats_server import answers, free_port, members, nats_processes, nats_urls
from cotenant_console.up.process_settings import prepare
from cotenant_verification.bench.audit.verification import READ

SERVER = "nats-server"
BATCH = 500
STOP_SECONDS = 20.0
LOADED_SECONDS = 120.0


class BenchError(RuntimeError):
    """The benchmark could not be carried out; the text states why."""


class Testbed:
    """Use as an asynchronous context."""

    def __init__(self, replicas: int = 1) -> None:
        """`replicas`: the number of servers that hold the log."""
        self.replicas = replicas
        self.ports: list[int] = []
        for _ in range(replicas):
            self.ports.append(free_port(self.ports))
        self.url = nats_urls(self.ports)
        self.folder: Path
        self.log: NatsLog
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    async def __aenter__(self) -> Testbed:
        self.folder = Path(tempfile.mkdtemp(prefix="cotenant-bench-"))
        try:
            servers, store_bytes = nats_processes(self.folder, members(self.ports))
            for spec in servers:
                prepared = partial(prepare, os.getpid(), spec.timer_slack_us)
                self._start(spec.name, list(spec.argv), dict(spec.environment), prepared)
            for port in self.ports:
                await self.until(partial(answers, port), "the NATS server answers", 15)
            self.log = await connect(self.url, "bench")
            await self.log.declare(replicas=self.replicas, sizes=StreamSizes.within(store_bytes))
            # The gateway does this while LOG has room, but not every benchmark has a gateway.
            await self.log.enforce(False)
        except BaseException:
            self._end_everything()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.log.close()
        finally:
            self._end_everything()

    def _end_everything(self) -> None:
        """Stop all processes, the server last, and remove the folder, on an interrupt as well."""
        for name, process in self.processes.items():
            if _kind(name) != SERVER and process.poll() is None:
                process.terminate()
        for name in sorted(self.processes, key=lambda name: _kind(name) == SERVER):
            self.stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(
        self, name: str, argv: list[str], env: dict[str, str] | None = None, prepared: Callable[[], None] | None = None
    ) -> None:
        environment = {**os.environ, **(env or {})}
        with (self.folder / f"{name}.log").open("ab") as out:
            self.processes[name] = subprocess.Popen(argv, stdout=out, stderr=out, env=environment, preexec_fn=prepared)

    def start_module(self, name: str, module: str, *arguments: str) -> None:
        """Start a Python module as a process."""
        self._start(name, [sys.executable, "-m", module, *arguments])

    def written(self, orders: msgspec.Struct) -> str:
        """Write the orders of a process to a file; returns its path."""
        path = self.folder / f"orders-{len(self.processes)}.json"
        path.write_bytes(msgspec.json.encode(orders))
        return str(path)

    def start_scheduler(self, url: str = "") -> None:
        """Start the scheduler. `url`: where it reaches the log, if not at the servers themselves."""
        self.start_module("scheduler", "cotenant_scheduler", "--nats", url or self.url, "--http-port", "-1")

    def stop(self, name: str) -> None:
        """End a process and wait for it."""
        process = self.processes.pop(name)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def kill(self, name: str) -> None:
        """End a process as a crash would."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    async def ended(self, name: str, seconds: float) -> None:
        """Wait until a process has exited by itself with status 0."""
        process = self.processes[name]
        deadline = time.monotonic() + seconds
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise BenchError(f"{name} did not end within {seconds:.0f} s: {self.tail(name)}")
            await asyncio.sleep(0.05)
        if process.returncode:
            raise BenchError(f"{name} failed: {self.tail(name)}")

    def tail(self, name: str, characters: int = 600) -> str:
        """The end of a process's log."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-characters:]

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, seconds: float) -> None:
        """Wait for an asynchronous condition."""
        deadline = time.monotonic() + seconds
        while not await condition():
            if time.monotonic() > deadline:
                raise BenchError(f"not within {seconds:.0f} s: {what}")
            await asyncio.sleep(0.05)

    async def scheduler_loaded(self, times: int = 1) -> None:
        """Wait until the scheduler has logged this many loads."""

        async def loaded() -> bool:
            return self.loads() >= times

        try:
            await self.until(loaded, "the scheduler has loaded its state", LOADED_SECONDS)
        except BenchError as error:
            raise BenchError(f"{error}: {self.tail('scheduler')}") from None

    def loads(self) -> int:
        """How often the scheduler has loaded its state."""
        return (self.folder / "scheduler.log").read_text(errors="replace").count(": loaded,")

    def conflicts(self) -> int:
        """How often the scheduler was refused because another one had committed first."""
        return (self.folder / "scheduler.log").read_text(errors="replace").count("another replica committed first")

    async def write(self, events: Iterable[Event]) -> None:
        """Store the cluster's objects, in batches."""
        waiting: list[Write] = []
        for event in events:
            waiting.append(Write(event=event))
            if len(waiting) == BATCH:
                await self._store(waiting)
        await self._store(waiting)

    async def _store(self, waiting: list[Write]) -> None:
        if waiting and not isinstance(outcome := await self.log.append(waiting), Stored):
            raise BenchError(f"the workload was not stored: {outcome.reason}")
        waiting.clear()

    async def events(self) -> list[Event]:
        """All events that the check needs, in the log's order."""
        return await read_all(self.log, LOG, READ)

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time of each process so far; of `executors-0`, `executors-1`, ... together."""
        ticks = os.sysconf("SC_CLK_TCK")
        found: dict[str, float] = {}
        for name, process in self.processes.items():
            try:
                fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            kind = _kind(name)
            found[kind] = found.get(kind, 0.0) + (int(fields[11]) + int(fields[12])) / ticks
        return found

    def peak_memory_mib(self) -> dict[str, int]:
        """The highest resident memory of each process so far; of numbered ones together."""
        found: dict[str, int] = {}
        for name, process in self.processes.items():
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                continue
            # A process that has just exited has no memory figure.
            for line in status.splitlines():
                if line.startswith("VmHWM"):
                    kind = _kind(name)
                    found[kind] = found.get(kind, 0) + int(line.split()[1]) // 1024
        return found


def _kind(name: str) -> str:
    """The name of a group of processes: that of a numbered one without its number."""
    return name.rstrip("0123456789").rstrip("-")

"""`bench churn`: pods that come and go on a real stack, for as long as it takes to see whether it wears out.

In: a rate, how long a pod lives, for how long, how often a service is killed. Out: figures of each minute as it passes, then
those of the start beside those of the end: create to running, delete to gone, the servers' CPU time a pod, memory. At the end
the stack is stopped and started again on its log.

The stack is `cotenant up` itself with simulated nodes. Pods are created and deleted over HTTP, one watch sees what becomes of
them. Open loop: a slow stack does not slow its users down.

Bounds: MAX_UNDER_WAY requests at once; what is over is counted as `skipped`, not queued.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from cotenant_console.api.endpoint import read_endpoint
from cotenant_verification.bench.figures import Latency, latency
from cotenant_verification.bench.testbed import BenchError

NAMESPACE = "churn"
MAX_UNDER_WAY = 500
READY_SECONDS = 150.0
STOP_SECONDS = 60.0
DRAIN_SECONDS = 60.0
COMPARED_MINUTES = 3
"""Start and end are this many minutes each (the first of all is left out: caches fill)."""
KILLED = (
    "gateway",
    "scheduler",
    "batch-resource-calculator",
    "quota-tree",
    "node-executor-simulated",
    "metrics-ingest",
    "nats-server",
)
"""In this order, one after the other."""
_TICKS = os.sysconf("SC_CLK_TCK")


class Minute(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What was seen of one minute. CPU in milliseconds a pod, memory in MiB."""

    minute: int
    created: int
    deleted: int
    skipped: int = 0
    failed: int = 0
    running_ms: Latency | None = None
    gone_ms: Latency | None = None
    cpu_ms_per_pod: dict[str, float] = {}
    memory_mib: dict[str, int] = {}
    killed: str = ""


class ChurnFigures(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Start and end of a run; ratios above 1 mean slower at the end."""

    pods: int
    minutes: int
    start_running_ms: Latency | None = None
    end_running_ms: Latency | None = None
    running_ratio: float | None = None
    start_cpu_ms_per_pod: dict[str, float] = {}
    end_cpu_ms_per_pod: dict[str, float] = {}
    start_memory_mib: dict[str, int] = {}
    end_memory_mib: dict[str, int] = {}
    back_seconds: dict[str, float] = {}
    """After it was killed, by service: until a pod that was created later ran."""
    never_running: int = 0
    never_gone: int = 0
    failed: int = 0
    restart_seconds: float | None = None
    """`cotenant up` on the log of the run, from its start to ready."""
    log_messages: int = 0


class Churn:
    """One run against one stack."""

    def __init__(self, url: str, rate: float, life: float) -> None:
        self.url = url
        self.rate = rate
        self.life = life
        self.created: dict[str, float] = {}
        self.deleted: dict[str, float] = {}
        self.running: list[tuple[float, float]] = []
        """When created, and after how many seconds it ran."""
        self.gone: list[tuple[float, float]] = []
        self.pods = self.skipped = self.failed = 0
        self._ran: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> None:
        """Create pods for so long, then wait until all that was deleted is gone."""
        connector = aiohttp.TCPConnector(limit=64)
        async with aiohttp.ClientSession(self.url, connector=connector, timeout=aiohttp.ClientTimeout(30)) as session:
            await self._namespace(session)
            watching = asyncio.ensure_future(self._watch(session))
            try:
                await self._create_all(session, seconds)
                deadline = time.monotonic() + self.life + DRAIN_SECONDS
                while (self._tasks or self.deleted) and time.monotonic() < deadline:  # noqa: ASYNC110 - bounded
                    await asyncio.sleep(0.2)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _namespace(self, session: aiohttp.ClientSession) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        async with session.post("/api/v1/namespaces", json=body) as answer:
            if answer.status not in (201, 409):
                raise BenchError(f"the namespace was refused: {await answer.text()}")

    async def _create_all(self, session: aiohttp.ClientSession, seconds: float) -> None:
        started = time.monotonic()
        for number in itertools.count():
            due = started + number / self.rate
            if due > started + seconds:
                return
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if len(self._tasks) >= MAX_UNDER_WAY + self.life * self.rate:
                self.skipped += 1
                continue
            task = asyncio.ensure_future(self._live(session, f"p{number}"))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _live(self, session: aiohttp.ClientSession, name: str) -> None:
        """One pod from its creation to the request for its end."""
        self.created[name] = time.monotonic()
        self.pods += 1
        if not await self._ask(lambda: session.post(f"/api/v1/namespaces/{NAMESPACE}/pods", json=pod(name)), 201, 409):
            self.created.pop(name, None)
            return
        await asyncio.sleep(self.life)
        self.deleted[name] = time.monotonic()
        if not await self._ask(lambda: session.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"), 200, 202, 404):
            self.deleted.pop(name, None)

    async def _ask(self, request: Callable[[], Any], *wanted: int) -> bool:
        """Ask until it is answered, for at most 60 s: while a gateway is started again, users try again."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                async with request() as answer:
                    await answer.read()
                    if answer.status in wanted:
                        return True
                    if answer.status < 500:
                        break
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass
            await asyncio.sleep(0.25)
        self.failed += 1
        return False

    async def _watch(self, session: aiohttp.ClientSession) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError):
                await self._watch_once(session)
            await asyncio.sleep(0.2)

    async def _watch_once(self, session: aiohttp.ClientSession) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        async with session.get(path) as answer:
            if answer.status != 200:
                return
            listed = await answer.json()
        there = set()
        for item in listed["items"]:
            there.add(item["metadata"]["name"])
            self._see("MODIFIED", item)
        for name in [name for name in self.deleted if name not in there]:
            self._gone(name)
        version = listed["metadata"]["resourceVersion"]
        query = {"watch": "1", "resourceVersion": version}
        async with session.get(path, params=query, timeout=aiohttp.ClientTimeout(None)) as answer:
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                self._see(event["type"], event["object"])

    def _see(self, what: str, item: dict[str, Any]) -> None:
        name = item["metadata"]["name"]
        now = time.monotonic()
        if what == "DELETED":
            self._gone(name)
        elif item.get("status", {}).get("phase") == "Running" and name not in self._ran and name in self.created:
            self._ran.add(name)
            self.running.append((self.created[name], now - self.created[name]))

    def _gone(self, name: str) -> None:
        asked = self.deleted.pop(name, None)
        self.created.pop(name, None)
        self._ran.discard(name)
        if asked is not None:
            self.gone.append((asked, time.monotonic() - asked))


def pod(name: str) -> dict[str, Any]:
    """A small pod for simulated nodes."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeSelector": {"cotenant.io/simulated": "true"},
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
            ],
        },
    }


@contextlib.asynccontextmanager
async def stack(folder: Path, nodes: int) -> AsyncIterator[tuple[subprocess.Popen[bytes], str]]:
    """`cotenant up` on a folder, ready; ended as by Ctrl-C."""
    process = _start(folder, nodes)
    try:
        deadline = time.monotonic() + READY_SECONDS
        while (endpoint := read_endpoint(folder)) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"the stack did not start: {(folder.parent / 'up.log').read_text(errors='replace')[-600:]}")
            await asyncio.sleep(0.05)
        yield process, endpoint.api_url
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.to_thread(_ended, process)


def _start(folder: Path, nodes: int) -> subprocess.Popen[bytes]:
    command = [str(Path(sys.executable).parent / "cotenant"), "up", "--data", str(folder), "--nodes", str(nodes)]
    with (folder.parent / "up.log").open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)


def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def processes(root: int) -> dict[str, int]:
    """The stack's processes by service."""
    found: dict[str, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            argv = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (OSError, IndexError):
            continue
        if parent != root:
            continue
        if "--replica" in argv:
            found[argv[argv.index("--replica") + 1]] = int(entry.name)
        elif argv and argv[0].endswith("nats-server"):
            found["nats-server"] = int(entry.name)
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


async def run(
    rate: float, life: float, seconds: float, nodes: int, kill_every: float, show: Callable[[Minute], None]
) -> ChurnFigures:
    """One run, whole."""
    with tempfile.TemporaryDirectory(prefix="cotenant-churn-") as temporary:
        folder = Path(temporary) / "data"
        folder.mkdir()
        async with stack(folder, nodes) as (process, url):
            churn = Churn(url, rate, life)
            watch = _Observer(churn, process.pid, kill_every, show)
            observing = asyncio.ensure_future(watch.run())
            try:
                await churn.run(seconds)
            finally:
                observing.cancel()
                await asyncio.gather(observing, return_exceptions=True)
        started = time.monotonic()
        async with stack(folder, nodes):
            restart = time.monotonic() - started
    return _figures(churn, watch, restart)


class _Observer:
    """Looks at the processes once a minute, and kills one now and then."""

    def __init__(self, churn: Churn, root: int, kill_every: float, show: Callable[[Minute], None]) -> None:
        self._churn = churn
        self._root = root
        self._kill_every = kill_every
        self._show = show
        self.minutes: list[Minute] = []
        self.killed: list[tuple[float, str]] = []

    async def run(self) -> None:
        started = time.monotonic()
        victims = itertools.cycle(KILLED)
        next_kill = started + self._kill_every if self._kill_every else float("inf")
        before = self._look()
        counts = (0, 0, 0, 0)
        for minute in itertools.count(1):
            killed = ""
            while (now := time.monotonic()) < started + 60 * minute:
                if now >= next_kill:
                    victim = next(victims)
                    pid = processes(self._root).get(victim)
                    if pid is not None:
                        os.kill(pid, signal.SIGKILL)
                        self.killed.append((now, victim))
                        killed = victim
                    next_kill = now + self._kill_every
                await asyncio.sleep(min(1.0, started + 60 * minute - now))
            begin = started + 60 * (minute - 1)
            churn, after = self._churn, self._look()
            now_counts = (churn.pods, len(churn.gone), churn.skipped, churn.failed)
            made, ended, skipped, failed = (new - old for new, old in zip(now_counts, counts, strict=True))
            counts = now_counts
            used = {
                name: round(1e3 * (cpu - before.get(name, (pid, 0.0))[1]) / max(made, 1), 2)
                for name, (pid, cpu) in after.items()
                if before.get(name, (pid, 0.0))[0] == pid
            }
            seen = Minute(
                minute=minute,
                created=made,
                deleted=ended,
                skipped=skipped,
                failed=failed,
                running_ms=latency([1e3 * took for at, took in churn.running if at >= begin]),
                gone_ms=latency([1e3 * took for at, took in churn.gone if at >= begin]),
                cpu_ms_per_pod=used,
                memory_mib={name: memory_mib(pid) for name, (pid, _) in after.items()},
                killed=killed,
            )
            before = after
            self.minutes.append(seen)
            self._show(seen)

    def _look(self) -> dict[str, tuple[int, float]]:
        return {name: (pid, cpu_seconds(pid)) for name, pid in sorted(processes(self._root).items())}


def _figures(churn: Churn, watch: _Observer, restart: float) -> ChurnFigures:
    whole = [minute for minute in watch.minutes[1:] if minute.created]
    calm = [minute for minute in whole if not minute.killed]
    start, end = calm[:COMPARED_MINUTES], calm[-COMPARED_MINUTES:]
    first = min((at for at, _ in churn.running), default=0.0)

    def running(minutes: list[Minute]) -> list[float]:
        spans = [(first + 60 * (minute.minute - 1), first + 60 * minute.minute) for minute in minutes]
        return [1e3 * took for at, took in churn.running if any(low <= at < high for low, high in spans)]

    def cpu(minutes: list[Minute]) -> dict[str, float]:
        names = sorted({name for minute in minutes for name in minute.cpu_ms_per_pod})
        of = {name: [minute.cpu_ms_per_pod[name] for minute in minutes if name in minute.cpu_ms_per_pod] for name in names}
        return {name: round(sum(values) / len(values), 2) for name, values in of.items()}

    back: dict[str, float] = {}
    for at, name in watch.killed:
        later = [created + took for created, took in churn.running if created >= at]
        if later:
            back[name] = round(max(back.get(name, 0.0), min(later) - at), 2)
    at_start, at_end = latency(running(start)), latency(running(end))
    return ChurnFigures(
        pods=churn.pods,
        minutes=len(watch.minutes),
        start_running_ms=at_start,
        end_running_ms=at_end,
        running_ratio=round(at_end.p50 / at_start.p50, 2) if at_start and at_end else None,
        start_cpu_ms_per_pod=cpu(start),
        end_cpu_ms_per_pod=cpu(end),
        start_memory_mib=start[0].memory_mib if start else {},
        end_memory_mib=end[-1].memory_mib if end else {},
        back_seconds=back,
        never_running=churn.pods - len(churn.running),
        never_gone=len(churn.deleted),
        failed=churn.failed,
        restart_seconds=round(restart, 2),
    )

"""`bench churn`: pods that come and go on a real stack, long enough to detect degradation.

In: a rate, the lifetime of a pod, for how long, how often a service is killed. Out: figures of each minute as it passes, then
those of the start beside those of the end: create to running, delete to gone, the servers' CPU time a pod, memory. At the end
the stack is stopped and started again on its log, and `cotenant replay --verify` recomputes its decisions where asked for.

The stack is `cotenant up` itself with simulated nodes (`processes`); pods come and go over HTTP (`churn_load`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from cotenant_verification.bench.figures import Latency, latency
from cotenant_verification.bench.over_http.churn_load import Churn
from cotenant_verification.bench.over_http.processes import CONSOLE, cpu_seconds, memory_mib, processes, stack

COMPARED_MINUTES = 3
"""Start and end are this many minutes each (the first minute is left out: caches fill)."""
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


class Minute(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One minute. CPU in milliseconds a pod, memory in MiB."""

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
    replay: dict[str, object] = {}
    """The result of `cotenant replay --verify` for the run, if requested."""


async def run(
    rate: float,
    life: float,
    seconds: float,
    nodes: int,
    kill_every: float,
    show: Callable[[Minute], None],
    *,
    verify: bool = False,
    nats_tls: bool = True,
) -> ChurnFigures:
    """Run the benchmark; `verify` recomputes the decisions that HISTORY keeps afterwards."""
    with tempfile.TemporaryDirectory(prefix="cotenant-churn-") as temporary:
        folder = Path(temporary) / "data"
        folder.mkdir()
        async with stack(folder, nodes, nats_tls=nats_tls) as (process, gateway):
            churn = Churn(gateway, rate, life)
            watch = _Observer(churn, process.pid, kill_every, show)
            observing = asyncio.ensure_future(watch.run())
            try:
                await churn.run(seconds)
            finally:
                observing.cancel()
                await asyncio.gather(observing, return_exceptions=True)
        started = time.monotonic()
        async with stack(folder, nodes, nats_tls=nats_tls):
            restart = time.monotonic() - started
        recomputed = await _replay(folder) if verify else {}
    return _figures(churn, watch, restart, recomputed)


async def _replay(folder: Path) -> dict[str, object]:
    command = [CONSOLE, "replay", "--verify", "--data", str(folder), "-o", "json"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await process.communicate()
    try:
        return msgspec.json.decode(out, type=dict[str, object])
    except msgspec.DecodeError:
        return {"error": err.decode(errors="replace")[-600:]}


class _Observer:
    """Reads the processes' figures once a minute, and kills one now and then."""

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


def _figures(churn: Churn, watch: _Observer, restart: float, recomputed: dict[str, object]) -> ChurnFigures:
    whole = [minute for minute in watch.minutes[1:] if minute.created]
    undisturbed = [minute for minute in whole if not minute.killed]
    start, end = undisturbed[:COMPARED_MINUTES], undisturbed[-COMPARED_MINUTES:]
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
        replay=recomputed,
    )

"""`bench schedule`, end to end: server, scheduler, submitter and watcher as processes; then the independent check.

With the stack also gateway, quota-tree, calculator, arbiter and simulated executors: pods are submitted by the API, and the
watcher waits until their nodes report them running.
"""

from __future__ import annotations

import array
import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from cotenant_verification.bench.audit.verification import verify
from cotenant_verification.bench.figures import BenchResult, latency
from cotenant_verification.bench.stack import fleets, start_stack
from cotenant_verification.bench.submitter import Orders
from cotenant_verification.bench.testbed import Testbed
from cotenant_verification.bench.watcher import WatchTarget
from cotenant_verification.bench.workload import BenchWorkload, node_events, quota_events, reserved_events, stack_events

LIMIT_SECONDS = 600.0
SAMPLE_SECONDS = 0.2
LOAD = ("submitter", "watcher")
"""The processes that make the load and watch it."""


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def run(
    workload: BenchWorkload,
    rate: float,
    *,
    stack: bool = False,
    replicas: int = 1,
    say: Callable[[str], None] = lambda _line: None,
) -> BenchResult:
    """Carry out one run, with the log on one server or on three; `say` gets lines of progress."""
    async with Testbed(replicas) as testbed:
        now = datetime.now(UTC)
        simulated = fleets(workload) if stack else []
        if stack:
            await testbed.write(stack_events(now))
        await testbed.write([*node_events(workload, now, lent=not stack), *quota_events(workload, now)])
        await testbed.write(reserved_events(workload, now))
        gateway = await start_stack(testbed, simulated, say) if stack else None
        testbed.start_scheduler()
        await testbed.scheduler_loaded()
        placed_at, submitted_at = testbed.folder / "placed", testbed.folder / "submitted"
        watch = WatchTarget(testbed.url, workload.pods, str(placed_at), runs=stack)
        testbed.start_module("watcher", "cotenant_verification.bench.watcher", testbed.written(watch))
        await testbed.until(partial(_exists, testbed.folder / "placed.ready"), "the watcher watches", 30)
        before = testbed.cpu_seconds()
        orders = Orders(testbed.url, workload, rate, 0, workload.pods, str(submitted_at), gateway)
        testbed.start_module("submitter", "cotenant_verification.bench.submitter", testbed.written(orders))
        # A process that has ended has no figures, so they are read while it runs.
        after: dict[str, float] = {}
        memory: dict[str, int] = {}

        async def sample() -> None:
            while True:
                after.update(testbed.cpu_seconds())
                memory.update(testbed.peak_memory_mib())
                await asyncio.sleep(SAMPLE_SECONDS)

        sampling = asyncio.create_task(sample())
        try:
            await testbed.ended("submitter", LIMIT_SECONDS)
            await testbed.ended("watcher", LIMIT_SECONDS)
            after.update(testbed.cpu_seconds())
        finally:
            sampling.cancel()
        verdict = verify(await testbed.events())
        submitted, placed = _clocks(submitted_at), _clocks(placed_at)
        arrived = _waits(submitted, placed)
        wrong = [*verdict.wrong, *_not_watched(verdict.placed, len(arrived))]
        running = _clocks(testbed.folder / "placed.running")
        ran = _waits(submitted, running)
        cpu = {name: (after[name] - before.get(name, 0.0)) * 1000 / workload.pods for name in sorted(after)}
        batches = msgspec.json.decode((testbed.folder / "placed.batches").read_bytes(), type=list[int])
        return BenchResult(
            pods_per_second=_rate(submitted, placed),
            placed=verdict.placed,
            waiting=verdict.waiting,
            verified=not wrong,
            wrong=tuple(wrong),
            submit_to_placed_ms=latency(arrived),
            running=len(ran) if stack else None,
            submit_to_running_ms=latency(ran),
            running_per_second=_rate(submitted, running) if stack else None,
            seconds=round((max(placed) - min(submitted)) / 1e9, 2) if arrived else 0.0,
            batches=len(batches),
            mean_batch=round(sum(batches) / max(len(batches), 1), 1),
            largest_batch=max(batches, default=0),
            conflicts=testbed.conflicts(),
            loads=testbed.loads(),
            cpu_ms_per_pod={name: round(each, 4) for name, each in cpu.items()},
            stack_cpu_ms_per_pod=round(sum(each for name, each in cpu.items() if name not in LOAD), 4),
            peak_memory_mib=dict(sorted(memory.items())),
        )


def _not_watched(placed: int, arrived: int) -> Iterator[str]:
    """Yield why a run's times are not those of the pods that LOG holds as placed."""
    if not arrived:
        yield "no pod was placed"
    if placed != arrived:
        yield f"LOG holds placements of {placed} pods, and the watcher received those of {arrived}"


def _clocks(path: Path) -> array.array[int]:
    clocks = array.array("q")
    clocks.frombytes(path.read_bytes())
    return clocks


def _waits(start: array.array[int], end: array.array[int]) -> list[float]:
    """Milliseconds from one clock to the other, of the pods that have both."""
    return [(until - since) / 1e6 for since, until in zip(start, end, strict=True) if until]


def _rate(start: array.array[int], end: array.array[int]) -> int:
    """Pods a second from the first start to the last end; 0 if none ended."""
    last, many = max(end), sum(1 for clock in end if clock)
    return round(many / ((last - min(start)) / 1e9)) if many else 0

"""`bench schedule`, end to end: server, scheduler, submitter and watcher as processes; then the independent check."""

from __future__ import annotations

import array
import asyncio
from functools import partial
from pathlib import Path

import msgspec

from cotenant_console.bench.figures import Figures, latency
from cotenant_console.bench.stage import Stage
from cotenant_console.bench.submitter import Orders
from cotenant_console.bench.verification import verify
from cotenant_console.bench.watcher import Watch
from cotenant_console.bench.workload import Workload

LIMIT_SECONDS = 600.0
SAMPLE_SECONDS = 0.2


async def _exists(path: Path) -> bool:
    return await asyncio.to_thread(path.exists)


async def run(workload: Workload, rate: float) -> Figures:
    """Carry out one run."""
    async with Stage() as stage:
        await stage.write_nodes(workload)
        stage.start_scheduler()
        await stage.scheduler_loaded()
        placed_at, submitted_at = stage.folder / "placed", stage.folder / "submitted"
        watch = Watch(stage.url, workload.pods, str(placed_at))
        stage.start_module("watcher", "cotenant_console.bench.watcher", stage.written(watch))
        await stage.until(partial(_exists, stage.folder / "placed.ready"), "the watcher watches", 30)
        before = stage.cpu_seconds()
        orders = Orders(stage.url, workload, rate, 0, workload.pods, str(submitted_at))
        stage.start_module("submitter", "cotenant_console.bench.submitter", stage.written(orders))
        # A process that has ended tells nothing any more: what it used is read while it lives.
        after: dict[str, float] = {}
        memory: dict[str, int] = {}

        async def sample() -> None:
            while True:
                after.update(stage.cpu_seconds())
                memory.update(stage.peak_memory_mib())
                await asyncio.sleep(SAMPLE_SECONDS)

        sampling = asyncio.create_task(sample())
        try:
            await stage.ended("submitter", LIMIT_SECONDS)
            await stage.ended("watcher", LIMIT_SECONDS)
            after.update(stage.cpu_seconds())
        finally:
            sampling.cancel()
        verdict = verify(await stage.events())
        submitted, placed = array.array("q"), array.array("q")
        submitted.frombytes(submitted_at.read_bytes())
        placed.frombytes(placed_at.read_bytes())
        arrived = [(end - start) / 1e6 for start, end in zip(submitted, placed, strict=True) if end]
        seconds = (max(placed) - min(submitted)) / 1e9
        batches = msgspec.json.decode((stage.folder / "placed.batches").read_bytes(), type=list[int])
        return Figures(
            pods_per_second=round(len(arrived) / seconds),
            placed=verdict.placed,
            waiting=verdict.waiting,
            verified=not verdict.wrong and verdict.placed == len(arrived),
            wrong=verdict.wrong,
            submit_to_placed_ms=latency(arrived),
            seconds=round(seconds, 2),
            batches=len(batches),
            mean_batch=round(sum(batches) / max(len(batches), 1), 1),
            largest_batch=max(batches, default=0),
            conflicts=stage.conflicts(),
            loads=stage.loads(),
            cpu_ms_per_pod={
                name: round((after[name] - before.get(name, 0.0)) * 1000 / workload.pods, 4) for name in sorted(after)
            },
            peak_memory_mib=dict(sorted(memory.items())),
        )

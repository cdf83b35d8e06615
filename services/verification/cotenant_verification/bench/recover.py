"""`bench recover`: the scheduler is killed under load and restarted; how long until it places the next pod.

The clock runs from the start of the new process to the time at which its first new placement is on the log. Nine tenths of the
pods are submitted before, the rest while no scheduler runs.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

from cotenant.log.contract import LOG
from cotenant_verification.bench.audit.verification import verify
from cotenant_verification.bench.figures import BenchResult
from cotenant_verification.bench.submitter import Orders
from cotenant_verification.bench.testbed import SERVER, BenchError, Testbed
from cotenant_verification.bench.workload import BenchWorkload, node_events, quota_events

PLACEMENTS = "node.*.placement.>"
SETTLE_SECONDS = 5.0
RECOVER_LIMIT_SECONDS = 240.0


async def run(workload: BenchWorkload) -> BenchResult:
    """Carry out one run."""
    async with Testbed() as testbed:
        now = datetime.now(UTC)
        await testbed.write([*node_events(workload, now), *quota_events(workload, now)])
        testbed.start_scheduler()
        await testbed.scheduler_loaded()
        reader = await testbed.log.follow(LOG, [PLACEMENTS])
        reader.loaded()
        reader.max_behind = 0
        before = workload.pods - max(workload.pods // 10, 1)
        orders = Orders(testbed.url, workload, 0, 0, before, str(testbed.folder / "submitted"))
        testbed.start_module("submitter", "cotenant_verification.bench.submitter", testbed.written(orders))
        placed = 0
        deadline = time.monotonic() + RECOVER_LIMIT_SECONDS
        while placed < before * 9 // 10:
            placed += len(await reader.pull(1000, 1.0))
            if time.monotonic() > deadline:
                raise BenchError(f"only {placed} pods were placed: {testbed.tail('scheduler')}")
        testbed.kill("scheduler")
        rest = Orders(testbed.url, workload, 0, before, workload.pods, str(testbed.folder / "submitted-rest"))
        testbed.start_module("submitter-rest", "cotenant_verification.bench.submitter", testbed.written(rest))
        # Batches that the killed process had stored do not count.
        while events := await reader.pull(1000, 1.0):
            placed += len(events)
        started, before_start = time.monotonic(), testbed.cpu_seconds()
        testbed.start_scheduler()
        while not (events := await reader.pull(1000, 1.0)):
            if time.monotonic() > deadline:
                raise BenchError(f"nothing was placed any more: {testbed.tail('scheduler')}")
        first, after_start = time.monotonic() - started, testbed.cpu_seconds()
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < SETTLE_SECONDS and placed < workload.pods:
            if events:
                placed += len(events)
                quiet_since = time.monotonic()
            events = await reader.pull(1000, 1.0)
        memory = testbed.peak_memory_mib()
        verdict = verify(await testbed.events())
        return BenchResult(
            placed=verdict.placed,
            waiting=verdict.waiting,
            verified=not verdict.wrong,
            wrong=verdict.wrong,
            first_placement_seconds=round(first, 2),
            first_placement_cpu_seconds={
                name: round(after_start[name] - before_start.get(name, 0.0), 2) for name in (SERVER, "scheduler")
            },
            loads=testbed.loads(),
            peak_memory_mib={"scheduler": memory.get("scheduler", 0)},
        )

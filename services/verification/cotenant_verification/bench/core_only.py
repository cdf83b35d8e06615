"""The decision alone: fold the workload, decide in batches, fold the decisions; no server.

Out: CPU time of this process per part. `pods_per_second` is of the decisions; folding the pods and folding back the
decisions are printed beside it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.placements import Placement
from cotenant.runtime.process import GC_THRESHOLDS
from cotenant_scheduler.core import SchedulerCore
from cotenant_verification.bench.audit.verification import verify
from cotenant_verification.bench.figures import BenchResult
from cotenant_verification.bench.workload import BenchWorkload, node_events, pod_event, quota_events, reserved_events

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class _Times(msgspec.Struct):
    """CPU seconds by part, and the batches."""

    folding: float = 0.0
    deciding: float = 0.0
    folding_back: float = 0.0
    placed: int = 0
    batches: list[int] = []


def run(workload: BenchWorkload) -> BenchResult:
    """Schedule the workload and check the result."""
    gc.set_threshold(*GC_THRESHOLDS)
    log: list[Event] = []
    times = carry_out(workload, log)
    placed = times.placed
    verdict = verify(log)
    return BenchResult(
        pods_per_second=round(placed / times.deciding) if times.deciding else 0,
        placed=placed,
        waiting=verdict.waiting,
        verified=not verdict.wrong and verdict.placed == placed,
        wrong=verdict.wrong,
        batches=len(times.batches),
        largest_batch=max(times.batches, default=0),
        decide_us_per_pod=round(times.deciding / max(placed, 1) * 1e6, 1),
        fold_us_per_pod=round(times.folding / workload.pods * 1e6, 1),
        fold_back_us_per_pod=round(times.folding_back / max(placed, 1) * 1e6, 1),
    )


def carry_out(workload: BenchWorkload, log: list[Event]) -> _Times:
    """Run the workload; folded and decided events are appended to `log`."""
    core = SchedulerCore()
    times = _Times()
    clock = time.process_time

    def stored(events: Iterable[Event]) -> list[Event]:
        # As on a log, a batch's record lies before its events.
        first, begin = len(log), log[-1].sequence + 2 if log else 1
        log.extend(msgspec.structs.replace(event, sequence=number) for number, event in enumerate(events, begin))
        return log[first:]

    def fold(events: list[Event]) -> float:
        started = clock()
        for event in events:
            core.apply(event)
        core.settle()
        return clock() - started

    fold(stored([*node_events(workload, START), *quota_events(workload, START), *reserved_events(workload, START)]))
    times.folding = fold(stored(pod_event(workload, i, START) for i in range(workload.pods)))
    now = START
    while True:
        now += timedelta(milliseconds=10)
        started = clock()
        decided = core.decide(now)
        times.deciding += clock() - started
        if not decided:
            return times
        times.placed += sum(isinstance(event.data, Placement) for event in decided)
        times.batches.append(len(decided))
        times.folding_back += fold(stored(msgspec.structs.replace(event, time=now) for event in decided))

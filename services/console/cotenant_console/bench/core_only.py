"""The decision alone: fold the workload, decide in batches, fold back what was decided; no server.

Out: CPU time of this process per part. `pods_per_second` is of the decisions; folding the pods and folding back what was
stored are told beside it.
"""

from __future__ import annotations

import gc
import time
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.placements import Placement
from cotenant.host import GC_THRESHOLDS
from cotenant_console.bench.figures import Figures
from cotenant_console.bench.verification import verify
from cotenant_console.bench.workload import Workload, node_events, pod_event
from cotenant_scheduler.core import SchedulerCore

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def run(workload: Workload) -> Figures:
    """Schedule the workload and check the result."""
    gc.set_threshold(*GC_THRESHOLDS)
    core = SchedulerCore()
    log: list[Event] = []
    clock = time.process_time

    def stored(events: list[Event]) -> None:
        for event in events:
            log.append(msgspec.structs.replace(event, sequence=len(log) + 1))

    stored(list(node_events(workload, START)))
    for event in log:
        core.apply(event)
    first = len(log)
    stored([pod_event(workload, i, START) for i in range(workload.pods)])
    started = clock()
    for event in log[first:]:
        core.apply(event)
    folding = clock() - started
    deciding = folding_back = 0.0
    placed, batches = 0, []
    now = START
    while True:
        now += timedelta(milliseconds=10)
        started = clock()
        decided = core.decide(now)
        deciding += clock() - started
        if not decided:
            break
        placed += sum(isinstance(event.data, Placement) for event in decided)
        batches.append(len(decided))
        first = len(log)
        stored([msgspec.structs.replace(event, time=now) for event in decided])
        started = clock()
        for event in log[first:]:
            core.apply(event)
        folding_back += clock() - started
    verdict = verify(log)
    return Figures(
        pods_per_second=round(placed / deciding),
        placed=placed,
        waiting=verdict.waiting,
        verified=not verdict.wrong and verdict.placed == placed,
        wrong=verdict.wrong,
        batches=len(batches),
        largest_batch=max(batches, default=0),
        decide_us_per_pod=round(deciding / placed * 1e6, 1),
        fold_us_per_pod=round(folding / workload.pods * 1e6, 1),
        fold_back_us_per_pod=round(folding_back / placed * 1e6, 1),
    )

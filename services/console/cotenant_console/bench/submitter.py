"""The process that submits pods: batches of at most 500 to the log, as the gateway writes what arrives together.

In: a file with the workload as JSON, a rate (0: as fast as they are stored). Out, to a file: for each pod the clock at which
its batch was handed over (nanoseconds, the machine's monotonic clock).
"""

from __future__ import annotations

import array
import asyncio
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop

from cotenant.bus import connect
from cotenant.log import Stored, Write
from cotenant_console.bench.workload import Workload, pod_event

BATCH = 500
TICK_SECONDS = 0.005
"""Pods that are due within one tick share a batch, as requests that arrive together do."""


class Orders(msgspec.Struct, frozen=True):
    """What to submit: pods `first` to `last` - 1."""

    url: str
    workload: Workload
    rate: float
    first: int
    last: int
    out: str


async def _submit(orders: Orders) -> array.array[int]:
    log = await connect(orders.url, "bench-submitter")
    times = array.array("q", [0]) * (orders.last - orders.first)
    started = time.monotonic()
    done = orders.first
    while done < orders.last:
        due = orders.last
        if orders.rate:
            due = min(due, orders.first + int((time.monotonic() - started) * orders.rate) + 1)
            if due <= done:
                await asyncio.sleep(TICK_SECONDS if orders.rate > 1 / TICK_SECONDS else 1 / orders.rate / 4)
                continue
        upto = min(due, done + BATCH)
        now = datetime.now(UTC)
        writes = [Write(event=pod_event(orders.workload, i, now), expected=0) for i in range(done, upto)]
        clock = time.monotonic_ns()
        outcome = await log.append(writes)
        if not isinstance(outcome, Stored):
            raise RuntimeError(f"pods were not stored: {outcome.reason}")
        for i in range(done, upto):
            times[i - orders.first] = clock
        done = upto
    await log.close()
    return times


def main() -> None:
    """Run; the first argument is the file with the orders."""
    orders = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Orders)
    Path(orders.out).write_bytes(uvloop.run(_submit(orders)).tobytes())


if __name__ == "__main__":
    main()

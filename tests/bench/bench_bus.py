"""What a message costs before anybody decides anything: the floor of every figure that goes over the log.

A real server (disk, fsync, HISTORY), one writer, one reader, pods of some 700 bytes in batches of a decision's size. CPU is
of the process, so that other work on the machine does not count; the times of single messages, small batches and of waiting
until the log has drained are wall clock, beside the CPU that each costs. Prints a line each: name, value, unit.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import uvloop

from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.events.envelope import decode_event, encode_event
from cotenant.log.contract import LOG, Stored, Write
from cotenant_verification.bench.testbed import Testbed
from cotenant_verification.bench.workload import pod_event, synthetic

BATCH = MAX_EVENTS_PER_DECISION + 1
MESSAGES = 20_000
TIMES = 400


async def measure() -> None:
    """Write all, read all, then write a few."""
    workload, now = synthetic(1, MESSAGES, 1), datetime.now(UTC)
    events = [pod_event(workload, i, now) for i in range(MESSAGES)]
    async with Testbed() as testbed:
        log = testbed.log

        async def store(size: int, first: int) -> None:
            outcome = await log.append([Write(event=event) for event in events[first : first + size]])
            assert isinstance(outcome, Stored), outcome

        def spent() -> tuple[float, float]:
            return time.process_time(), testbed.cpu_seconds()["nats-server"]

        def show(what: str, before: tuple[float, float]) -> None:
            own, server = (1e6 * (now - then) / MESSAGES for now, then in zip(spent(), before, strict=True))
            print(f"bus_{what}_client_cpu {own:.1f} us/message")
            print(f"bus_{what}_server_cpu {server:.1f} us/message")

        before = spent()
        for first in range(0, MESSAGES, BATCH):
            await store(BATCH, first)
        while await log.last_sequence("HISTORY") < MESSAGES:  # noqa: ASYNC110 - it tells nobody when it has caught up
            await asyncio.sleep(0.02)
        show("write", before)
        reader = await log.follow(LOG, ["objects.core.pods.>"])
        before = spent()
        read = 0
        while read < MESSAGES:
            read += len(await reader.pull(BATCH, 1.0))
        show("read", before)
        await reader.close()
        for name, size, at_once in (
            ("single_message", 1, 1),
            ("batch_of_two", 2, 1),
            ("batch_of_eight", 8, 1),
            ("eight_at_once", 1, 8),
            ("batch_of_sixteen", 16, 1),
            ("sixteen_at_once", 1, 16),
            ("drained", 0, 1),
        ):
            times, before = [], spent()
            for index in range(TIMES):
                started = time.perf_counter()
                if size:
                    await asyncio.gather(*(store(size, index + number) for number in range(at_once)))
                else:
                    await log.drained("commits.bench.0")
                times.append(time.perf_counter() - started)
            own, server = (1e6 * (now - then) / TIMES for now, then in zip(spent(), before, strict=True))
            print(f"bus_{name}_p50 {sorted(times)[TIMES // 2] * 1e3:.2f} ms")
            print(f"bus_{name}_client_cpu {own:.0f} us")
            print(f"bus_{name}_server_cpu {server:.0f} us")
    codec = [encode_event(event) for event in events]
    started = time.process_time()
    for event, data in zip(events, codec, strict=True):
        decode_event(data, subject=event.subject, stream=LOG, sequence=1)
    print(f"bus_decode {(time.process_time() - started) * 1e6 / MESSAGES:.1f} us/message")
    started = time.process_time()
    for event in events:
        encode_event(event)
    print(f"bus_encode {(time.process_time() - started) * 1e6 / MESSAGES:.1f} us/message")


if __name__ == "__main__":
    uvloop.run(measure())

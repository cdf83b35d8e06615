"""What a process holds of large messages: of those that it reads, and of those that it has yet to store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from cotenant.events import Event
from cotenant.events.objects import ObjectStored
from cotenant.log import plan_writer, write_queue
from cotenant.log.contract import LOG, NoAnswer, Refused, Stored, Write
from cotenant.log.memory import MemoryLog
from cotenant.log.nats import consumer
from cotenant.log.nats.log import connect
from cotenant.log.plan_writer import PlanWriter
from cotenant.log.plans import Plan, PlannedWrite, Written
from cotenant.log.write_queue import Overloaded
from tests.nats_server import NatsServer

WAIT_SECONDS = 60
LARGE_BYTES = 700 * 1024
LARGE = ObjectStored(object=msgspec.Raw(b'{"data":"%s"}' % (b"x" * LARGE_BYTES)))


async def test_a_reader_asks_for_no_more_bytes_than_it_may_hold(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    count = 2 * consumer.PULL_BYTES // LARGE_BYTES
    for number in range(count):
        subject = f"objects.core.configmaps.large.c{number}"
        assert isinstance(await log.append([Write(event=Event(subject=subject, data=LARGE, id=f"l/{number}"))]), Stored)
    reader = await log.follow(LOG, ("objects.core.configmaps.large.*",), after=0)
    held, found = 0, 0
    async with asyncio.timeout(WAIT_SECONDS):
        while found < count:
            found += len(await reader.pull(1, 1.0))
            held = max(held, sum(len(data) for _, _, _, data in reader._consumer.queue))
    assert held <= consumer.PULL_BYTES
    # One pull was not enough, and the second one took up where the first had ended.
    assert reader.reopened == 0
    await reader.close()
    await log.close()


async def test_a_pull_that_ends_with_its_last_message_is_no_gap(nats_server: NatsServer) -> None:
    """The server says so, where a pull has a bound in bytes; the consumer goes on."""
    log = await connect(nats_server.url, "test")
    await log.declare()
    count = 2 * consumer.PULL_BATCH + 100
    small = ObjectStored(object=msgspec.Raw(b"{}"))
    writes = [Write(event=Event(subject=f"objects.core.configmaps.small.c{i}", data=small, id=f"s/{i}")) for i in range(count)]
    for start in range(0, count, 500):
        assert isinstance(await log.append(writes[start : start + 500]), Stored)
    reader = await log.follow(LOG, ("objects.core.configmaps.small.*",), after=0)
    found = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while found < count:
            found += len(await reader.pull(100, 1.0))
    await reader.pull(1, 1.0)
    assert reader.reopened == 0
    await reader.close()
    await log.close()


class BatchSizes(MemoryLog):
    """The log in memory, with the bytes of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        self.batches.append(sum(len(msgspec.json.encode(write.event.data)) for write in writes))
        return await super().append(writes)


async def test_plans_that_wait_are_bounded_in_bytes_and_so_are_batches() -> None:
    log = BatchSizes()

    async def folded(_: int) -> bool:
        return True

    writer = PlanWriter(log, "/test", "1", lambda: datetime.now(UTC), folded)
    most = plan_writer.MAX_BYTES // LARGE_BYTES

    async def submit(number: int) -> bool:
        subject = f"objects.core.configmaps.large.c{number}"
        try:
            return isinstance(await writer.submit(Plan((PlannedWrite(subject, LARGE, 0),)), "someone"), Written)
        except Overloaded:
            return False

    submitted = [asyncio.ensure_future(submit(number)) for number in range(2 * most)]
    await asyncio.sleep(0)
    assert writer.held_bytes <= plan_writer.MAX_BYTES
    running = asyncio.ensure_future(writer.run())
    async with asyncio.timeout(WAIT_SECONDS):
        stored = sum(await asyncio.gather(*submitted))
    assert most - 1 <= stored <= most
    assert writer.held_bytes == 0
    assert max(log.batches) <= write_queue.BATCH_BYTES
    assert len(log.batches) >= plan_writer.MAX_BYTES // write_queue.BATCH_BYTES
    # What is over is over: there is room again.
    assert await submit(2 * most)
    running.cancel()

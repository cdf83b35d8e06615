"""`events` on a real server: what a request holds of EXECUTION while LOG is sent is bounded in bytes."""

from __future__ import annotations

import asyncio

from cotenant.log.contract import EXECUTION
from cotenant.log.nats.log import connect
from cotenant_gateway.http.facts.event_stream import HELD_BYTES, EventStream, Selection
from tests.nats_server import NatsServer

REASON_BYTES = 200_000
ALL = Selection("", "", "")


async def test_of_large_execution_events_the_newest_that_fit_are_held(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    count = 2 * HELD_BYTES // REASON_BYTES
    for number in range(count):
        await log.add_dead_letter("LOG", f"node.n{number}.slo", number, f"reason {number} " + "x" * REASON_BYTES, b"{")
    stream = EventStream(log, asyncio.Event())
    end = await log.last_sequence(EXECUTION)
    found = await stream._last_of_execution(end, ALL)
    assert HELD_BYTES // 2 < sum(len(held.line) for held in found) <= HELD_BYTES
    assert f"reason {count - 1} ".encode() in found[-1].line
    assert [held.time for held in found] == sorted(held.time for held in found if held.time is not None)
    assert not await stream._last_of_execution(end, Selection("nodes", "", "none")), "what is not wanted is not held"
    await log.close()

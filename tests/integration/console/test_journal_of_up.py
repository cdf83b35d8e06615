"""The journal of `cotenant up` on a real server: it begins with what is there, misses nothing, and reads in gathered pulls."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from datetime import UTC, datetime, timedelta

from cotenant.events.envelope import Event
from cotenant.events.node.execution import Execution
from cotenant.log.contract import EXECUTION
from cotenant.log.nats.access import NOBODY
from cotenant.log.nats.log import NatsLog, connect
from cotenant.model.subjects import execution_subject
from cotenant_console.up.journal import Journal
from cotenant_console.up.reading import keep_journal
from tests.nats_server import NatsServer

WAIT_SECONDS = 120
LOOK_SECONDS = 0.01
GATHERED_FROM_SECONDS = 0.2
"""A message that follows another one in a gathered pull arrives later than this; one by one they take milliseconds."""


async def publish(log: NatsLog, number: int) -> str:
    """Publish an event of a node; returns its reference."""
    now = datetime.now(UTC)
    data = Execution(node="n1", topic="runtime", summary=f"default/p{number}: container main started")
    subject = execution_subject("n1", "runtime")
    event = Event(subject=subject, data=data, time=now, id=f"n1/{number}", source="/cell/n1", stream=EXECUTION)
    sequence = await log.publish(event)
    assert sequence is not None
    return f"{EXECUTION}:{sequence}"


async def seconds_until_shown(journal: Journal, ref: str) -> float:
    """Wait until the journal has a line of the event."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(WAIT_SECONDS):
        while not journal.lines or journal.lines[-1].ref != ref:  # noqa: ASYNC110 - bounded
            await asyncio.sleep(LOOK_SECONDS)
    return loop.time() - began


async def test_the_journal_of_up_misses_nothing_and_reads_what_follows_in_gathered_pulls(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    journal = Journal(began=datetime.now(UTC) - timedelta(minutes=1))
    before = await publish(log, 0)
    reading = asyncio.ensure_future(keep_journal(nats_server.url, NOBODY, journal))
    try:
        await seconds_until_shown(journal, before)
        refs = [before]
        async with asyncio.timeout(WAIT_SECONDS):
            # The load's own pull delivers one by one for up to 5 s; from then on what follows closely comes together.
            for number in itertools.count(1):
                refs.append(await publish(log, number))
                if await seconds_until_shown(journal, refs[-1]) > GATHERED_FROM_SECONDS:
                    break
        assert [line.ref for line in journal.lines] == refs[-len(journal.lines) :]
    finally:
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        await log.close()

"""A LOG that somebody has filled to its bound, for tests."""

from __future__ import annotations

from cotenant.log.contract import LOG
from cotenant.log.nats.log import NatsLog

ANSWER_SECONDS = 60.0
MAX_FILLERS = 2_000
FILLERS = "objects.filler.*"
LAST = "objects.filler.last"


async def fill(log: NatsLog, *, leave: int = 0) -> None:
    """Store bytes that are no events until nothing fits; then take so many of them away again. Readers of `objects.>` find
    dead letters."""
    if leave:
        await log.client.ask(LAST, b"", b"x" * leave, seconds=ANSWER_SECONDS)
    number = 0
    for size in (100_000, 1_000, 0):
        while b"error" not in await log.client.ask(f"objects.filler.{number}", b"", b"x" * size, seconds=ANSWER_SECONDS):
            number += 1
            assert number < MAX_FILLERS, "the log has no bound"
    if leave:
        await log.purge(LOG, LAST)


async def unfill(log: NatsLog) -> None:
    """Take all of them away."""
    await log.purge(LOG, FILLERS)

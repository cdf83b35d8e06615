"""Stores reports of several nodes of one process that pods were stopped: where many come, together.

Such a report is a tombstone. By itself it costs the server two syncs of LOG's file and 0.3 ms of CPU; one of 32 in a batch
costs 0.15 ms, and the batch six syncs (nats-server 2.15, unreplicated). So where ENOUGH of them came in two intervals of
GATHER_SECONDS, the next ones wait as long for each other. Where few come none waits, and a machine of its own has no one to
share with.

In: the writes of one node's round. Out: their outcome, as if they had been stored by themselves: if a batch is refused, each
node's writes are repeated alone.

Bounds: GATHER_SECONDS; MAX_TOGETHER writes in a batch; SINGLES repeated at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from cotenant.log.contract import WORTH_A_BATCH, Log, NoAnswer, Refused, Stored, Write

GATHER_SECONDS = 0.25
"""As long as a gateway gathers the ends of objects."""
ENOUGH = 2 * WORTH_A_BATCH
PAUSES = 4
"""A pause of so many intervals is no end: a busy process is late."""
MAX_TOGETHER = 500
SINGLES = 16
Outcome = Stored | Refused | NoAnswer


class _Waiting:
    __slots__ = ("done", "writes")

    def __init__(self, writes: Sequence[Write]) -> None:
        self.writes = writes
        self.done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()


class JointStops:
    """The reports of one process's nodes that wait for each other."""

    def __init__(self, log: Log, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._waiting: list[_Waiting] = []
        self._rounds: set[asyncio.Task[None]] = set()
        self._window = 0
        """The number of the present interval of GATHER_SECONDS."""
        self._came = self._came_before = 0
        """Writes in it, and in the one with writes before it, if that was at most PAUSES ago."""

    async def append(self, writes: Sequence[Write]) -> Outcome:
        """Store one node's reports, all or none, as `Log.append` does; raises what that raises."""
        if not self._count(len(writes)):
            return await self._log.append(writes)
        if self._waiting and sum(len(each.writes) for each in self._waiting) + len(writes) > MAX_TOGETHER:
            self._begin_round(0.0)
        waiting = _Waiting(writes)
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            self._begin_round(GATHER_SECONDS)
        return await waiting.done

    def _count(self, writes: int) -> bool:
        """Count the writes; return whether they are worth waiting for others."""
        window = int(self._clock() / GATHER_SECONDS)
        if window != self._window:
            self._came_before = self._came if window <= self._window + PAUSES else 0
            self._window, self._came = window, 0
        enough = self._came + self._came_before >= ENOUGH
        self._came += writes
        return enough

    def _begin_round(self, seconds: float) -> None:
        together = self._waiting
        if not seconds:
            self._waiting = []
        task = asyncio.ensure_future(self._round(together, seconds))
        self._rounds.add(task)
        task.add_done_callback(self._rounds.discard)

    async def _round(self, together: list[_Waiting], seconds: float) -> None:
        """Store what waits after some seconds, unless it was stored meanwhile."""
        if seconds:
            await asyncio.sleep(seconds)
            if together is not self._waiting:
                return
            self._waiting = []
        # A node that has ended waits no more.
        present = [waiting for waiting in together if not waiting.done.done()]
        writes = [write for waiting in present for write in waiting.writes]
        if len(writes) < WORTH_A_BATCH or len(present) == 1:
            await self._alone(present)
            return
        try:
            outcome = await self._log.append(writes)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is for each node
            for waiting in present:
                _fail(waiting, error)
            return
        if isinstance(outcome, Refused) and not outcome.no_space:
            await self._alone(present)
            return
        at = outcome.first if isinstance(outcome, Stored) else 0
        for waiting in present:
            count = len(waiting.writes)
            _settle(waiting, Stored(at, at + count - 1) if isinstance(outcome, Stored) else outcome)
            at += count

    async def _alone(self, present: Sequence[_Waiting]) -> None:
        for start in range(0, len(present), SINGLES):
            await asyncio.gather(*map(self._store, present[start : start + SINGLES]))

    async def _store(self, waiting: _Waiting) -> None:
        try:
            _settle(waiting, await self._log.append(waiting.writes))
        except Exception as error:  # noqa: BLE001 - it is raised where the node waits
            _fail(waiting, error)


def _settle(waiting: _Waiting, outcome: Outcome) -> None:
    if not waiting.done.done():
        waiting.done.set_result(outcome)


def _fail(waiting: _Waiting, error: Exception) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(error)

"""Stores a node's reports on LOG, in rounds: reports decided while one is in progress wait for the next.

In: the reports of a cycle. Out: stored reports are folded by the node at once; for a refused one it takes over the sequence
that LOG has, and the next cycle decides again. However many pods start and end, a node has one round at the server, so that
it does not delay others; the slower the server, the larger the rounds.

The end of a report of a pod that is gone waits for END_AFTER_SECONDS: by then a gateway has stored it, together with other
ends, which costs the server less than one message at a time. Where no gateway runs, the node ends it. That a pod was stopped
does not wait for a gateway: that tombstone is a report. Where many pods of many nodes of this process are stopped it waits for
those of other nodes (`joint_stops`).

Bounds: one round, of at most ROUND reports; WORTH_A_BATCH of them go as one atomic batch, fewer one by one; `RoomPause` between
tries while LOG has no room; as many ends wait as a cycle decides; KNOWN stored reports are not read again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from cotenant.events.envelope import Event
from cotenant.events.node.runs import reports_stop
from cotenant.log.contract import WORTH_A_BATCH, Log, NoAnswer, Refused, Stored, Write
from cotenant.log.room_pause import RoomPause
from cotenant.log.traces import about
from cotenant.runtime.follower import LOG_ERRORS
from cotenant_node_executor.core.node import ExecutorNode
from cotenant_node_executor.joint_stops import JointStops

logger = logging.getLogger(__name__)

ROUND = 100
KNOWN = 1_000
AGAIN_SECONDS = 0.1
"""From a refusal for another sequence to the next cycle, which decides again."""
END_AFTER_SECONDS = 5.0
"""How long the end of a report is left to a gateway."""


class Reports:
    """One node's reports in progress."""

    def __init__(
        self,
        log: Log,
        cell: str,
        wake: Callable[[], None],
        on_stored: Callable[[Event, int], None] | None = None,
        stops: JointStops | None = None,
    ) -> None:
        """`wake` runs the next cycle now, for reports that had to wait. `on_stored` is called with each report that is
        stored, and when it was sent (ns since the epoch). `stops`: where the process has several nodes, what stores their
        reports that pods were stopped."""
        self._log = log
        self._stops = stops
        self._cell = cell
        self._wake = wake
        self._on_stored = on_stored
        self._waited = False
        """Something was decided while the round was in progress."""
        self._round: asyncio.Task[None] | None = None
        self._room_pause = RoomPause()
        self._ends: dict[str, float] = {}
        """Subjects whose end waits, and since when."""
        self._node: ExecutorNode | None = None
        """The node that reads now; a round may still be of one before a reload."""
        self._folded: dict[int, None] = {}
        """Sequences of reports that it folded when they were stored, the oldest first."""

    def begin(self, node: ExecutorNode) -> None:
        """A node begins to read: it has folded nothing."""
        self._node = node
        self._folded.clear()

    def knows(self, sequence: int) -> bool:
        """Return whether the node has folded the report with this sequence, so that it need not be delivered. Asked once."""
        return self._folded.pop(sequence, 0) is None

    @property
    def under_way(self) -> bool:
        """Whether a round is in progress."""
        return self._round is not None and not self._round.done()

    def post(self, node: ExecutorNode, reports: Sequence[Event]) -> None:
        """Begin a round with a cycle's reports; if one is in progress, the next cycle decides again."""
        now = asyncio.get_running_loop().time()
        reports = self._without_young_ends(reports, now)
        if not reports or self._room_pause.waits(now):
            return
        if self.under_way:
            self._waited = True
            return
        self._waited = len(reports) > ROUND
        events = [node.identified(event, self._cell) for event in reports[:ROUND]]
        self._round = asyncio.ensure_future(self._store(events, node))
        self._round.add_done_callback(self._is_over)

    def _without_young_ends(self, reports: Sequence[Event], now: float) -> Sequence[Event]:
        """Leave out the ends of reports that were decided for the first time less than END_AFTER_SECONDS ago."""
        known, self._ends = self._ends, {}
        due = []
        for event in reports:
            if event.tombstone and not reports_stop(event):
                since = self._ends[event.subject] = known.get(event.subject, now)
                if now < since + END_AFTER_SECONDS:
                    continue
            due.append(event)
        return due

    async def close(self) -> None:
        """Cancel the round in progress."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    def _is_over(self, _: asyncio.Task[None]) -> None:
        if self._waited:
            self._wake()

    async def _store(self, events: Sequence[Event], node: ExecutorNode) -> None:
        if len(events) >= WORTH_A_BATCH:
            outcome = await self._append(events, node)
            if not (isinstance(outcome, Refused) and not outcome.no_space):
                return
        if len(events) == 1:
            await self._store_one(events[0], node)
            return
        # Few, or one of them was refused: one by one.
        await asyncio.gather(*(self._store_one(event, node) for event in events))

    async def _append(self, events: Sequence[Event], node: ExecutorNode) -> Stored | Refused | NoAnswer:
        """Store some reports together, and fold them."""
        writes = [Write(event=event, expected=node.core.last_sequence(event.subject)) for event in events]
        sent_ns = time.time_ns()
        joint = self._stops if all(map(reports_stop, events)) else None
        try:
            outcome = await (joint or self._log).append(writes)
        except LOG_ERRORS as error:
            logger.info("node %s: %s was not stored: %s", node.name, events[0].subject, error, extra=about(events[0]))
            return NoAnswer(str(error))
        if isinstance(outcome, Stored):
            for sequence, event in enumerate(events, outcome.first):
                stored = replace(event, sequence=sequence)
                node.apply(stored)
                if node is self._node:
                    self._folded[sequence] = None
                if self._on_stored is not None:
                    self._on_stored(stored, sent_ns)
            while len(self._folded) > KNOWN:
                del self._folded[next(iter(self._folded))]
            if node.core.has_work and not all(reports_stop(event) for event in events):
                self._wake()
            if self._room_pause.stored():
                logger.warning("node %s: LOG has room for reports again", node.name)
        elif isinstance(outcome, Refused) and outcome.no_space:
            now = asyncio.get_running_loop().time()
            if not self._room_pause.waits(now):
                pause = self._room_pause.refused(now)
                logger.warning("node %s: LOG has no room (%s): next report in %.0f s", node.name, outcome.reason, pause)
        return outcome

    async def _store_one(self, event: Event, node: ExecutorNode) -> None:
        """Store one report. If it is refused, take over the subject's last sequence; the next cycle decides again."""
        expected = node.core.last_sequence(event.subject)
        outcome = await self._append([event], node)
        if not isinstance(outcome, Refused) or outcome.no_space:
            return
        try:
            head = await self._log.head(event.subject)
        except LOG_ERRORS as error:
            logger.info("node %s: %s cannot be looked up: %s", node.name, event.subject, error, extra=about(event))
            return
        if head is not None and head.sequence == expected:
            logger.error("node %s: %s is refused: %s", node.name, event.subject, outcome.reason, extra=about(event))
            return
        logger.info("node %s: %s: %s", node.name, event.subject, outcome.reason, extra=about(event))
        node.core.correct_sequence(event.subject, head.sequence if head is not None else 0)
        asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._wake)

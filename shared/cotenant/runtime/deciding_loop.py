"""One incarnation of a deciding service: pull, fold, decide, store, apply; at least one decision a tick. While a batch is being
stored, what arrives is folded and the next batch is decided. Messages queue at the log behind a batch; a decision that does not
wait for them leaves them for the batch after next. So behind a small batch the service waits for them first (`Draining`), where
batches follow one another closely and something arrived during this one: one round trip, no timer. Where nothing did there is
nothing to decide yet. While LOG has no room the loop keeps folding and decides at growing intervals (`log.room_pause`).

The rules are elsewhere: the order of steps in `engine.cycle`, quarantine in `engine.quarantine`, the log's failures in
`log.contract`, the loop's metrics in `loop_report`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from cotenant.engine.commit import Batch, Identity, refusal_of
from cotenant.engine.core import Requesting, Warns
from cotenant.engine.cycle import AHEAD_FROM, Cycle
from cotenant.engine.quarantine import Quarantine
from cotenant.events.envelope import Event
from cotenant.log.contract import Behind, Draining, Log, NoAnswer, Refused, Stored
from cotenant.log.room_pause import RoomPause
from cotenant.log.storing import store_batch
from cotenant.log.traces import Traces
from cotenant.runtime.figures import Figures
from cotenant.runtime.findings import publish_findings
from cotenant.runtime.loop_report import LoopReport
from cotenant.runtime.process import Host
from cotenant.runtime.reading import Reading
from cotenant.runtime.requests import Requests

logger = logging.getLogger(__name__)

T = TypeVar("T")

TICK_SECONDS = 1.0
QUEUE_PULLS = 16
BEHIND_SECONDS = 0.1
"""How long, beside the reader's gathering time, decisions wait for a complete state. A decision on an incomplete one cannot be
recomputed; a service that cannot keep up decides anyway, and its commits say so."""
DRAIN_SECONDS = 0.02
"""Batches that are further apart rarely have messages queued behind them, and a check costs the server a message."""


class Surroundings(msgspec.Struct):
    """Objects shared by the incarnations of one service."""

    identity: Identity
    filters: tuple[str, ...]
    log: Log
    host: Host | None
    clock: Callable[[], datetime]
    stopping: asyncio.Event
    ready: asyncio.Event
    quarantine: Quarantine
    figures: Figures
    gather_seconds: float


class DecidingLoop:
    """One incarnation: a cycle and the loop that drives it."""

    def __init__(self, around: Surroundings, cycle: Cycle, traces: Traces, number: int) -> None:
        self.cycle = cycle
        self._traces = traces
        self.number = number
        self.around = around
        self.identity = around.identity
        self.log = around.log
        self.host = around.host
        self._draining = around.log if isinstance(around.log, Draining) else None
        self._answered = 0.0
        """When the last batch was answered (`time.perf_counter`)."""
        core = cycle.core
        self._requests = Requests(self.host, core) if self.host is not None and isinstance(core, Requesting) else None
        self._warns = core if isinstance(core, Warns) else None
        self._clock = around.clock
        self._room_pause = RoomPause()
        self._report = LoopReport(self.identity.service, self.host, around.ready)
        self._behind_since: float | None = None

    def marker(self, now: datetime) -> Event:
        """See `runtime.incarnations.Incarnation`."""
        return self.cycle.start_marker(now, self.around.filters, self.number)

    @property
    def pause(self) -> timedelta:
        """See `runtime.incarnations.Incarnation`."""
        return self.cycle.pause

    def knows(self, sequence: int) -> bool:
        """See `runtime.incarnations.Incarnation`."""
        return self.cycle.was_stored(sequence)

    async def run(self, reading: Reading) -> None:
        """Fold and decide until stopped."""
        if self.host is not None:
            # Loaded objects are long-lived: collections during the load would traverse them repeatedly and free nothing.
            gc.unfreeze()
            gc.disable()
        try:
            await self._cycles(reading)
        finally:
            gc.enable()
            if self._requests is not None:
                await self._requests.close()

    async def _cycles(self, reading: Reading) -> None:
        cycle, around = self.cycle, self.around
        again = False
        while not around.stopping.is_set():
            if not again:
                await reading.wait(self._seconds_to_wait())
            if not (cycle.ready and cycle.has_next):
                self._fold_waiting(reading)
            if cycle.loaded and not around.ready.is_set():
                reading.loaded()
                self._report.loaded(cycle.folded)
            again = await self._decide(reading)
            if around.quarantine.findings:
                await self._publish_findings()
            self._report.count_folded()
            if self._requests is not None and cycle.ready and not cycle.holding_back:
                self._requests.send(self._clock())
            await asyncio.sleep(0)

    def _seconds_to_wait(self) -> float:
        now = self._clock()
        due = self.cycle.due(now)
        seconds = TICK_SECONDS if due is None else min(TICK_SECONDS, (due - now).total_seconds())
        return seconds if self._behind_since is None else min(seconds, BEHIND_SECONDS)

    def _fold_waiting(self, reading: Reading, pulls: int = QUEUE_PULLS) -> int:
        """Fold what has arrived, at most so many pulls; returns how many messages."""
        now = self._clock()
        count = 0
        while pulls and (events := reading.take()) is not None:
            pulls -= 1
            self._traces.note(events)
            self.cycle.fold(events, now)
            count += len(events)
        self.cycle.behind = reading.behind
        self._report.folded += count
        figures = self.around.figures
        if count and figures.undecided_since is None:
            figures.undecided_since = figures.timer()
        if not self.around.ready.is_set():
            self._report.progress.add(count)
        return count

    def _waits_for_more(self) -> bool:
        """Return whether the state may lack messages that were removed unread, and waiting for their successors can help."""
        if not self.cycle.behind:
            self._behind_since = None
            return False
        now = self.around.figures.timer()
        if self._behind_since is None:
            self._behind_since = now
        return now - self._behind_since < BEHIND_SECONDS + self.around.gather_seconds

    async def _decide(self, reading: Reading) -> bool:
        """Decide once and store it. True if there may be more to decide at once.

        What arrives meanwhile is folded meanwhile: folds commute, and the commit record says what was folded before.
        """
        cycle = self.cycle
        started, started_ns = time.perf_counter(), time.time_ns()
        now = self._clock()
        if self._report.clock_is_ahead(reading.seconds_ahead(now)) or self._room_pause.waits(started):
            return False
        if self._waits_for_more() and not cycle.has_next:
            return False
        batch = self._propose(now)
        figures = self.around.figures
        waiting = figures.undecided_since
        if batch is None:
            if cycle.ready and cycle.due(now) is None:
                # Nothing follows from what was folded, or another replica decides on it.
                figures.undecided_since = None
            return False
        figures.undecided_since = None
        sent = time.perf_counter()
        storing = asyncio.ensure_future(self._store(batch, reading))
        # The task sends in the first of these event loop iterations, and the loop then writes to the socket.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        outcome, drained = await self._meanwhile(storing, reading, batch)
        if isinstance(outcome, Stored):
            cycle.stored(batch, outcome)
            self._traces.note_stored(batch.events, outcome.first)
            if self._room_pause.stored():
                self._report.has_room()
            self._report.answered(outcome, len(batch.decided), sent - started, time.perf_counter() - sent)
            if self._warns is not None:
                self._report.warn(self._warns.warnings(batch.decided))
            if self.host is not None and self.host.telemetry.tracing is not None:
                self.host.telemetry.tracing.stored(batch.as_stored(outcome.first), self._traces, started_ns, time.time_ns())
            if drained is not None:
                await self._meanwhile(drained, reading)
            return True
        figures.undecided_since = waiting if waiting is not None else figures.undecided_since
        self._report.answered(outcome, 0, sent - started, time.perf_counter() - sent)
        if isinstance(outcome, Refused) and outcome.no_space:
            cycle.not_stored()
            self._report.has_no_room(outcome.reason, self._room_pause.refused(time.perf_counter()))
            return False
        if isinstance(outcome, Refused) and outcome.wrong_sequence:
            if cycle.refused(self._clock()):
                logger.warning("%s: another replica committed first: %s", self.identity.service, outcome.reason)
                await self.log.publish(refusal_of(batch, self.identity, outcome.reason, self._clock()))
            await self._check_expected_commit(batch)
            return False
        raise Behind(f"a batch of {len(batch.events)} was not stored: {outcome.reason}")

    async def _check_expected_commit(self, batch: Batch) -> None:
        """Another replica's commit is delivered, and ends the refusals. If LOG no longer holds the expected commit, no message
        shows it: the next incarnation expects the present one. Raises Behind."""
        fence = batch.place.fence
        head = await self.log.head(self.identity.commit_subject) if fence else None
        if fence and (head is None or head.sequence < fence):
            raise Behind(f"the last commit record, LOG:{fence}, is not on LOG any more")

    def _propose(self, now: datetime) -> Batch | None:
        """Decide. If a message that cannot be decided on is found, this incarnation ends: its state holds the message."""
        cycle, quarantine = self.cycle, self.around.quarantine
        if quarantine.searching:
            if not cycle.loaded:
                return None
            good = quarantine.search(lambda event: cycle.apply(event, now), lambda: cycle.core.decide(now))
            if not good:
                raise Behind("a message that cannot be decided with is looked for")
        try:
            batch = cycle.propose(now)
        except Exception as error:
            raise self._failed(error) from error
        if cycle.loaded:
            quarantine.decided()
        return batch

    def _decide_next(self, batch: Batch) -> None:
        try:
            self.cycle.decide_next(batch, self._clock())
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> Behind:
        logger.error("%s: deciding failed", self.identity.service, exc_info=error)
        self.around.quarantine.failed(error)
        return Behind(f"deciding failed: {type(error).__name__}: {error}")

    async def _publish_findings(self) -> None:
        """Publish the quarantined messages."""
        found = await publish_findings(self.around.quarantine, self.log, self.identity.service, self._clock())
        if self.host is not None:
            self.host.telemetry.dead_letters.add(found)

    async def _store(self, batch: Batch, reading: Reading) -> tuple[Stored | Refused | NoAnswer, asyncio.Task[None] | None]:
        """Store a batch. Behind a small one during which something arrived, messages that queued at the log meanwhile are
        stored when the returned task ends."""
        apart, folded = time.perf_counter() - self._answered, self.cycle.folded
        outcome = await store_batch(self.log, batch.writes())
        self._answered = time.perf_counter()
        small = isinstance(outcome, Stored) and len(batch.events) <= AHEAD_FROM
        followed = self.cycle.folded != folded or reading.has_more
        if self._draining is None or not small or not followed or apart > DRAIN_SECONDS:
            return outcome, None
        return outcome, asyncio.ensure_future(self._draining.drained(self.identity.commit_subject))

    async def _meanwhile(self, task: asyncio.Task[T], reading: Reading, batch: Batch | None = None) -> T:
        """Fold what arrives, and decide what follows `batch`, until the task is done; returns its result."""
        task.add_done_callback(lambda _: reading.wake.set())
        try:
            while not task.done():
                reading.wake.clear()
                # Fold arrived messages first, so that a long queue of pods does not delay other events.
                folded = self._fold_waiting(reading, 1)
                if batch is not None and not self._waits_for_more():
                    self._decide_next(batch)
                if folded:
                    await asyncio.sleep(0)
                else:
                    await reading.wake.wait()
        finally:
            task.cancel()
        return task.result()

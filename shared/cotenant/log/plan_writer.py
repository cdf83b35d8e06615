"""Stores plans on the log: writes that arrive together share one atomic batch.

A batch holds at most one write per subject. If it is refused, its plans are repeated one by one, so that one stale
client affects no other. While a batch is being stored the next one gathers; writes of light flows are stored beside it
(`write_queue`, which also says whose turn it is). The answer to a plan comes once the read
model has folded it, so a client reads what it has written. What a request writes continues the request's trace; other writes
continue that of their first cause.

Bounds: those of `write_queue`; MAX_BYTES of plans wait or are being stored (beyond that `Overloaded`); WRITE_SECONDS from a
plan to its answer; one batch at a time, and beside it fewer than WORTH_A_BATCH messages; SINGLES repeated at a time,
FOLD_SECONDS waiting for the fold.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from cotenant.events.envelope import Event
from cotenant.log.contract import WORTH_A_BATCH, Log, NoAnswer, Refused, Stored, Write
from cotenant.log.plans import Outcome, Plan, PlannedWrite, Written
from cotenant.log.storing import store_batch
from cotenant.log.write_queue import Overloaded, PendingPlan, WriteQueue
from cotenant.model.trace_context import continued

logger = logging.getLogger(__name__)

MAX_BYTES = 64 << 20
SINGLES = 16
REMEMBERED_SUBJECTS = 20_000
FOLD_SECONDS = 2.0
WRITE_SECONDS = 10.0


class PlanWriter:
    """One task that stores what was submitted."""

    def __init__(
        self,
        log: Log,
        source: str,
        incarnation: str,
        clock: Callable[[], datetime],
        folded: Callable[[int], Awaitable[bool]],
        trace_of: Callable[[Sequence[str]], str] = lambda _: "",
    ) -> None:
        """`incarnation` makes event ids unique over restarts; `folded(sequence)` waits until the read model has it; `trace_of`
        returns the traceparent of the first of some causes, empty where it is not known."""
        self._log = log
        self._source = source
        self._incarnation = incarnation
        self._clock = clock
        self._folded = folded
        self._trace_of = trace_of
        self.on_stored: Callable[[Event, str, int], None] | None = None
        """Called with each event that was stored, the traceparent that it continues, and when it was sent (ns of the epoch)."""
        self.queue = WriteQueue(self._is_over)
        self._open: set[PendingPlan] = set()
        """Plans without an answer yet."""
        self._wake = asyncio.Event()
        self._count = 0
        self._last: OrderedDict[str, tuple[int, bool]] = OrderedDict()
        """By subject, the sequence of its last stored message, and whether that was a tombstone."""
        self._settling: set[asyncio.Task[None]] = set()
        self._batch: asyncio.Future[Any] | None = None
        """The batch that is being stored, and what is stored beside it."""
        self._beside: asyncio.Future[Any] | None = None
        self.held_bytes = 0
        """Of plans that wait, are being stored, or are not folded yet."""
        self.batches = 0
        self.refused_batches = 0

    async def submit(self, plan: Plan, actor: str, flow: str = "") -> Outcome:
        """Store a plan; returns when it is stored and folded, or refused, within WRITE_SECONDS. `flow`: see `write_queue`.
        Raises Overloaded, and what the log raises on a plan that cannot be encoded."""
        loop = asyncio.get_running_loop()
        pending = PendingPlan(plan, actor, flow, loop.create_future(), loop.time())
        weight_bytes = pending.weight_bytes
        if self.held_bytes and self.held_bytes + weight_bytes > MAX_BYTES:
            raise Overloaded(f"writes of {self.held_bytes} bytes are waiting for the log already")
        self.queue.add(pending)
        self.held_bytes += weight_bytes
        self._open.add(pending)
        self._wake.set()
        late = loop.call_later(WRITE_SECONDS, self._give_up, pending, WRITE_SECONDS)
        try:
            return await pending.done
        finally:
            late.cancel()
            self._open.discard(pending)
            self.held_bytes -= weight_bytes

    @property
    def oldest_since(self) -> float | None:
        """When the oldest plan without an answer came, by the loop's time; None: there is none."""
        return min((pending.since for pending in tuple(self._open)), default=None)

    def give_up(self, waited_seconds: float) -> None:
        """Answer all plans that have waited this long already: the log will not answer in time."""
        before = asyncio.get_running_loop().time() - waited_seconds
        for pending in [pending for pending in self._open if pending.since <= before]:
            self._give_up(pending, waited_seconds)

    def _give_up(self, pending: PendingPlan, waited_seconds: float) -> None:
        """Answer a plan whose time is over; one that has not left will not be stored."""
        if pending.sent:
            self._settle(pending, NoAnswer(f"no answer within {waited_seconds:.0f} s"))
        else:
            self._fail(pending, Overloaded(f"earlier writes have waited {waited_seconds:.0f} s for the log"))

    def forget(self) -> None:
        """Drop the stored sequences: LOG is loaded again, and may be another one."""
        self._last.clear()

    async def run(self) -> None:
        """Store forever; cancelled at the end of the process."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                # Let the requests that arrived in the same iteration of the event loop join the batch.
                await asyncio.sleep(0)
                self._batch, self._beside = _unless_over(self._batch), _unless_over(self._beside)
                if self._beside is None:
                    self._beside = self._begin(self.queue.take_beside())
                if self._batch is None:
                    self._batch = self._begin(self.queue.take())
        finally:
            for storing in (self._batch, self._beside):
                if storing is not None:
                    storing.cancel()
                    await asyncio.gather(storing, return_exceptions=True)

    def _begin(self, batch: list[PendingPlan]) -> asyncio.Future[Any] | None:
        """Begin to store some plans; None: there are none."""
        if not batch:
            return None
        # A lost answer is resolved by the first message's expectation.
        batch.sort(key=lambda item: item.plan.writes[0].expected is None)
        for pending in batch:
            pending.sent = True
        storing: asyncio.Future[Any]
        if sum(len(pending.plan.writes) for pending in batch) >= WORTH_A_BATCH:
            storing = asyncio.ensure_future(self._store(batch))
        else:
            # Few: each plan by itself costs the server less, and a refused one does not affect the others.
            storing = asyncio.gather(*(self._store([pending]) for pending in batch))
        storing.add_done_callback(lambda _: self._end(batch))
        return storing

    def _end(self, batch: Sequence[PendingPlan]) -> None:
        self.queue.stored(batch)
        self._wake.set()

    def _is_over(self, pending: PendingPlan) -> bool:
        """Whether a plan need not be stored any more: it has its answer, or is known to be stale and gets it now."""
        if pending.done.done():
            return True
        stale = self._stale(pending.plan)
        if stale:
            self._settle(pending, Refused(stale))
        return bool(stale)

    def _stale(self, plan: Plan) -> str:
        for write in plan.writes:
            last, ended = self._last.get(write.subject, (0, False))
            if ended and write.expected == 0:
                continue  # the tombstone may have expired: LOG knows
            if write.expected is not None and last > write.expected:
                return f"wrong last sequence: {last} on {write.subject}, expected {write.expected}"
        return ""

    def _events(self, pending: PendingPlan) -> Sequence[Event]:
        if not pending.events:
            now = self._clock()
            events = []
            for write in pending.plan.writes:
                self._count += 1
                event_id = f"{self._source}/{self._incarnation}/{self._count}"
                trace = continued(self._parent(pending, write), event_id)
                events.append(write.event(now, event_id, self._source, pending.actor, trace))
            pending.events = tuple(events)
        return pending.events

    def _parent(self, pending: PendingPlan, write: PlannedWrite) -> str:
        return pending.trace or self._trace_of(write.causes)

    async def _store(self, batch: Sequence[PendingPlan]) -> None:
        sent_ns = time.time_ns()
        writes = [
            Write(event=event, expected=planned.expected)
            for pending in batch
            for planned, event in zip(pending.plan.writes, self._events(pending), strict=True)
        ]
        self.batches += 1
        try:
            outcome = await store_batch(self._log, writes)
        except (TypeError, ValueError) as error:  # it cannot be encoded: that plan fails, not the writer
            if len(batch) > 1:
                await asyncio.gather(*(self._store([pending]) for pending in batch))
            else:
                self._fail(batch[0], error)
            return
        if isinstance(outcome, Stored):
            self._record(batch, outcome.first)
            if self.on_stored is not None:
                self._notify(self.on_stored, batch, outcome.first, sent_ns)
            task = asyncio.ensure_future(self._settle_when_folded(batch, outcome))
            self._settling.add(task)
            task.add_done_callback(self._settling.discard)
            return
        if isinstance(outcome, Refused) and len(batch) > 1:
            self.refused_batches += 1
            for start in range(0, len(batch), SINGLES):
                await asyncio.gather(*(self._store([pending]) for pending in batch[start : start + SINGLES]))
            return
        for pending in batch:
            self._settle(pending, outcome)

    def _record(self, batch: Sequence[PendingPlan], first: int) -> None:
        sequence = first
        for pending in batch:
            for write in pending.plan.writes:
                self._last[write.subject] = (sequence, write.tombstone)
                self._last.move_to_end(write.subject)
                sequence += 1
        while len(self._last) > REMEMBERED_SUBJECTS:
            self._last.popitem(last=False)

    def _notify(
        self, on_stored: Callable[[Event, str, int], None], batch: Sequence[PendingPlan], first: int, sent_ns: int
    ) -> None:
        for pending in batch:
            for planned, event in zip(pending.plan.writes, pending.events, strict=True):
                on_stored(replace(event, sequence=first), self._parent(pending, planned), sent_ns)
                first += 1

    async def _settle_when_folded(self, batch: Sequence[PendingPlan], stored: Stored) -> None:
        try:
            async with asyncio.timeout(FOLD_SECONDS):
                await self._folded(stored.last)
        except TimeoutError:
            logger.warning("LOG:%d is stored and was not read back within %.0f s", stored.last, FOLD_SECONDS)
        sequence = stored.first
        for pending in batch:
            count = len(pending.plan.writes)
            self._settle(pending, Written(tuple(range(sequence, sequence + count))))
            sequence += count

    def _fail(self, pending: PendingPlan, error: Exception) -> None:
        if not pending.done.done():
            pending.done.set_exception(error)

    def _settle(self, pending: PendingPlan, outcome: Outcome) -> None:
        if not pending.done.done():
            pending.done.set_result(outcome)


def _unless_over(storing: asyncio.Future[Any] | None) -> asyncio.Future[Any] | None:
    """Return what is still being stored. Raises what storing it raised."""
    if storing is None or not storing.done():
        return storing
    storing.result()
    return None

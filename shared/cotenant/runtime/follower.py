"""Follows the log for one process: readers, start marker, fresh starts. Everybody who folds LOG is run by it.

In: a log, what is read, and a function that makes an incarnation: a fresh state with its start marker. Out: deliveries in
order, in a bounded queue; the incarnation folds them at its own pace. Too far behind, or while the log cannot be asked, the
incarnation ends and the next one begins; the more in a row end early, the later, as a log that refuses what is decided would
refuse it again.

It owns no state but the queue. What went wrong is in the operator's log, once an incarnation.

Bounds: MAX_PAUSE_SECONDS between incarnations; MARKER_TRIES to store a start marker; `queue_pulls` pulls of `pull_limit` wait
between reader and incarnation; CLOSE_SECONDS to give consumers back.

Over 300 lines: what an incarnation can be, what it reads and who runs it are one contract.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol, runtime_checkable

from nats.errors import Error as NatsError
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_exponential_jitter

from cotenant.engine.load import Load
from cotenant.engine.quarantine import Quarantine
from cotenant.events.deadletters import make_dead_letter
from cotenant.events.envelope import Event, View, encode_event
from cotenant.log.contract import (
    LOG,
    USAGE,
    Behind,
    Clocked,
    Declared,
    Gathering,
    Growing,
    Lagging,
    Log,
    NoAnswer,
    Reader,
    Refused,
    Skipping,
    Snapshotting,
    Stored,
    Viewing,
    Write,
)
from cotenant.log.nats.jetstream import BusError
from cotenant.log.traces import about
from cotenant.runtime.figures import LOOK_SECONDS, Figures

logger = logging.getLogger(__name__)

PULL_LIMIT = 1000
QUEUE_PULLS = 16
PULL_SECONDS = 30.0
"""How long a pull waits. Nothing is done between two of them, and a process can have hundreds of readers."""
CLOSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
MARKER_TRIES = 7
"""After pauses of a quarter of a second to 30 s."""
GOOD_SECONDS = 60.0
"""An incarnation that lasted so long was not in vain: the next one begins without a pause."""
LOG_ERRORS = (NatsError, TimeoutError, OSError, BusError)
"""What a log's calls raise while the server cannot be asked, or answers that it cannot do it now."""


def utc_now() -> datetime:
    """Return the wall clock in UTC."""
    return datetime.now(UTC)


class StoppedReadingError(RuntimeError):
    """A reader's task ended although nobody asked it to."""


class Reading:
    """What an incarnation reads: the deliveries that wait, and the wake-up call when there are more."""

    def __init__(self, readers: Sequence[Reader], stopping: asyncio.Event, pull_limit: int, queue_pulls: int) -> None:
        self.wake = asyncio.Event()
        """Something arrived, was answered, or ended."""
        self._readers = readers
        self._stopping = stopping
        self._pull_limit = pull_limit
        self._queue: asyncio.Queue[tuple[Sequence[Event], bool]] = asyncio.Queue(queue_pulls)
        """What a pull brought, and whether its reader was behind then."""
        self.behind = False
        """What was taken may lack messages of LOG (`log.contract.Lagging`)."""
        self._tasks = [asyncio.ensure_future(self._read(reader)) for reader in readers]
        self._ends = asyncio.ensure_future(stopping.wait())
        self._duty: asyncio.Future[None] | None = None
        self._taken = 0
        self._on_loaded: Callable[[], None] = lambda: None
        for task in (*self._tasks, self._ends):
            task.add_done_callback(lambda _: self.wake.set())
        self._snapshot = asyncio.Event()
        of_log = readers[0]
        if isinstance(of_log, Snapshotting):
            of_log.on_snapshot_over = self._snapshot.set
        if not isinstance(of_log, Snapshotting) or of_log.snapshot_over:
            self._snapshot.set()

    async def _read(self, reader: Reader) -> None:
        lagging = reader if reader is self._readers[0] and isinstance(reader, Lagging) else None
        behind = False
        while True:
            events = await reader.pull(self._pull_limit, PULL_SECONDS)
            was, behind = behind, lagging is not None and lagging.behind
            if events or was != behind:
                await self._queue.put((events, behind))
                self.wake.set()
                # Deliveries of a long load arrive between decisions: let the others run.
                await asyncio.sleep(0)

    async def snapshot_read(self) -> None:
        """Wait until the snapshot of LOG has been read from the server; it may still wait to be taken."""
        await self._snapshot.wait()

    def beside(self, duty: Coroutine[Any, Any, None]) -> None:
        """Do something while deliveries are folded; what it raises ends the incarnation, as what a reader raises."""
        self._duty = asyncio.ensure_future(duty)
        self._duty.add_done_callback(lambda _: self.wake.set())

    def take(self) -> Sequence[Event] | None:
        """Return the deliveries of one pull, None where none wait."""
        while not self._queue.empty():
            events, behind = self._queue.get_nowait()
            of_log = not events or events[-1].stream == LOG
            if of_log:
                self.behind = behind
            if events:
                if of_log:
                    self._taken = events[-1].sequence
                return events
        return None

    @property
    def taken_to(self) -> int:
        """The sequence of LOG up to which everything that is read was taken."""
        return self._readers[0].position if self._queue.empty() else self._taken

    def when_loaded(self, call: Callable[[], None]) -> None:
        """Have a function called once the load is over."""
        self._on_loaded = call

    async def wait(self, seconds: float) -> None:
        """Wait for deliveries, a wake-up call or the end, at most so long. Raises what ended a reader."""
        self.wake.clear()
        if self._queue.empty() and not self._stopping.is_set() and not any(task.done() for task in self._tasks):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.wake.wait()
        if self._duty is not None and self._duty.done():
            duty, self._duty = self._duty, None
            duty.result()
        for task in self._tasks:
            if task.done():
                task.result()
                raise StoppedReadingError

    def loaded(self) -> None:
        """The load is over: from here on a reader that is too far behind says so."""
        for reader in self._readers:
            reader.loaded()
        self._on_loaded()

    @property
    def snapshot_over(self) -> bool:
        """Whether everything that was there when the readers began is taken; False where they do not say."""
        over = all(isinstance(reader, Snapshotting) and reader.snapshot_over for reader in self._readers)
        return over and self._queue.empty()

    def seconds_ahead(self, now: datetime) -> float:
        """Return by how much a clock that shows `now` is ahead of the log's, at most; 0 where that is not known."""
        times = [time for reader in self._readers if isinstance(reader, Clocked) and (time := reader.server_time()) is not None]
        return now.timestamp() - max(times) if times else 0.0

    async def stop(self) -> None:
        """Stop reading."""
        tasks: list[asyncio.Future[Any]] = [*self._tasks, self._ends, *([] if self._duty is None else [self._duty])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Incarnation(Protocol):
    """A fresh state and the loop that keeps it."""

    def marker(self, now: datetime) -> Event:
        """Return the start marker, to be stored behind the snapshot. Its delivery ends the load."""

    @property
    def pause(self) -> timedelta:
        """How long to wait before the next incarnation, after this one broke off."""

    def knows(self, sequence: int) -> bool:
        """Tell whether a message of LOG need not be delivered: an own one that is folded already. Asked in order."""

    async def run(self, reading: Reading) -> None:
        """Fold deliveries and act until stopped. May raise Behind."""


@runtime_checkable
class Prepared(Protocol):
    """An incarnation that looks at the log before its load."""

    async def prepare(self) -> None:
        """Called before `run`."""


@runtime_checkable
class Roomless(Protocol):
    """An incarnation that can begin on a log without room for its start marker: what it reads says when its load is over."""

    def without_marker(self) -> None:
        """Called where there was no room, while `run` runs. The incarnation stores its marker when there is."""


class LoadingIncarnation:
    """What most incarnations are made of: a Load; own messages are read like all others."""

    def __init__(self, load: Load) -> None:
        self.load = load

    def marker(self, now: datetime) -> Event:
        """See `Incarnation`."""
        return self.load.marker(now)

    @property
    def pause(self) -> timedelta:
        """See `Incarnation`."""
        return self.load.pause

    def knows(self, sequence: int) -> bool:
        """See `Incarnation`."""
        del sequence
        return False


class Follower:
    """Runs one incarnation after the other until `stopping` is set."""

    def __init__(
        self,
        log: Log,
        filters: Sequence[str],
        stopping: asyncio.Event,
        *,
        service: str,
        republished: bool = False,
        usage_filters: Sequence[str] = (),
        views: Sequence[type[View]] = (),
        pull_limit: int = PULL_LIMIT,
        queue_pulls: int = QUEUE_PULLS,
        max_pause_seconds: float = MAX_PAUSE_SECONDS,
        gather_seconds: float = 0.0,
        clock: Callable[[], datetime] = utc_now,
        figures: Figures | None = None,
    ) -> None:
        """`republished`: LOG is read without a consumer (`Log.follow_republished`), by the one filter there is.
        `gather_seconds`: see `log.contract.Gathering`; 0: everything is delivered at once. `figures`: loads, and how
        far a consumer is behind."""
        self.incarnations = 0
        """So many were begun."""
        self._log = log
        self._filters = tuple(filters)
        self._stopping = stopping
        self._service = service
        self._republished = republished
        self._usage_filters = tuple(usage_filters)
        self._views = tuple(views)
        self._pull_limit = pull_limit
        self._queue_pulls = queue_pulls
        self._max_pause = max_pause_seconds
        self._gather_seconds = gather_seconds
        self._clock = clock
        self._figures = figures or Figures()

    async def run(self, begin: Callable[[int], Incarnation]) -> None:
        """Begin incarnations, numbered from 1. Anything but Behind and an unreachable log ends the process."""
        in_vain = 0
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            self.incarnations += 1
            incarnation, began = begin(self.incarnations), loop.time()
            try:
                await self._run_one(incarnation)
            except (Behind, *LOG_ERRORS) as reason:
                said = str(reason) if isinstance(reason, Behind) else f"{type(reason).__name__}: {reason}"
                in_vain = 0 if loop.time() - began > GOOD_SECONDS else in_vain + 1
                pause = min(max(incarnation.pause.total_seconds(), _pause_seconds(in_vain)), self._max_pause)
                logger.warning("%s: %s: loading the log again in %.1f s", self._service, said, pause)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stopping.wait()

    async def _open_reader(self) -> Reader:
        if self._republished:
            (selected,) = self._filters
            return await self._log.follow_republished(selected)
        return await self._log.follow(LOG, self._filters)

    async def _store_marker(self, marker: Write) -> Stored | Refused:
        """Store a start marker; refused only where LOG has no room. Thousands of processes may start at once, so each asks less
        often while no answer comes.

        The marker expects nothing of its subject, so storing it twice does no harm. Raises Behind where it cannot be stored.
        """
        outcome: Stored | Refused | NoAnswer = NoAnswer("not sent")
        async for attempt in AsyncRetrying(
            retry=retry_if_result(lambda stored: isinstance(stored, NoAnswer)),
            wait=wait_exponential_jitter(multiplier=0.25, exp_base=3, max=MAX_PAUSE_SECONDS),
            stop=stop_after_attempt(MARKER_TRIES),
            retry_error_callback=lambda _: None,
        ):
            with attempt:
                outcome = await self._log.append([marker])
            if attempt.retry_state.outcome is not None and not attempt.retry_state.outcome.failed:
                attempt.retry_state.set_result(outcome)
        if isinstance(outcome, Stored) or (isinstance(outcome, Refused) and outcome.no_space):
            return outcome
        raise Behind(f"the start marker was not stored: {outcome.reason}")

    async def _mark(self, incarnation: Incarnation, reading: Reading) -> None:
        """Store the start marker once the snapshot is read: what is left out of it, as a newer message was there already, lies
        before the marker then. Stored earlier, its delivery would end a load that lacks what had been replaced meanwhile.
        """
        await reading.snapshot_read()
        stored = await self._store_marker(Write(event=incarnation.marker(self._clock())))
        if isinstance(stored, Refused):
            if not isinstance(incarnation, Roomless):
                raise Behind(f"the start marker was not stored: {stored.reason}")
            logger.warning("%s: no room for the start marker (%s): going on without", self._service, stored.reason)
            incarnation.without_marker()

    async def _look(self, reading: Reading) -> None:
        """Look at LOG's end now and then, for the figures. A look that is not answered says nothing."""
        figures, log = self._figures, self._log
        figures.position = lambda: reading.taken_to
        while isinstance(log, Growing):
            with contextlib.suppress(*LOG_ERRORS):
                figures.saw_end(await log.last_sequence(LOG))
            figures.clock_ahead_seconds = max(0.0, reading.seconds_ahead(self._clock()))
            await asyncio.sleep(LOOK_SECONDS)

    def _loaded(self, began: float) -> None:
        self._figures.load_seconds = asyncio.get_running_loop().time() - began
        self._figures.loads += 1

    async def _run_one(self, incarnation: Incarnation) -> None:
        began = asyncio.get_running_loop().time()
        readers: list[Reader] = []
        looking: asyncio.Future[None] | None = None
        try:
            if self.incarnations > 1 and isinstance(self._log, Declared):
                await self._log.check_streams()
            readers.append(await self._open_reader())
            if isinstance(readers[0], Skipping):
                readers[0].skip(incarnation.knows)
            if self._views and isinstance(readers[0], Viewing):
                readers[0].view(self._views)
            if self._gather_seconds and isinstance(readers[0], Gathering):
                readers[0].gather(self._gather_seconds)
            if self._usage_filters:
                readers.append(await self._log.follow(USAGE, self._usage_filters))
                # No marker ends this load: samples are news or too old.
                readers[1].loaded()
            if isinstance(incarnation, Prepared):
                await incarnation.prepare()
            reading = Reading(readers, self._stopping, self._pull_limit, self._queue_pulls)
            try:
                reading.when_loaded(partial(self._loaded, began))
                looking = None if self._republished else asyncio.ensure_future(self._look(reading))
                reading.beside(self._mark(incarnation, reading))
                await incarnation.run(reading)
            finally:
                if looking is not None:
                    looking.cancel()
                await reading.stop()
        finally:
            for reader in readers:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await reader.close()


async def publish_findings(quarantine: Quarantine, log: Log, service: str, now: datetime, writer: str = "") -> int:
    """Say what was set aside, on EXECUTION and in this process' log; returns how many messages. `writer`: see
    `make_dead_letter`."""
    findings, quarantine.findings = quarantine.findings, []
    for finding in findings:
        event = finding.event
        logger.error("%s: %s on %s is set aside: %s", service, event.ref, event.subject, finding.reason, extra=about(event))
        raw = encode_event(event)
        letter = make_dead_letter(event.stream, event.subject, event.sequence, finding.reason, raw, now, service, writer)
        await log.publish(letter)
    return len(findings)


def _pause_seconds(in_vain: int) -> float:
    """Return the pause after so many short incarnations in a row: none after the first, then 1, 2, 4 ... MAX_PAUSE_SECONDS."""
    return 0.0 if in_vain < 2 else min(2.0 ** (in_vain - 2), MAX_PAUSE_SECONDS)

"""Follows the log for one process: readers, start marker, fresh starts. Every process that folds LOG runs it.

In: a log, what is read, and a function that makes an incarnation: a fresh state with its start marker. Out: deliveries in
order, in a bounded queue; the incarnation folds them at its own pace. When it is too far behind, or the log does not answer,
the incarnation ends and the next one begins; after several early ends in a row with growing delay, as a log that refuses a
decision would refuse it again. Each delay is shortened by chance, by half at most: what ends one process's incarnation often
ends those of thousands of executors, and their loads should not begin together.

Its only state is the queue. Errors are logged once per incarnation.

Bounds: MAX_PAUSE_SECONDS between incarnations, SPREAD_SECONDS after the first early end of one that many others run;
MARKER_TRIES to store a start marker; `queue_pulls` pulls of `pull_limit` wait between reader and incarnation; CLOSE_SECONDS to
give consumers back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from nats.errors import Error as NatsError
from tenacity import AsyncRetrying, retry_if_result, stop_after_attempt, wait_exponential_jitter

from cotenant.events.envelope import PayloadView
from cotenant.log.contract import (
    LOG,
    USAGE,
    Behind,
    Declared,
    GatheringReader,
    Growing,
    Log,
    NoAnswer,
    Reader,
    Refused,
    Skipping,
    Stored,
    Viewing,
    Write,
)
from cotenant.log.nats.jetstream import BusError
from cotenant.runtime.figures import LOOK_SECONDS, Figures
from cotenant.runtime.freed_memory import give_back_later
from cotenant.runtime.incarnations import Incarnation, Prepared, Roomless
from cotenant.runtime.reading import Reading

logger = logging.getLogger(__name__)

PULL_LIMIT = 1000
QUEUE_PULLS = 16
CLOSE_SECONDS = 2.0
MAX_PAUSE_SECONDS = 30.0
SPREAD_SECONDS = 1.0
"""Executors, of which there are thousands, begin again within this time of each other where others begin at once."""
MARKER_TRIES = 7
"""After pauses of a quarter of a second to 30 s."""
GOOD_SECONDS = 60.0
"""After an incarnation that ran for at least this long once it had loaded, the next one begins without a pause. One that took
as long to load counts as in vain: loads that begin at once make a server slower that is too slow for thousands of them."""
LOG_ERRORS = (NatsError, TimeoutError, OSError, BusError)
"""What a log's calls raise while the server does not answer, or is temporarily unavailable."""


def utc_now() -> datetime:
    """Return the wall clock in UTC."""
    return datetime.now(UTC)


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
        views: Sequence[type[PayloadView]] = (),
        pull_limit: int = PULL_LIMIT,
        queue_pulls: int = QUEUE_PULLS,
        max_pause_seconds: float = MAX_PAUSE_SECONDS,
        gather_seconds: float = 0.0,
        hurried: Sequence[str] = (),
        loads: asyncio.Semaphore | None = None,
        clock: Callable[[], datetime] = utc_now,
        chance: Callable[[], float] = random.random,
        figures: Figures | None = None,
    ) -> None:
        """`republished`: LOG is read without a consumer (`Log.follow_republished`), by the one filter there is.
        `gather_seconds`, `hurried`: see `log.contract.Gathering`; 0: everything is delivered at once. `chance`: from 0 to 1, by
        how much pauses are shortened. `loads`: bounds how many loads of a process are in progress. `figures`: loads, and how
        far a consumer is behind."""
        self.incarnations = 0
        """Number of incarnations begun."""
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
        self._hurried = tuple(hurried)
        self._loads = loads or asyncio.Semaphore()
        self._is_loading = False
        """This follower holds one of `loads`."""
        self._clock = clock
        self._chance = chance
        self._figures = figures or Figures()
        self._loaded_at: float | None = None

    async def run(self, begin: Callable[[int], Incarnation]) -> None:
        """Begin incarnations, numbered from 1. Anything but Behind and an unreachable log ends the process."""
        in_vain = 0
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            self.incarnations += 1
            incarnation, self._loaded_at = begin(self.incarnations), None
            try:
                await self._run_one(incarnation)
            except (Behind, *LOG_ERRORS) as reason:
                cause = str(reason) if isinstance(reason, Behind) else f"{type(reason).__name__}: {reason}"
                was_good = self._loaded_at is not None and loop.time() - self._loaded_at > GOOD_SECONDS
                in_vain = 0 if was_good else in_vain + 1
                pause = self._pause_seconds(incarnation.pause.total_seconds(), in_vain)
                logger.warning("%s: %s: loading the log again in %.1f s", self._service, cause, pause)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stopping.wait()

    def _pause_seconds(self, own: float, in_vain: int) -> float:
        """Return the pause after an incarnation, which needs one of its own, and so many short ones in a row: none after the
        first, then 1, 2, 4 ... MAX_PAUSE_SECONDS."""
        growing = 0.0 if in_vain < 2 else min(2.0 ** (in_vain - 2), MAX_PAUSE_SECONDS)
        pause = min(max(own, growing), self._max_pause)
        if not pause and self._republished:
            return SPREAD_SECONDS * (1.0 - self._chance())
        return pause * (1.0 - self._chance() / 2)

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
        """Store the start marker once the snapshot is read: messages left out of it because of a newer one then lie
        before the marker. Stored earlier, its delivery would end a load that lacks replaced messages.
        """
        await reading.snapshot_read()
        stored = await self._store_marker(Write(event=incarnation.marker(self._clock())))
        if isinstance(stored, Refused):
            if not isinstance(incarnation, Roomless):
                raise Behind(f"the start marker was not stored: {stored.reason}")
            logger.warning("%s: no room for the start marker (%s): continuing without it", self._service, stored.reason)
            incarnation.without_marker()

    async def _look(self, reading: Reading) -> None:
        """Read LOG's end at intervals, for the figures. An unanswered read is ignored."""
        figures, log = self._figures, self._log
        figures.position = lambda: reading.taken_to
        while isinstance(log, Growing):
            with contextlib.suppress(*LOG_ERRORS):
                figures.saw_end(await log.last_sequence(LOG))
            figures.clock_ahead_seconds = max(0.0, reading.seconds_ahead(self._clock()))
            await asyncio.sleep(LOOK_SECONDS)

    def _end_load(self) -> None:
        if self._is_loading:
            self._is_loading = False
            self._loads.release()

    def _loaded(self, began: float) -> None:
        self._end_load()
        self._loaded_at = asyncio.get_running_loop().time()
        self._figures.load_seconds = self._loaded_at - began
        self._figures.loads += 1
        give_back_later(former=self.incarnations > 1)

    async def _run_one(self, incarnation: Incarnation) -> None:
        readers: list[Reader] = []
        looking: asyncio.Future[None] | None = None
        self._is_loading = await self._loads.acquire()
        began = asyncio.get_running_loop().time()
        try:
            if self._stopping.is_set():
                return
            if self.incarnations > 1 and isinstance(self._log, Declared):
                await self._log.check_streams()
            readers.append(await self._open_reader())
            if isinstance(readers[0], Skipping):
                readers[0].skip(incarnation.knows)
            if self._gather_seconds and isinstance(readers[0], GatheringReader):
                readers[0].gather(self._gather_seconds, self._hurried)
            if self._usage_filters:
                # Everything that USAGE holds: the last messages of a node came one after the other, none stands for another.
                readers.append(await self._log.follow(USAGE, self._usage_filters, after=0))
            for reader in readers:
                if self._views and isinstance(reader, Viewing):
                    reader.view(self._views)
            if isinstance(incarnation, Prepared):
                await incarnation.prepare(readers[0])
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
            self._end_load()
            for reader in readers:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await reader.close()

"""The shell of a deciding service: pull, fold, decide, store, apply; at least one decision a tick. While a batch is being
stored, what arrives is folded and the next batch is decided. Messages queue at the log behind a batch; a decision that does not
wait for them leaves them for the batch after next. So behind a small batch the service lets them pass first (`Draining`): one
round trip, no timer, no wait where nothing queues.

It owns no rule: `engine.cycle` holds the order of things, `log.contract` what can go wrong. A core that raises ends the
process (the supervisor starts it again and the crash is seen); a bad message cannot, as the reader puts it aside.

Bounds: QUEUE_PULLS pulls of PULL_LIMIT wait between reader and core.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from cotenant.engine.commit import Batch, Identity, refusal_of
from cotenant.engine.core import Requesting
from cotenant.engine.cycle import AHEAD_FROM, Cycle
from cotenant.engine.definition import Definition
from cotenant.events.envelope import Event
from cotenant.log.contract import (
    LOG,
    USAGE,
    Behind,
    Draining,
    Log,
    NoAnswer,
    Reader,
    Refused,
    Skipping,
    Stored,
    Viewing,
    Write,
    store_batch,
)
from cotenant.runtime.load_progress import LoadProgress
from cotenant.runtime.process import VERSION, Host, run_program
from cotenant.runtime.requests import Wishes
from cotenant.runtime.settings import parser

logger = logging.getLogger(__name__)

T = TypeVar("T")

TICK_SECONDS = 1.0
RESTART_SECONDS = 1.0
"""After a life that did not finish its load: a log that takes no start marker is not asked for all it holds again and again."""
PULL_LIMIT = 250
"""So many messages are decoded, or folded while a batch is being stored, before its answer is looked for."""
QUEUE_PULLS = 16


def utc_now() -> datetime:
    """Return the wall clock in UTC."""
    return datetime.now(UTC)


class StoppedReadingError(RuntimeError):
    """A reader's task ended although nobody asked it to."""


class DecidingService:
    """Runs one Definition on a Log until `stopping` is set. Each life starts with a fresh core and a new load."""

    def __init__(self, definition: Definition, config: msgspec.Struct, identity: Identity, log: Log, host: Host | None) -> None:
        self.definition = definition
        self.config = config
        self.identity = identity
        self.log = log
        self._draining = log if isinstance(log, Draining) else None
        self.host = host
        self.stopping = host.stopping if host is not None else asyncio.Event()
        self.cycle: Cycle | None = None
        self.lives = 0
        self.ready = asyncio.Event()
        self._wake = asyncio.Event()
        """Something arrived, was answered, or ended."""
        self._wishes: Wishes | None = None
        self._progress = LoadProgress(identity.service)
        self._folded = 0  # since telemetry was told

    @property
    def filters(self) -> tuple[str, ...]:
        """Everything that this service reads on LOG."""
        return (*self.definition.filters, self.identity.commit_subject, self.identity.marker_subject)

    async def run(self) -> None:
        """Live until told to stop; too far behind, start over."""
        while not self.stopping.is_set():
            self.lives += 1
            try:
                await self._live()
            except Behind as behind:
                logger.warning("%s: %s: starting over with a fresh core", self.identity.service, behind)
                if not self.ready.is_set():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(RESTART_SECONDS):
                            await self.stopping.wait()

    async def _live(self) -> None:
        core = self.definition.make_core(self.config)
        cycle = Cycle(core, self.identity, self.definition.config_text(self.config), timer=time.perf_counter_ns)
        self.cycle = cycle
        self._wishes = Wishes(self.host, core) if self.host is not None and isinstance(core, Requesting) else None
        self.ready.clear()
        self._progress = LoadProgress(self.identity.service)
        readers: list[Reader] = [await self.log.follow(LOG, self.filters)]
        if isinstance(readers[0], Skipping):
            readers[0].skip(cycle.was_stored)
        if self.definition.views and isinstance(readers[0], Viewing):
            readers[0].view(self.definition.views)
        if self.definition.usage_filters:
            usage = await self.log.follow(USAGE, self.definition.usage_filters)
            usage.loaded()
            readers.append(usage)
        marker = cycle.start_marker(utc_now(), self.filters, self.lives)
        outcome = await store_batch(self.log, [Write(event=marker)])
        if not isinstance(outcome, Stored):
            raise Behind(f"the start marker was not stored: {outcome.reason}")
        queue: asyncio.Queue[Sequence[Event]] = asyncio.Queue(QUEUE_PULLS)
        tasks = [asyncio.ensure_future(self._read(reader, queue)) for reader in readers]
        ends = asyncio.ensure_future(self.stopping.wait())
        for task in (*tasks, ends):
            task.add_done_callback(lambda _: self._wake.set())
        if self.host is not None:
            # What a load makes stays: collections while it lasts would walk it again and again to find nothing.
            gc.unfreeze()
            gc.disable()
        try:
            await self._cycle(cycle, readers[0], queue, tasks)
        finally:
            gc.enable()
            for task in (*tasks, ends):
                task.cancel()
            await asyncio.gather(*tasks, ends, return_exceptions=True)
            if self._wishes is not None:
                await self._wishes.close()
            for reader in readers:
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(2):
                        await reader.close()

    async def _read(self, reader: Reader, queue: asyncio.Queue[Sequence[Event]]) -> None:
        while True:
            events = await reader.pull(PULL_LIMIT, TICK_SECONDS)
            if events:
                await queue.put(events)
                self._wake.set()
                # Deliveries of a long load arrive between decisions: let the others run.
                await asyncio.sleep(0)

    async def _cycle(
        self, cycle: Cycle, reader: Reader, queue: asyncio.Queue[Sequence[Event]], tasks: Sequence[asyncio.Task[None]]
    ) -> None:
        again = False
        while not self.stopping.is_set():
            if not again:
                await self._wait(queue, tasks)
            if not (cycle.ready and cycle.has_next):
                self._fold_waiting(cycle, queue)
            if cycle.loaded and not self.ready.is_set():
                reader.loaded()
                self._say_ready(cycle)
            again = await self._decide(cycle, queue)
            if self._folded and self.host is not None:
                self.host.telemetry.folded.add(self._folded)
                self._folded = 0
            if self._wishes is not None and cycle.ready and not cycle.holding_back:
                self._wishes.send(utc_now())
            await asyncio.sleep(0)

    async def _wait(self, queue: asyncio.Queue[Sequence[Event]], tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for news, a tick, the end, or a reader that fails."""
        self._wake.clear()
        if queue.empty() and not any(task.done() for task in tasks) and not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._wake.wait()
        for task in tasks:
            if task.done():
                task.result()
                raise StoppedReadingError(self.identity.service)

    def _fold_waiting(self, cycle: Cycle, queue: asyncio.Queue[Sequence[Event]], pulls: int = QUEUE_PULLS) -> int:
        """Fold what has arrived, at most so many pulls; returns how many messages."""
        now = utc_now()
        count = 0
        while pulls and not queue.empty():
            pulls -= 1
            events = queue.get_nowait()
            cycle.fold(events, now)
            count += len(events)
        self._folded += count
        if not self.ready.is_set():
            self._progress.add(count)
        return count

    def _say_ready(self, cycle: Cycle) -> None:
        self.ready.set()
        logger.info("%s: loaded, folded to LOG:%d, %s", self.identity.service, cycle.folded, self._progress)
        if self.host is not None:
            gc.enable()
            gc.freeze()
            self.host.health.ready = True
            self.host.health.detail = "ok"

    async def _decide(self, cycle: Cycle, queue: asyncio.Queue[Sequence[Event]]) -> bool:
        """Decide once and store it. True if there may be more to decide at once.

        What arrives meanwhile is folded meanwhile: folds commute, and the commit record says what was folded before.
        """
        started = time.perf_counter()
        batch = cycle.propose(utc_now())
        if batch is None:
            return False
        sent, sent_ns = time.perf_counter(), time.time_ns()
        storing = asyncio.ensure_future(self._store(batch))
        # The task sends in the first of these turns of the loop, the loop writes to the socket behind it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        outcome, drained = await self._meanwhile(storing, cycle, queue, batch)
        if isinstance(outcome, Stored):
            cycle.stored(batch, outcome)
            self._measure("stored", len(batch.events) - 1, sent - started, time.perf_counter() - sent)
            if self.host is not None and self.host.telemetry.traces:
                self.host.telemetry.trace_stored(tuple(batch.as_stored(outcome.first)), sent_ns, time.time_ns())
            if drained is not None:
                await self._meanwhile(drained, cycle, queue)
            return True
        self._measure(
            "refused" if isinstance(outcome, Refused) else "unanswered", 0, sent - started, time.perf_counter() - sent
        )
        if isinstance(outcome, Refused) and outcome.wrong_sequence:
            if cycle.refused(utc_now()):
                logger.warning("%s: another replica committed first: %s", self.identity.service, outcome.reason)
                await self.log.publish(refusal_of(batch, self.identity, outcome.reason, utc_now()))
            return False
        raise Behind(f"a batch of {len(batch.events)} was not stored: {outcome.reason}")

    async def _store(self, batch: Batch) -> tuple[Stored | Refused | NoAnswer, asyncio.Task[None] | None]:
        """Store a batch. Behind a small one, what queued at the log meanwhile has passed when the returned task ends."""
        outcome = await store_batch(self.log, batch.writes())
        if self._draining is None or not isinstance(outcome, Stored) or len(batch.events) > AHEAD_FROM:
            return outcome, None
        return outcome, asyncio.ensure_future(self._draining.drained(self.identity.commit_subject))

    async def _meanwhile(
        self, task: asyncio.Task[T], cycle: Cycle, queue: asyncio.Queue[Sequence[Event]], batch: Batch | None = None
    ) -> T:
        """Fold what arrives, and decide what follows `batch`, until the task is done; returns its result."""
        task.add_done_callback(lambda _: self._wake.set())
        try:
            while not task.done():
                self._wake.clear()
                # First what has arrived, so that a long queue of pods does not keep the core from hearing anything else.
                folded = self._fold_waiting(cycle, queue, 1)
                if batch is not None:
                    cycle.think_ahead(batch, utc_now())
                if folded:
                    await asyncio.sleep(0)
                else:
                    await self._wake.wait()
        finally:
            task.cancel()
        return task.result()

    def _measure(self, outcome: str, events: int, decide_seconds: float, store_seconds: float) -> None:
        if self.host is None:
            return
        telemetry = self.host.telemetry
        telemetry.batches.add(1, {"outcome": outcome})
        telemetry.decided.add(events)
        telemetry.decide_seconds.record(decide_seconds)
        telemetry.store_seconds.record(store_seconds)


def run_service(definition: Definition) -> None:
    """Run a deciding service as a process: the whole of a service's `__main__`."""

    async def program(host: Host, _: argparse.Namespace) -> None:
        try:
            config = definition.config_from(host.settings.config)
        except msgspec.ValidationError as error:
            raise SystemExit(f"cotenant-{definition.name}: configuration: {error}") from error
        identity = Identity(
            service=definition.name,
            cell=host.settings.cell,
            partition=host.settings.partition,
            replica=host.settings.replica,
            version=VERSION,
            core=definition.core_version,
        )
        await DecidingService(definition, config, identity, host.log, host).run()

    run_program(definition.name, parser(definition.name, definition.summary), program)

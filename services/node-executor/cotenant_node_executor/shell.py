"""The executor's shell: reads a node's subjects, runs its cycle every second and on news, stores what it reports.

In: a log, a node. Out: nothing; it ends when `stopping` is set. Reading and storing have tasks of their own, so that the
cycle keeps its second while the server is away: suppression goes on, processes are looked after.

Bounds: QUEUE_PULLS pulls wait between reader and cycle; one report under way for each subject (what is newer is decided
again); at most MAX_OUTBOX usage and execution events wait to be stored, each is tried
PUBLISH_TRIES times; what is over is dropped, the oldest first, and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from msgspec.structs import replace
from nats.errors import Error as NatsError

from cotenant.events.envelope import Event
from cotenant.log.contract import LOG, USAGE, Behind, Log, Reader, Refused, Stored, Write
from cotenant.model.subjects import encode_token
from cotenant_node_executor.core.node import ExecutorNode

logger = logging.getLogger(__name__)

PULL_LIMIT = 500
QUEUE_PULLS = 4
MAX_OUTBOX = 1000
STORING_TOGETHER = 16
PUBLISH_TRIES = 20
PUBLISH_PAUSE_SECONDS = 0.5
LOG_ERRORS = (NatsError, TimeoutError, OSError)
"""What a log's calls raise while the server cannot be asked."""

MARKER_PAUSE_SECONDS = 0.5


def utc_now() -> datetime:
    """The wall clock in UTC."""
    return datetime.now(UTC)


class ExecutorShell:
    """Runs one node on a log. Every load begins with a fresh core; the machine behind it stays."""

    def __init__(
        self,
        log: Log,
        node: ExecutorNode,
        *,
        cell: str,
        period_seconds: float,
        stopping: asyncio.Event,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._cell = cell
        self._period = period_seconds
        self._stopping = stopping
        self._on_ready = on_ready
        self.node = node
        self.dropped = 0
        self._news: asyncio.Queue[Sequence[Event]] = asyncio.Queue(QUEUE_PULLS)
        self._outbox: deque[Event] = deque()
        self._wake_outbox = asyncio.Event()
        self._under_way: set[str] = set()
        self._storing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Run until stopped; when too far behind, load again with a fresh core."""
        sender = asyncio.ensure_future(self._send())
        try:
            while not self._stopping.is_set():
                try:
                    await self._live()
                except Behind as behind:
                    logger.warning("node %s: %s: loading again", self.node.name, behind)
                    await asyncio.sleep(MARKER_PAUSE_SECONDS)
                    self.node = self.node.restarted()
                    self._news = asyncio.Queue(QUEUE_PULLS)
        finally:
            await self._flush()
            for task in (sender, *self._storing):
                task.cancel()
            await asyncio.gather(sender, *self._storing, return_exceptions=True)

    async def _live(self) -> None:
        token = encode_token(self.node.name)
        try:
            reader = await self._log.follow(LOG, [f"node.{token}.>"], name=f"node-{token}")
        except LOG_ERRORS as error:
            raise Behind(f"no consumer: {type(error).__name__}: {error}") from error
        reading = asyncio.ensure_future(self._read(reader))
        try:
            try:
                await self._say_started()
            except LOG_ERRORS as error:
                raise Behind(f"no start marker: {type(error).__name__}: {error}") from error
            await self._cycles(reader, reading)
        finally:
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, Behind):
                await reading
            with contextlib.suppress(*LOG_ERRORS):
                async with asyncio.timeout(2):
                    await reader.close()

    async def _read(self, reader: Reader) -> None:
        while True:
            try:
                events = await reader.pull(PULL_LIMIT, 1.0)
            except LOG_ERRORS as error:
                raise Behind(f"reading broke off: {type(error).__name__}: {error}") from error
            if events:
                await self._news.put(events)

    async def _say_started(self) -> None:
        """Store the start marker over whatever stands there; its delivery ends the load."""
        marker = self.node.identified(self.node.start_marker(utc_now()), self._cell)
        while not self._stopping.is_set():
            head = await self._log.head(marker.subject)
            outcome = await self._log.append([Write(event=marker, expected=head.sequence if head is not None else 0)])
            if isinstance(outcome, Stored):
                return
            if head is not None and head.event_id == marker.id:
                return
            logger.info("node %s: the start marker was not stored: %s", self.node.name, outcome.reason)
            await asyncio.sleep(MARKER_PAUSE_SECONDS)

    async def _cycles(self, reader: Reader, reading: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        next_sample = loop.time()
        ready = False
        while not self._stopping.is_set():
            await self._wait(max(0.0, next_sample - loop.time()), reading)
            self._fold()
            sample = loop.time() >= next_sample
            if sample:
                next_sample = max(next_sample + self._period, loop.time())
            if self.node.core.loaded and not ready:
                ready = True
                reader.loaded()
                self._on_ready()
                logger.info("node %s: loaded, %d pods placed here", self.node.name, len(self.node.core.placed))
            for event in self.node.step(utc_now(), sample=sample):
                self._post(event)

    async def _wait(self, seconds: float, reading: asyncio.Task[None]) -> None:
        """Wait for the next sample, for news, for the end, or for a reader that fails."""
        if not self._news.empty():
            return
        news = asyncio.ensure_future(self._news.get())
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            done, _ = await asyncio.wait({news, stop, reading}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
        if news in done:
            self._apply(news.result())
        else:
            news.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                self._apply(await news)
        if reading in done:
            reading.result()

    def _fold(self) -> None:
        while not self._news.empty():
            self._apply(self._news.get_nowait())

    def _apply(self, events: Sequence[Event]) -> None:
        for event in events:
            self.node.apply(event)

    # -- storing -------------------------------------------------------------------------------------------------------

    def _post(self, event: Event) -> None:
        if event.stream == LOG:
            if event.subject in self._under_way or len(self._storing) >= STORING_TOGETHER:
                return
            self._under_way.add(event.subject)
            task = asyncio.ensure_future(self._store(self.node, self.node.identified(event, self._cell)))
            self._storing.add(task)
            task.add_done_callback(self._storing.discard)
            return
        if len(self._outbox) >= MAX_OUTBOX:
            self._outbox.popleft()
            self.dropped += 1
        self._outbox.append(event)
        self._wake_outbox.set()

    async def _store(self, node: ExecutorNode, event: Event) -> None:
        """Store one report; refused, learn the subject's last sequence, and let the next cycle decide again."""
        try:
            expected = node.core.last_sequence(event.subject)
            outcome = await self._log.append([Write(event=event, expected=expected)])
            if isinstance(outcome, Stored):
                node.apply(replace(event, sequence=outcome.first))
            elif isinstance(outcome, Refused):
                head = await self._log.head(event.subject)
                if head is None:
                    node.core.correct_sequence(event.subject, 0)
                elif head.sequence != expected:
                    logger.info("node %s: %s: %s", node.name, event.subject, outcome.reason)
                    node.core.correct_sequence(event.subject, head.sequence)
                else:
                    logger.error("node %s: %s is refused: %s", node.name, event.subject, outcome.reason)
        except LOG_ERRORS as error:
            logger.info("node %s: %s was not stored: %s", node.name, event.subject, error)
        finally:
            self._under_way.discard(event.subject)

    async def _send(self) -> None:
        """Store usage and executions in their order: a usage's reference becomes the cause of what follows."""
        while True:
            while not self._outbox:
                self._wake_outbox.clear()
                await self._wake_outbox.wait()
            event = self.node.identified(self.node.refer(self._outbox.popleft()), self._cell)
            sequence = await self._publish(event)
            if sequence is None:
                self.dropped += 1
                logger.warning("node %s: %s was not confirmed in %d tries", self.node.name, event.subject, PUBLISH_TRIES)
            elif event.stream == USAGE:
                self.node.usage_stored(f"{USAGE}:{sequence}")

    async def _publish(self, event: Event) -> int | None:
        """Publish until it is confirmed, a bounded number of times; a server that is started again takes seconds."""
        for _ in range(PUBLISH_TRIES):
            sequence = await self._log.publish(event)
            if sequence is not None:
                return sequence
            await asyncio.sleep(PUBLISH_PAUSE_SECONDS)
        return None

    async def _flush(self) -> None:
        """Give what is on its way two seconds more."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                while self._outbox or self._storing:  # noqa: ASYNC110 - bounded by the timeout above
                    await asyncio.sleep(0.02)

"""What an incarnation reads: deliveries in order, in a bounded queue, and an event when there are more.

In: readers. Out: the deliveries of one pull at a time; what ended a reader is raised where it is waited for.

Bounds: `queue_pulls` pulls of `pull_limit` wait; a pull waits PULL_SECONDS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any

from cotenant.events.envelope import Event
from cotenant.log.contract import LOG, Clocked, Lagging, Reader, Snapshotting
from cotenant.log.waits import set_within

PULL_SECONDS = 30.0
"""How long a pull waits. Each expiry costs a wake-up, and a process can have hundreds of readers."""


class StoppedReadingError(RuntimeError):
    """A reader's task ended unexpectedly."""


class Reading:
    """What an incarnation reads: queued deliveries, and an event when there are more."""

    def __init__(self, readers: Sequence[Reader], stopping: asyncio.Event, pull_limit: int, queue_pulls: int) -> None:
        self.wake = asyncio.Event()
        """Something arrived, was answered, or ended, or a wait was long enough."""
        self._readers = readers
        # Such checks take 15 us each, too much for every decision.
        self._clocked = [reader for reader in readers if isinstance(reader, Clocked)]
        self._stopping = stopping
        self._pull_limit = pull_limit
        self._queue: asyncio.Queue[tuple[Sequence[Event], bool]] = asyncio.Queue(queue_pulls)
        """What a pull brought, and whether its reader was behind then."""
        self.behind = False
        """Taken deliveries may lack messages of LOG (`log.contract.Lagging`)."""
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
        if reader is not self._readers[0]:
            # LOG determines what is new on the other streams, and its load does not share the connection with them.
            await self._snapshot.wait()
        while True:
            events = await reader.pull(self._pull_limit, PULL_SECONDS)
            was, behind = behind, lagging is not None and lagging.behind
            if events or was != behind:
                await self._queue.put((events, behind))
                self.wake.set()
                # Deliveries of a long load arrive between decisions: yield to other tasks.
                await asyncio.sleep(0)

    async def snapshot_read(self) -> None:
        """Wait until the snapshot of LOG has been read from the server; it may still be queued."""
        await self._snapshot.wait()

    def beside(self, duty: Coroutine[Any, Any, None]) -> None:
        """Run a task beside the fold; an exception in it ends the incarnation, like a reader's."""
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
    def has_more(self) -> bool:
        """Whether deliveries wait to be taken."""
        return not self._queue.empty()

    @property
    def taken_to(self) -> int:
        """The sequence of LOG up to which everything that is read was taken."""
        return self._readers[0].position if self._queue.empty() else self._taken

    def when_loaded(self, call: Callable[[], None]) -> None:
        """Call a function once the load is over."""
        self._on_loaded = call

    async def wait(self, seconds: float) -> None:
        """Wait for deliveries, a wake-up or the end, at most this long. Raises what ended a reader."""
        self.wake.clear()
        if self._queue.empty() and not self._stopping.is_set() and not any(task.done() for task in self._tasks):
            await set_within(self.wake, seconds)
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
        """Whether everything that existed when the readers began is taken; False where they cannot tell."""
        over = all(isinstance(reader, Snapshotting) and reader.snapshot_over for reader in self._readers)
        return over and self._queue.empty()

    def seconds_ahead(self, now: datetime) -> float:
        """Return by how much a clock that shows `now` is ahead of the log's, at most; 0 where that is not known."""
        times = [time for reader in self._clocked if (time := reader.server_time()) is not None]
        return now.timestamp() - max(times) if times else 0.0

    async def stop(self) -> None:
        """Stop reading."""
        tasks: list[asyncio.Future[Any]] = [*self._tasks, self._ends, *([] if self._duty is None else [self._duty])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

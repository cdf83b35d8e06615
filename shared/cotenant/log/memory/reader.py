"""Following a stream in memory: a snapshot of the last message of each subject, then new messages.

In: filters, and where to begin. Out: events in the order of the stream. A message that cannot be decoded becomes a dead
letter; one of an unknown type is counted. A reader that is more than MAX_BEHIND messages behind raises Behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from cotenant.events.envelope import Event, EventError, UnknownEventTypeError
from cotenant.log.contract import MAX_BEHIND, USAGE, Behind
from cotenant.log.memory.stream import MemoryStream


class Feed(Protocol):
    """A reader's interface to its log."""

    unknown_types: int

    def dead_letter(self, stream: MemoryStream, sequence: int, reason: str) -> None:
        """Store what could not be decoded as a dead letter, with the reason."""

    async def wait_for_news(self, stream: MemoryStream, after: int, seconds: float) -> bool:
        """Wait until the stream has grown beyond `after`; False when the time is over."""


class MemoryReader:
    """Follows one stream of a MemoryLog."""

    def __init__(self, feed: Feed, stream: MemoryStream, filters: Sequence[str], after: int | None) -> None:
        self._feed = feed
        self._stream = stream
        self._filters = tuple(filters)
        self._backlog: deque[int] = deque(stream.snapshot(self._filters) if after is None else ())
        self._after = stream.last_sequence if after is None else after
        self._loading = after is None
        self.position = 0 if after is None else after
        self.behind = False
        """See `cotenant.log.contract.Lagging`."""
        self.on_snapshot_over: Callable[[], None] = lambda: None

    @property
    def snapshot_over(self) -> bool:
        """See `cotenant.log.contract.Snapshotting`."""
        return not self._backlog

    async def pull(self, limit: int, wait_seconds: float) -> Sequence[Event]:
        """See `cotenant.log.contract.Reader`."""
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while True:
            sequences = self._take(limit)
            if sequences:
                return self._decode(sequences)
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0 or not await self._feed.wait_for_news(self._stream, self._after, remaining):
                return ()

    def _take(self, limit: int) -> list[int]:
        taken: list[int] = []
        while self._backlog and len(taken) < limit:
            taken.append(self._backlog.popleft())
            if not self._backlog:
                self.on_snapshot_over()
        if len(taken) < limit and not self._backlog:
            late = not self._loading and self._stream.last_sequence - self._after > MAX_BEHIND
            # USAGE holds a few messages of a node: a new load would bring no others.
            if late and self._stream.name != USAGE:
                waiting = self._stream.after(self._after, self._filters, MAX_BEHIND + 1)
                if len(waiting) > MAX_BEHIND:
                    raise Behind(f"more than {MAX_BEHIND} messages behind on {self._stream.name}")
            room = limit - len(taken)
            following = self._stream.after(self._after, self._filters, room)
            taken.extend(following)
            self._after = following[-1] if len(following) == room else self._stream.last_sequence
        self.behind = bool(self._backlog) or self._after < self._stream.last_sequence
        return taken

    def _decode(self, sequences: Sequence[int]) -> list[Event]:
        events = []
        for sequence in sequences:
            try:
                event = self._stream.event(sequence)
            except UnknownEventTypeError:
                self._feed.unknown_types += 1
                continue
            except EventError as error:
                self._feed.dead_letter(self._stream, sequence, str(error))
                continue
            if event is not None:
                events.append(event)
        self.position = max(self.position, sequences[-1])
        return events

    def loaded(self) -> None:
        """See `cotenant.log.contract.Reader`."""
        self._loading = False

    async def close(self) -> None:
        """Nothing to release."""

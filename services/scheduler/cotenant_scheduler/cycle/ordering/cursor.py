"""A position in a class of the queue.

In: a class, which must not change meanwhile. Out: its live entries, in queue order, one by one or some ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from cotenant_scheduler.cycle.queue import EquivalenceClass, QueueEntry, QueueKey
from cotenant_scheduler.state.pod_records import PodRecord


class Cursor:
    """A position in a class that can look ahead; valid as long as the class does not change."""

    __slots__ = ("_entries", "_live", "_next")

    def __init__(self, alike: EquivalenceClass, passed: int = 0) -> None:
        """`passed`: 1 to begin behind the first entry."""
        self._entries, first = alike.in_order()
        self._next = first + passed
        self._live = alike.live

    def take(self) -> QueueEntry | None:
        """Advance past the next entry and return it."""
        entries, live, index = self._entries, self._live, self._next
        while index < len(entries):
            entry = entries[index]
            index += 1
            if live.get(entry.records[0].key) is entry:
                self._next = index
                return entry
        self._next = index
        return None

    def fork(self) -> Cursor:
        """Return another cursor at the same position."""
        other = Cursor.__new__(Cursor)
        other._entries, other._live, other._next = self._entries, self._live, self._next
        return other

    def skip(self, count: int) -> None:
        """Advance past this many entries."""
        for _ in range(count):
            self.take()

    def entries(self, most: int) -> Iterator[QueueEntry]:
        """Walk the entries ahead, at most this many; the position stays."""
        live, ahead = self._live, islice(self._entries, self._next, None)
        return islice((entry for entry in ahead if live.get(entry.records[0].key) is entry), most)

    def look(self, most: int, until: QueueKey | None) -> list[PodRecord]:
        """Return the first records of the entries ahead: at most this many, and only those before a place in the queue."""
        found: list[PodRecord] = []
        for entry in self.entries(most):
            if until is not None and entry.order > until:
                break
            found.append(entry.records[0])
        return found


def behind_first(alike: EquivalenceClass) -> Cursor:
    """Return a position behind the first entry of a class."""
    return Cursor(alike, 1)

"""What a starting process loads: the last message of each subject, tombstones included until they expire.

In: the messages of a stream in order. Out: those that the stream would give now, by sequence. Bound: the live subjects, and
those that ended within a tombstone's TTL.
"""

from __future__ import annotations

from datetime import timedelta

from cotenant.events.envelope import Event


class LastMessages:
    """The last message of each subject of a stream that is read in order."""

    def __init__(self) -> None:
        self._alive: dict[str, Event] = {}
        self._ended: dict[str, Event] = {}
        """The oldest first."""

    def note(self, event: Event) -> None:
        """Take the next message."""
        self._alive.pop(event.subject, None)
        self._ended.pop(event.subject, None)
        (self._ended if event.tombstone else self._alive)[event.subject] = event
        if event.time is None:
            return
        while self._ended:
            oldest = next(iter(self._ended.values()))
            kept = timedelta(seconds=oldest.ttl_seconds)
            if not kept or oldest.time is None or event.time <= oldest.time + kept:
                return
            del self._ended[oldest.subject]

    def in_order(self) -> list[Event]:
        """All of them, by sequence."""
        return sorted((*self._alive.values(), *self._ended.values()), key=lambda event: event.sequence)

"""When to try again after LOG had no room.

In: the outcome of a write, and a monotonic time in seconds. Out: whether to wait. The pause doubles from FIRST_PAUSE_SECONDS to
at most LONGEST_PAUSE_SECONDS, so that a full LOG is not polled in a loop and all writers resume soon after there is room.
"""

from __future__ import annotations

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0


class RoomPause:
    """The pause of one writer."""

    def __init__(self) -> None:
        self._until = 0.0
        self._refusals = 0

    def refused(self, now: float) -> float:
        """LOG had no room: returns the seconds until the next try."""
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._refusals, 16), LONGEST_PAUSE_SECONDS)
        self._refusals += 1
        self._until = now + pause
        return pause

    def stored(self) -> bool:
        """A write was stored; returns True if that ends a time without room."""
        ended = self._refusals > 0
        self._refusals, self._until = 0, 0.0
        return ended

    def waits(self, now: float) -> bool:
        """Whether the next try is still to come."""
        return now < self._until

"""Measures durations for the pure parts of the gateway, which have no clock.

In: durations by series. Out: nothing that a decision reads.
"""

from __future__ import annotations

from typing import Protocol

SeriesKey = tuple[str, ...]


class Stopwatch(Protocol):
    """The shell's inputs to the read model, for admission."""

    def now(self) -> float:
        """Return seconds since any epoch."""

    def took(self, series: SeriesKey, seconds: float) -> None:
        """Take one duration."""

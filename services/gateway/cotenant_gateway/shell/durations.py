"""Histograms of durations in milliseconds, in plain integers: a creation runs a dozen admission functions, so measurement must
be cheap.

In: durations by series. Out: counts by bucket, as Prometheus has them. Bound: each series is BUCKETS + 2 numbers.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator

from cotenant_gateway.read_model.stopwatch import SeriesKey

BUCKETS = 20
BOUNDS_MILLISECONDS = tuple(0.001 * 2**power for power in range(BUCKETS))
"""Upper ends, as Koordinator's; one more bucket holds everything above."""
_ENDS = (*map("{:g}".format, BOUNDS_MILLISECONDS), "+Inf")


class HistogramSeries:
    """One series: counts by bucket, and the sum. Mutable."""

    __slots__ = ("counts", "milliseconds")

    def __init__(self) -> None:
        self.counts = [0] * (BUCKETS + 1)
        self.milliseconds = 0.0

    def up_to(self) -> Iterator[tuple[str, int]]:
        """Yield each bucket's upper end as Prometheus writes it, and how many are within it or below."""
        total = 0
        for end, count in zip(_ENDS, list(self.counts), strict=True):
            total += count
            yield end, total


class Durations:
    """Mutable."""

    def __init__(self) -> None:
        self.series: dict[SeriesKey, HistogramSeries] = {}

    def now(self) -> float:
        """Return seconds of a monotonic clock."""
        return time.perf_counter()

    def took(self, series: SeriesKey, seconds: float) -> None:
        """Take one duration."""
        found = self.series.get(series)
        if found is None:
            found = self.series[series] = HistogramSeries()
        milliseconds = seconds * 1000.0
        found.counts[bisect_left(BOUNDS_MILLISECONDS, milliseconds)] += 1
        found.milliseconds += milliseconds

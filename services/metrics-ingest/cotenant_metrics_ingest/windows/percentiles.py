"""Percentiles and means of the windows of many nodes at once.

In: windows whose samples are written to the rings (`slots.settle`). Out: the rows of each. The percentile follows the rank
rule of `aggregation` over all points of the window, each weighted by the number of samples that it represents.
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec
import numpy as np

from cotenant_metrics_ingest.aggregation import PERCENTILES, percentile_rank
from cotenant_metrics_ingest.points import POINTS, WEIGHT_BITS, WEIGHT_MASK
from cotenant_metrics_ingest.slots import COLUMNS, SERIES, Window


class PercentileRows(msgspec.Struct, frozen=True):
    """Percentiles of a window. `rows`: node cpu, node memory, system cpu, system memory, each with p50, p90, p95, p99 and mean;
    cpu in milli-cores, memory in bytes."""

    counts: tuple[int, int]
    """Number of samples of the node and of the system."""
    rows: list[list[int]]


@lru_cache(maxsize=16384)
def _ranks(count: int) -> tuple[int, ...]:
    return tuple(percentile_rank(count, percentile) if count else 0 for _, percentile in PERCENTILES)


def figures_of(windows: Sequence[Window]) -> list[PercentileRows]:
    """Return the percentiles of each window; cheapest for windows with similar numbers of slots."""
    longest = max((len(window.places) for window in windows), default=0)
    if not longest:
        return [PercentileRows((0, 0), [[0] * (len(PERCENTILES) + 1)] * SERIES) for _ in windows]
    table = np.zeros((len(windows), SERIES, longest, POINTS), dtype=np.int64)
    slots = np.zeros((len(windows), longest, COLUMNS), dtype=np.int64)
    for place, window in enumerate(windows):
        size = len(window.places)
        table[place, :, :size] = window.ring.points.take(window.places, axis=1)
        slots[place, :size] = window.ring.slots.take(window.places, axis=0)
    points = table.reshape(len(windows) * SERIES, longest * POINTS)
    points.sort(axis=1)
    # One cumulative sum over all series lets a single search find every rank: a series begins where the last one ended.
    cumulated = (points & WEIGHT_MASK).ravel().cumsum()
    ends = cumulated[longest * POINTS - 1 :: longest * POINTS].tolist()
    begins = [0, *ends[:-1]]
    counts = [end - begin for begin, end in zip(begins, ends, strict=True)]
    ranks = [begin + rank for begin, count in zip(begins, counts, strict=True) for rank in _ranks(count)]
    found = points.ravel().take(cumulated.searchsorted(ranks, side="right"), mode="clip") >> WEIGHT_BITS
    sums = slots[:, :, -SERIES:].sum(axis=1).ravel().tolist()
    rows = [
        [*percentiles, total // count] if count else [0] * (len(PERCENTILES) + 1)
        for percentiles, count, total in zip(found.reshape(-1, len(PERCENTILES)).tolist(), counts, sums, strict=True)
    ]
    return [
        PercentileRows((counts[first], counts[first + 2]), rows[first : first + SERIES])
        for first in range(0, len(rows), SERIES)
    ]

"""Compression of a slot's samples: a few points, each representing a group of neighbours in sorted order.

In: samples of many series. Out: at most POINTS points per series, computed in one pass over int64 arrays: all samples if there
are no more, else representatives of groups. The highest third stay single, as thresholds use high percentiles. A point is one
integer: the sample's value in the high bits, the number of samples it represents in the low bits; so points sort by value, and
0 is no point.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

POINTS = 12
MAX_OPEN = 240
"""Maximum number of samples of one series in one slot."""

WEIGHT_BITS = 7
WEIGHT_MASK = (1 << WEIGHT_BITS) - 1

Integers = npt.NDArray[np.int64]

_LAST = np.iinfo(np.int64).max


@lru_cache(maxsize=MAX_OPEN + 1)
def thinning(count: int) -> tuple[tuple[int, int], ...]:
    """For `count` sorted samples: (index, weight) of each representative, at most POINTS."""
    if count <= POINTS:
        return tuple((index, 1) for index in range(count))
    singles = POINTS // 3
    groups = POINTS - singles
    base, more = divmod(count - singles, groups)
    kept: list[tuple[int, int]] = []
    start = 0
    for size in [base + 1] * more + [base] * (groups - more) + [1] * singles:
        kept.append((start + size // 2, size))
        start += size
    return tuple(kept)


def _table(part: int) -> Integers:
    table = np.zeros((MAX_OPEN + 1, POINTS), dtype=np.int64)
    for count in range(MAX_OPEN + 1):
        for place, kept in enumerate(thinning(count)):
            table[count, place] = kept[part]
    return table


_INDEX, _WEIGHT = _table(0), _table(1)
"""`thinning` by count, padded with zeros."""
KEPT = tuple(len(thinning(count)) for count in range(MAX_OPEN + 1))
"""The number of points for a number of samples."""


def thinned(samples: Integers, lengths: Integers) -> tuple[Integers, Integers]:
    """Return the points of each series, int64 (series, POINTS), ascending and padded with zeros, and its sum, int64 (series,).
    `samples`: int64, all series concatenated, in milli-cores or bytes; `lengths`: int64 (series,), the samples of each.
    """
    filled = np.arange(max(lengths.max(), 1)) < lengths[:, np.newaxis]
    table = np.zeros(filled.shape, dtype=np.int64)
    table[filled] = samples
    sums: Integers = table.sum(axis=1)
    table[~filled] = _LAST
    table.sort(axis=1)
    weights = _WEIGHT[lengths]
    kept = np.take_along_axis(table, _INDEX[lengths], axis=1)
    return np.where(weights > 0, kept << WEIGHT_BITS | weights, 0), sums


def restored_points(integers: Integers, firsts: Integers, counts: Integers) -> Integers:
    """Return the points of series, int64 (series, POINTS), from their values, each as the difference to the one before.
    `firsts`: where in `integers` those of each series begin; `counts`: how many samples it had, at most MAX_OPEN."""
    places = np.minimum(firsts[:, np.newaxis] + np.arange(POINTS), len(integers) - 1)
    weights = _WEIGHT[counts]
    values = integers[places].cumsum(axis=1)
    return np.where(weights > 0, values << WEIGHT_BITS | weights, 0)

"""What is kept of a slot's samples: a few points, each standing for a group of neighbours in the sorted order.

In: samples of many series. Out: at most POINTS points a series, all in one pass over arrays: all samples if there were
no more, else representatives of groups; the highest third stay single, so that the percentiles that thresholds look at
lose least. A point is one integer: the sample's value, and below it how many samples it stands for; so points sort by
value, and 0 is no point.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

POINTS = 12
MAX_OPEN = 240
"""Samples of one series in one slot."""

WEIGHT_BITS = 7
WEIGHT_MASK = (1 << WEIGHT_BITS) - 1

Integers = npt.NDArray[np.int64]

_LAST = np.iinfo(np.int64).max


@lru_cache(maxsize=MAX_OPEN + 1)
def thinning(count: int) -> tuple[tuple[int, int], ...]:
    """Of `count` sorted samples: the index of each one that is kept, and how many it stands for; at most POINTS."""
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
"""`thinning` by count, filled up with zeros."""


def thinned(samples: Integers, lengths: Integers) -> tuple[Integers, Integers]:
    """The points of each series, ascending and filled up with zeros, and its sum; `samples` has the series one after
    the other, `lengths` says how many each has.
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

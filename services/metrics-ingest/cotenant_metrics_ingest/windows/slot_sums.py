"""A message's samples by time slots, and their sums.

In: a regular message, the width of slots. Out: which of its samples are in each slot; the milli-cores and bytes of each series in
each slot, summed in one pass over the message's table while it is still in the CPU's cache.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from cotenant_metrics_ingest.samples import Samples, Table

Cuts = list[tuple[int, int, int]]
"""Slots of a message in order: (slot, index of its first sample, index after its last one)."""


def cut(end_ms: int, offsets: Sequence[int], first: int, width_ms: int) -> Cuts:
    """Divide the samples from index `first` on into slots."""
    last_slot = (end_ms + offsets[-1]) // width_ms
    slot = (end_ms + offsets[first]) // width_ms
    parts: Cuts = []
    while slot < last_slot:
        stop = bisect_right(offsets, (slot + 1) * width_ms - 1 - end_ms)
        parts.append((slot, first, stop))
        first = stop
        slot = (end_ms + offsets[first]) // width_ms
    parts.append((slot, first, len(offsets)))
    return parts


def sums_by_slot(samples: Samples, cuts: Cuts) -> list[Table]:
    """For each slot the sums of the samples in it: milli-cores and bytes of each series, int64 (2, series)."""
    values = np.frombuffer(samples.data, dtype=np.int64)
    starts = tuple([start for _, start, _ in cuts])
    # Samples before the first new one are summed as well, and left out below.
    whole = starts if not starts[0] else (0, *starts)
    sums = np.add.reduceat(values, _begins(len(values), samples.size, whole)).reshape(2, -1, len(whole))
    return [sums[:, :, place] for place in range(len(whole) - len(starts), len(whole))]


@lru_cache(maxsize=4096)
def _begins(values: int, size: int, starts: tuple[int, ...]) -> Table:
    begins: Table = (np.arange(0, values, size)[:, np.newaxis] + np.array(starts)).reshape(-1)
    return begins

"""Messages whose samples wait to be added to a node's windows, and the sums of many of them at once.

In: regular messages, cut by time slots. Out: how many samples of each series are in each slot, and their sums. A message costs
little while it waits: training keeps the same bytes. The sums of many messages of equal shape are one pass over one array.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from cotenant.model.values import Value
from cotenant_metrics_ingest.samples import Samples, Table

Cuts = list[tuple[int, int, int]]
"""Slots of a message in order: (slot, index of its first sample, index after its last one)."""


class WaitingMessage(Value, frozen=True):
    """An accepted message. `first`: the index of its first new sample; `keys`: of its series, in their order."""

    end_ms: int
    offsets: tuple[int, ...]
    first: int
    samples: Samples
    keys: list[str]

    def cut(self, width_ms: int) -> Cuts:
        """Its new samples by slots of this width."""
        return cut(self.end_ms, self.offsets, self.first, width_ms)


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


def counts_and_sums(messages: Sequence[tuple[Samples, Cuts]]) -> list[Table]:
    """For each message and each of its slots the number of samples of each series, their milli-cores and their bytes: int64
    (slots, 3, series)."""
    alike: dict[tuple[int, int, tuple[int, ...]], list[int]] = {}
    for place, (samples, cuts) in enumerate(messages):
        starts = tuple([start for _, start, _ in cuts])
        # Samples before the first new one are summed as well, and left out below.
        alike.setdefault((len(samples.data), samples.size, starts if starts[0] == 0 else (0, *starts)), []).append(place)
    found: dict[int, Table] = {}
    for (length, size, starts), places in alike.items():
        values = np.frombuffer(b"".join([messages[place][0].data for place in places]), dtype=np.int64)
        steps = np.arange(0, len(values), length // 8)
        begins = steps[:, np.newaxis] + _begins(length // 8, size, starts)
        sums = np.add.reduceat(values, begins.reshape(-1)).reshape(len(places), 2, -1, len(starts))
        tables = np.empty((len(places), len(starts), 3, sums.shape[2]), dtype=np.int64)
        tables[:, :, 0] = np.diff(starts, append=size)[:, np.newaxis]
        tables[:, :, 1:] = sums.transpose(0, 3, 1, 2)
        found.update(zip(places, tables, strict=True))
    return [found[place][-len(cuts) :] for place, (_, cuts) in enumerate(messages)]


@lru_cache(maxsize=4096)
def _begins(values: int, size: int, starts: tuple[int, ...]) -> Table:
    begins: Table = (np.arange(0, values, size)[:, np.newaxis] + np.array(starts)).reshape(-1)
    return begins

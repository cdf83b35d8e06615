"""Percentile windows of one node: samples by slots of time, in bounded memory.

In: samples of node and system (cpu in milli-cores, memory in bytes) in the order of time. Out: percentiles and spans
of windows that end at the newest sample. Time is cut in slots of equal width. A slot that is over keeps at most POINTS
samples a series: all if it had no more, else representatives of groups of neighbours in the sorted order, each
standing for its group; the highest third stay single, so that the percentiles that thresholds look at lose least. A
window's percentile is taken by the rank rule of `aggregation` over all its points, each counted as often as it stands
for. So a percentile is always a value that was measured, exact while slots hold at most POINTS samples, else off by at
most two ranks of each slot's 30.

A slot belongs to a window when at least half of it does. Memory: at most MAX_SLOTS slots of 4 series of POINTS
integers of 8 bytes (47 KiB a node), plus the open slot's samples, at most MAX_OPEN a series (every second one is
dropped beyond).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from cotenant.events.metrics import SlotDigest
from cotenant_metrics_ingest import varints
from cotenant_metrics_ingest.aggregation import PERCENTILES, percentile_rank

POINTS = 12
MAX_SLOTS = 122
MAX_OPEN = 240
SERIES = 4
"""node cpu, node memory, system cpu, system memory"""

WEIGHT_BITS = 7
WEIGHT_MASK = (1 << WEIGHT_BITS) - 1
"""A point is one integer: the sample's value, and below it how many samples it stands for; so points sort by value."""

PLACE_BITS = 7
PLACE_MASK = (1 << PLACE_BITS) - 1
"""A slot's place in the ring is below 128 (MAX_SLOTS)."""

COLUMNS = 3 + SERIES
"""Of a slot beside its points: its number, its first and last sample's time, the series' sums."""

Integers = npt.NDArray[np.int64]


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


@lru_cache(maxsize=8192)
def _ranks(count: int) -> Integers:
    return np.array([percentile_rank(count, percentile) for _, percentile in PERCENTILES], dtype=np.int64)


class Window(msgspec.Struct, frozen=True):
    """One window. `figures`: p50, p90, p95, p99 and mean, each of node cpu, node memory, system cpu, system memory."""

    duration_ms: int
    span_ms: int
    """Newest minus oldest sample in it."""
    counts: tuple[int, int]
    """Samples of the node, of the system."""
    figures: list[list[int]]


class PercentileSlots:
    """Mutable. Times are milliseconds since the epoch, by the node's clock."""

    def __init__(self, width_ms: int, capacity: int) -> None:
        self.width_ms = width_ms
        self.capacity = min(capacity, MAX_SLOTS)
        self._points = np.zeros((self.capacity, SERIES, POINTS), dtype=np.int64)
        self._slots = np.full((self.capacity, COLUMNS), -1, dtype=np.int64)
        self._open_slot = -1
        self._open_first = 0
        self._open_last = 0
        self._open: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])
        self._encoded: dict[int, bytes] = {}
        """Closed slots as a digest has them, by number, oldest first."""

    def add(self, slot: int, first_ms: int, last_ms: int, series: Sequence[Sequence[int]]) -> None:
        """Take samples of one slot, which is not before any earlier one; `series` has the four series in order."""
        if slot != self._open_slot:
            if self._open_slot >= 0:
                self._keep_open()
                self._encoded[self._open_slot] = self._encode(self._open_slot % self.capacity)
            self._open = ([], [], [], [])
            self._open_slot, self._open_first = slot, first_ms
            oldest = slot - self.capacity + 1
            for ended in [number for number in self._encoded if number < oldest]:
                del self._encoded[ended]
                self._slots[ended % self.capacity, 0] = -1
        self._open_last = last_ms
        for kept, new in zip(self._open, series, strict=True):
            kept += new
        if len(self._open[0]) > MAX_OPEN:
            for kept in self._open:
                del kept[::2]

    def _keep_open(self) -> None:
        """Write the open slot, as far as it is, to its place in the ring."""
        place = self._open_slot % self.capacity
        table = []
        for samples in self._open:
            ordered = sorted(samples)
            points = [ordered[index] << WEIGHT_BITS | weight for index, weight in thinning(len(ordered))]
            table.append(points + [0] * (POINTS - len(points)))
        self._points[place] = table
        self._slots[place] = [self._open_slot, self._open_first, self._open_last, *map(sum, self._open)]

    def windows(self, end_ms: int, durations_ms: Sequence[int]) -> Iterator[Window]:
        """Percentiles and spans of the windows that end at `end_ms`, in the order of `durations_ms`."""
        if self._open_slot >= 0:
            self._keep_open()
        starts = self._slots[:, 0] * self.width_ms
        latest = end_ms - self.width_ms // 2
        begun = (starts >= 0) & (starts <= end_ms)
        used = np.flatnonzero(begun & (starts >= latest - max(durations_ms)))
        # Below each value stand its weight and its slot's place, so that one sorting serves all windows.
        tagged = (self._points[used] << PLACE_BITS | used[:, None, None]).transpose(1, 0, 2).reshape(SERIES, -1)
        tagged.sort(axis=1)
        places = tagged & PLACE_MASK
        tagged >>= PLACE_BITS
        weights = tagged & WEIGHT_MASK
        tagged >>= WEIGHT_BITS
        for duration in durations_ms:
            inside = begun & (starts >= latest - duration)
            yield self._window(inside, tagged, (weights * inside[places]).cumsum(axis=1), end_ms, duration)

    def _window(
        self, inside: npt.NDArray[np.bool_], values: Integers, cumulated: Integers, end_ms: int, duration_ms: int
    ) -> Window:
        if not inside.any():
            return Window(duration_ms, 0, (0, 0), [[0] * SERIES for _ in range(len(PERCENTILES) + 1)])
        counts: list[int] = cumulated[:, -1].tolist()
        slots = self._slots[inside]
        figures = np.zeros((len(PERCENTILES) + 1, SERIES), dtype=np.int64)
        for number, count in enumerate(counts):
            if count:
                found = cumulated[number].searchsorted(_ranks(count), side="right")
                figures[:-1, number] = values[number][found]
        figures[-1] = slots[:, 3:].sum(axis=0) // np.maximum(counts, 1)
        span = int(slots[:, 2].max()) - max(int(slots[:, 1].min()), end_ms - duration_ms)
        return Window(duration_ms, span, (counts[0], counts[2]), figures.tolist())

    # -- going on after a restart --------------------------------------------------------------------------------

    def _encode(self, place: int) -> bytes:
        number, first, last, *sums = self._slots[place].tolist()
        start = number * self.width_ms
        values = [number, first - start, last - start, *sums]
        for samples, points in zip(self._open, self._points[place].tolist(), strict=True):
            values.append(len(samples))
            before = 0
            for point in points[: min(len(samples), POINTS)]:
                value = point >> WEIGHT_BITS
                values.append(value - before)
                before = value
        return varints.encode(values)

    def digest(self) -> SlotDigest:
        """All that is needed to go on."""
        first, second, third, fourth = self._open
        return SlotDigest(
            width_ms=self.width_ms,
            closed=b"".join(self._encoded.values()),
            open_slot=self._open_slot,
            open_first_ms=self._open_first,
            open_last_ms=self._open_last,
            open_series=(tuple(first), tuple(second), tuple(third), tuple(fourth)),
        )

    @classmethod
    def restored(cls, digest: SlotDigest, width_ms: int, capacity: int) -> "PercentileSlots":
        """Go on from a digest. One of another width, or a damaged one, starts empty."""
        ring = cls(width_ms, capacity)
        if digest.width_ms != width_ms or len(digest.open_series) != SERIES:
            return ring
        try:
            ring._restore_closed(digest.closed)
        except (varints.VarintError, IndexError, OverflowError):
            return cls(width_ms, capacity)
        ring._open_slot, ring._open_first, ring._open_last = digest.open_slot, digest.open_first_ms, digest.open_last_ms
        first, second, third, fourth = (list(samples[-MAX_OPEN:]) for samples in digest.open_series)
        ring._open = (first, second, third, fourth)
        return ring

    def _restore_closed(self, encoded: bytes) -> None:
        values = varints.decode(encoded).tolist()
        at = 0
        while at < len(values):
            number, first, last, *sums = values[at : at + COLUMNS]
            begin, at = at, at + COLUMNS
            start, place = number * self.width_ms, number % self.capacity
            for series in range(SERIES):
                count = values[at]
                kept = thinning(min(count, MAX_OPEN))
                value = 0
                for index, (_, weight) in enumerate(kept):
                    value += values[at + 1 + index]
                    self._points[place, series, index] = value << WEIGHT_BITS | weight
                at += 1 + len(kept)
            self._slots[place] = [number, start + first, start + last, *sums]
            self._encoded[number] = varints.encode(values[begin:at])

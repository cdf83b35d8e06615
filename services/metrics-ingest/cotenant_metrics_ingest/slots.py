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

from cotenant_metrics_ingest.aggregation import PERCENTILES, percentile_rank
from cotenant_metrics_ingest.packing import PackingError, pack, unpack

POINTS = 12
MAX_SLOTS = 122
MAX_OPEN = 240
SERIES = 4
"""node cpu, node memory, system cpu, system memory"""

Integers = npt.NDArray[np.int64]


@lru_cache(maxsize=MAX_OPEN + 1)
def thinning(count: int) -> tuple[Integers, Integers]:
    """For `count` sorted samples: the indices that are kept, and how many each stands for. Both have POINTS places."""
    singles = POINTS // 3
    if count <= POINTS:
        sizes = [1] * count + [0] * (POINTS - count)
    else:
        groups = POINTS - singles
        base, more = divmod(count - singles, groups)
        sizes = [base + 1] * more + [base] * (groups - more) + [1] * singles
    ends = np.cumsum(sizes)
    kept = np.maximum(ends - 1 - (np.array(sizes) - 1) // 2, 0)
    return np.minimum(kept, max(count - 1, 0)).astype(np.int64), np.array(sizes, dtype=np.int64)


class PercentileSlots:
    """Mutable. Times are milliseconds since the epoch, by the node's clock."""

    def __init__(self, width_ms: int, capacity: int) -> None:
        self.width_ms = width_ms
        self.capacity = min(capacity, MAX_SLOTS)
        self._points = np.zeros((self.capacity, SERIES, POINTS), dtype=np.int64)
        self._weights = np.zeros((self.capacity, 2, POINTS), dtype=np.int64)
        """How often a point counts: for the node's series, for the system's."""
        self._sums = np.zeros((self.capacity, SERIES), dtype=np.int64)
        self._slots = np.full(self.capacity, -1, dtype=np.int64)
        self._firsts = np.zeros(self.capacity, dtype=np.int64)
        self._lasts = np.zeros(self.capacity, dtype=np.int64)
        self._open_slot = -1
        self._open_first = 0
        self._open_last = 0
        self._open: tuple[list[int], list[int], list[int], list[int]] = ([], [], [], [])

    def add(self, slot: int, first_ms: int, last_ms: int, series: Sequence[Sequence[int]]) -> None:
        """Take samples of one slot, which is not before any earlier one; `series` has the four series in order."""
        if slot != self._open_slot:
            self._close()
            self._open_slot, self._open_first = slot, first_ms
            self._slots[slot % self.capacity] = -1
        self._open_last = last_ms
        for kept, new in zip(self._open, series, strict=True):
            kept += new
        if len(self._open[0]) > MAX_OPEN:
            for kept in self._open:
                del kept[::2]

    def _close(self) -> None:
        if self._open_slot < 0:
            return
        place = self._open_slot % self.capacity
        self._fill(place)
        self._slots[place], self._firsts[place], self._lasts[place] = self._open_slot, self._open_first, self._open_last
        self._open = ([], [], [], [])

    def _fill(self, place: int) -> None:
        for number, samples in enumerate(self._open):
            indices, weights = thinning(len(samples))
            ordered = np.array(sorted(samples), dtype=np.int64)
            self._points[place, number] = ordered[indices] if samples else 0
            self._sums[place, number] = sum(samples)
            if number % 2 == 0:
                self._weights[place, number // 2] = weights

    def windows(self, end_ms: int, durations_ms: Sequence[int]) -> Iterator["Window"]:
        """Percentiles and spans of the windows that end at `end_ms`, in the order of `durations_ms`."""
        opened = self._open_slot % self.capacity if self._open_slot >= 0 else 0
        slots = self._slots.copy()
        if self._open_slot >= 0:
            # The open slot has a place in the ring already; what it holds so far counts like a closed one.
            self._fill(opened)
            slots[opened], self._firsts[opened], self._lasts[opened] = self._open_slot, self._open_first, self._open_last
        live = slots >= 0
        order = np.argsort(self._points.transpose(1, 0, 2).reshape(SERIES, -1), axis=1, kind="stable")
        flat = np.take_along_axis(self._points.transpose(1, 0, 2).reshape(SERIES, -1), order, axis=1)
        middle = slots * self.width_ms + self.width_ms // 2
        for duration in durations_ms:
            inside = live & (middle >= end_ms - duration) & (middle - self.width_ms // 2 <= end_ms)
            yield self._window(inside, order, flat, end_ms, duration)

    def _window(
        self, inside: npt.NDArray[np.bool_], order: Integers, flat: Integers, end_ms: int, duration_ms: int
    ) -> "Window":
        weights = np.where(inside[:, None, None], self._weights, 0).transpose(1, 0, 2).reshape(2, -1)
        values: dict[str, tuple[int, int, int, int]] = {}
        cumulated = [np.cumsum(weights[number // 2][order[number]]) for number in range(SERIES)]
        counts = int(cumulated[0][-1]), int(cumulated[2][-1])
        for key, percentile in PERCENTILES:
            found = [0, 0, 0, 0]
            for number in range(SERIES):
                if counts[number // 2]:
                    rank = percentile_rank(counts[number // 2], percentile)
                    found[number] = int(flat[number][np.searchsorted(cumulated[number], rank, side="right")])
            values[key] = (found[0], found[1], found[2], found[3])
        earliest = int(self._firsts[inside].min()) if inside.any() else end_ms
        latest = int(self._lasts[inside].max()) if inside.any() else end_ms
        sums = self._sums[inside].sum(axis=0)
        means = [int(sums[number]) // counts[number // 2] if counts[number // 2] else 0 for number in range(SERIES)]
        span = latest - max(earliest, end_ms - duration_ms)
        values["avg"] = (means[0], means[1], means[2], means[3])
        return Window(duration_ms=duration_ms, span_ms=span, counts=counts, values=values)

    # -- going on after a restart --------------------------------------------------------------------------------

    def state(self) -> SlotDigest:
        """All that is needed to go on."""
        closed = [int(place) for place in np.argsort(self._slots, kind="stable") if self._slots[place] >= 0]
        return SlotDigest(
            width_ms=self.width_ms,
            slots=tuple(self._slots[closed].tolist()),
            firsts_ms=tuple(self._firsts[closed].tolist()),
            lasts_ms=tuple(self._lasts[closed].tolist()),
            counts=tuple(self._weights[closed, 0].sum(axis=1).tolist()),
            system_counts=tuple(self._weights[closed, 1].sum(axis=1).tolist()),
            sums=pack(self._sums[closed]) if closed else b"",
            points=pack(self._points[closed].transpose(1, 0, 2)) if closed else b"",
            open_slot=self._open_slot,
            open_first_ms=self._open_first,
            open_last_ms=self._open_last,
            open_series=tuple(tuple(samples) for samples in self._open),
        )

    @classmethod
    def restored(cls, state: SlotDigest, width_ms: int, capacity: int) -> "PercentileSlots":
        """Go on from a state. One of another width, or whose parts do not fit together, starts empty."""
        ring = cls(width_ms, capacity)
        size = len(state.slots)
        fits = (
            state.width_ms == width_ms
            and size <= ring.capacity
            and len({slot % ring.capacity for slot in state.slots}) == size
            and all(len(part) == size for part in (state.firsts_ms, state.lasts_ms, state.counts, state.system_counts))
            and len(state.open_series) == SERIES
            and all(0 <= count <= MAX_OPEN for count in (*state.counts, *state.system_counts))
        )
        if not fits:
            return ring
        try:
            points = unpack(state.points, size * SERIES * POINTS).reshape(SERIES, size, POINTS)
            sums = unpack(state.sums, size * SERIES).reshape(size, SERIES)
        except PackingError:
            return ring
        if size:
            places = np.array(state.slots, dtype=np.int64) % ring.capacity
            ring._points[places] = points.transpose(1, 0, 2)
            ring._sums[places] = sums
            ring._slots[places], ring._firsts[places], ring._lasts[places] = state.slots, state.firsts_ms, state.lasts_ms
            for place, count, system_count in zip(places, state.counts, state.system_counts, strict=True):
                ring._weights[place, 0] = thinning(count)[1]
                ring._weights[place, 1] = thinning(system_count)[1]
        ring._open_slot, ring._open_first, ring._open_last = state.open_slot, state.open_first_ms, state.open_last_ms
        first, second, third, fourth = (list(samples) for samples in state.open_series)
        ring._open = (first, second, third, fourth)
        return ring


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """One window. `values`: by key (the percentiles' and `avg`) the node's cpu and memory, the system's cpu and
    memory.
    """

    duration_ms: int
    span_ms: int
    """Newest minus oldest sample in it."""
    counts: tuple[int, int]
    """Samples of the node, of the system."""
    values: dict[str, tuple[int, int, int, int]]

"""Percentile windows of one node: samples by time slots, in bounded memory.

In: samples of node and system (cpu in milli-cores, memory in bytes) in order of time. Out: the windows that end at the newest
sample, and a digest for a restart. Time is divided into slots of equal width; of a closed slot only its `points` are stored.
A percentile is therefore always a measured value; it is exact while slots have at most POINTS samples, else off by at most two
ranks per slot of 30 samples.

A slot belongs to a window if at least half of it lies inside. Samples are queued on arrival; `settle` writes the queued samples
of many nodes to their rings at once, before any read. Memory: at most MAX_SLOTS slots of 4 series of POINTS 8-byte integers
(47 KiB a node), plus the samples of the open slot and of MAX_ENDED slots closed since the last `settle`, at most MAX_OPEN per
series (beyond that every second sample is dropped).
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from cotenant.events.node.metrics import SlotDigest
from cotenant_metrics_ingest import varints
from cotenant_metrics_ingest.points import (
    KEPT,
    MAX_OPEN,
    POINTS,
    WEIGHT_BITS,
    WEIGHT_MASK,
    Integers,
    restored_points,
    thinned,
)

MAX_SLOTS = 122
MAX_ENDED = 4
SERIES = 4
"""node cpu, node memory, system cpu, system memory"""

LATEST_MS = 2**53
"""A slot number beyond any clock."""

COLUMNS = 3 + SERIES
"""A slot's columns besides its points: its number, the times of its first and last sample, the series' sums."""


class _Samples:
    """One slot with its queued samples."""

    __slots__ = ("first_ms", "last_ms", "number", "series")

    def __init__(self, number: int, first_ms: int, last_ms: int = 0, series: Sequence[Sequence[int]] = ((),) * SERIES) -> None:
        self.number = number
        self.first_ms = first_ms
        self.last_ms = last_ms
        self.series = [array("q", values) for values in series]


class PercentileSlots:
    """Mutable. Times are milliseconds since the epoch, by the node's clock. Shapes and units: see the module."""

    __slots__ = ("_encoded", "_ended", "_open", "capacity", "points", "slots", "width_ms")

    def __init__(self, width_ms: int, capacity: int) -> None:
        self.width_ms = width_ms
        self.capacity = min(capacity, MAX_SLOTS)
        self.points = np.zeros((SERIES, self.capacity, POINTS), dtype=np.int64)
        self.slots = np.full((self.capacity, COLUMNS), -1, dtype=np.int64)
        """Both indexed by a slot's number modulo the capacity."""
        self._open: _Samples | None = None
        self._ended: list[_Samples] = []
        self._encoded: dict[int, bytes | None] = {}
        """Encoded closed slots by number, oldest first; None until a digest needs them."""

    def add(self, slot: int, first_ms: int, last_ms: int, series: Sequence[bytes]) -> None:
        """Queue samples of one slot, which is not before the present one; `series`: the four series in order, int64."""
        samples = self._open
        if samples is None or slot != samples.number:
            samples = self._open = self._next(slot, first_ms)
        samples.last_ms = last_ms
        for kept, new in zip(samples.series, series, strict=True):
            kept.frombytes(new)
        if len(samples.series[0]) > MAX_OPEN:
            for kept in samples.series:
                del kept[::2]

    def _next(self, slot: int, first_ms: int) -> _Samples:
        if self._open is not None:
            self._ended.append(self._open)
            self._encoded[self._open.number] = None
            while self._encoded and (oldest := next(iter(self._encoded))) <= slot - self.capacity:
                del self._encoded[oldest]
            if len(self._ended) > MAX_ENDED:
                settle([self])
        return _Samples(slot, first_ms)

    def unsettled(self) -> list[_Samples]:
        """Return the slots whose samples must be written to the ring, always including the open one."""
        ended, self._ended = self._ended, []
        slots = [samples for samples in ended if samples.number in self._encoded]
        return slots if self._open is None else [*slots, self._open]

    def windows(self, durations_ms: Sequence[int]) -> Iterator["Window"]:
        """Return the windows that end at the newest sample, in the order of `durations_ms`. Requires `settle`."""
        if self._open is None:
            yield from (Window(self, duration, 0, np.zeros(0, dtype=np.int64)) for duration in durations_ms)
            return
        numbers = [*self._encoded, self._open.number]
        places = np.array(numbers, dtype=np.int64) % self.capacity
        end_ms = self._open.last_ms
        latest = end_ms - self.width_ms // 2
        for duration in durations_ms:
            oldest = bisect_left(numbers, -((duration - latest) // self.width_ms))
            span = 0
            if oldest < len(numbers):
                span = end_ms - max(int(self.slots[places[oldest], 1]), end_ms - duration)
            yield Window(self, duration, span, places[oldest:])

    # -- restart -------------------------------------------------------------------------------------------------

    def not_encoded(self) -> list[int]:
        """Return the numbers of closed slots that are not encoded yet."""
        return [number for number, encoded in self._encoded.items() if encoded is None]

    def encoded(self, number: int, data: bytes) -> None:
        """Cache the encoding of a slot."""
        self._encoded[number] = data

    def digest(self) -> SlotDigest:
        """Return the digest for a restart. Requires `encode_ended`."""
        if self._open is None:
            return SlotDigest(width_ms=self.width_ms)
        return SlotDigest(
            width_ms=self.width_ms,
            closed=b"".join(encoded for encoded in self._encoded.values() if encoded is not None),
            open_slot=self._open.number,
            open_first_ms=self._open.first_ms,
            open_last_ms=self._open.last_ms,
            open_series=tuple(tuple(values) for values in self._open.series),
        )

    @classmethod
    def restored(cls, digest: SlotDigest, width_ms: int, capacity: int) -> "PercentileSlots":
        """Restore from a digest; one of another width, or a damaged one, gives an empty state."""
        ring = cls(width_ms, capacity)
        fits = (
            digest.width_ms == width_ms
            and len(digest.open_series) == SERIES
            and 0 <= digest.open_slot == digest.open_first_ms // width_ms
            and digest.open_first_ms <= digest.open_last_ms < LATEST_MS
        )
        if not fits:
            return ring
        series = [values[-MAX_OPEN:] for values in digest.open_series]
        try:
            ring._open = _Samples(digest.open_slot, digest.open_first_ms, digest.open_last_ms, series)
            ring._restore_ended(digest.closed, digest.open_slot)
        except (varints.VarintError, IndexError, OverflowError):
            return cls(width_ms, capacity)
        return ring

    def _restore_ended(self, encoded: bytes, open_slot: int) -> None:
        integers = varints.decode(encoded)
        if not len(integers):
            return
        begins, counts_at = _places(integers)
        rows = integers[begins[:, np.newaxis] + np.arange(COLUMNS)]
        numbers = rows[:, 0].copy()
        if numbers[0] < 0 or numbers[-1] >= open_slot or (numbers[1:] <= numbers[:-1]).any():
            raise varints.VarintError(f"slots do not ascend to before {open_slot}")
        rows[:, 1:3] += numbers[:, np.newaxis] * self.width_ms
        sizes = np.minimum(integers[counts_at], MAX_OPEN)
        points = restored_points(integers, counts_at + 1, sizes).reshape(-1, SERIES, POINTS)
        # Others are of a ring that held more.
        held = numbers > open_slot - self.capacity
        places = numbers[held] % self.capacity
        self.points[:, places] = points[held].swapaxes(0, 1)
        self.slots[places] = rows[held]
        self._encoded = dict.fromkeys(numbers[held].tolist())


_FULL = COLUMNS + SERIES * (1 + POINTS)
"""Integers of an encoded slot that had at least POINTS samples."""
_COUNTS = np.arange(COLUMNS, _FULL, 1 + POINTS)


def _places(integers: Integers) -> tuple[Integers, Integers]:
    """Where encoded slots begin, int64 (slots,), and where in each the series' counts are, int64 (slots x SERIES,). A run of
    slots with all points, as most are, is found at once. Raises VarintError, IndexError."""
    begins: list[Integers] = []
    counts_at: list[Integers] = []
    at, end = 0, len(integers)
    while at < end:
        rows = integers[at : at + (end - at) // _FULL * _FULL].reshape(-1, _FULL)
        full = rows[:, _COUNTS].min(axis=1) >= POINTS
        run = len(full) if full.all() else int(full.argmin())
        if run:
            begins.append(at + _FULL * np.arange(run))
            counts_at.append((begins[-1][:, np.newaxis] + _COUNTS).reshape(-1))
            at += run * _FULL
            continue
        begins.append(np.array([at]))
        at += COLUMNS
        places: list[int] = []
        for _ in range(SERIES):
            places.append(at)
            at += 1 + KEPT[min(int(integers[at]), MAX_OPEN)]
        counts_at.append(np.array(places))
    if at > end:
        raise varints.VarintError("slots are cut off")
    return np.concatenate(begins), np.concatenate(counts_at)


class Window(msgspec.Struct, frozen=True):
    """One window: the ring indices of its slots, and the time between its oldest and newest sample."""

    ring: PercentileSlots
    duration_ms: int
    span_ms: int
    places: Integers


def settle(rings: Sequence[PercentileSlots]) -> None:
    """Write the queued samples of all rings."""
    found = [(ring, samples) for ring in rings for samples in ring.unsettled()]
    if not found:
        return
    series = [values for _, samples in found for values in samples.series]
    everything = np.frombuffer(b"".join(series), dtype=np.int64)
    points, sums = thinned(everything, np.array([*map(len, series)], dtype=np.int64))
    points = points.reshape(-1, SERIES, POINTS)
    rows = np.empty((len(found), COLUMNS), dtype=np.int64)
    rows[:, :-SERIES] = [(samples.number, samples.first_ms, samples.last_ms) for _, samples in found]
    rows[:, -SERIES:] = sums.reshape(-1, SERIES)
    for (ring, samples), kept, row in zip(found, points, rows, strict=True):
        place = samples.number % ring.capacity
        ring.points[:, place] = kept
        ring.slots[place] = row


def encode_ended(rings: Sequence[PercentileSlots]) -> None:
    """Encode the slots closed since their last digest. Requires `settle`."""
    found = [(ring, number) for ring in rings for number in ring.not_encoded()]
    if not found:
        return
    points = np.array([ring.points[:, number % ring.capacity] for ring, number in found])
    values = points >> WEIGHT_BITS
    rows = np.empty((len(found), COLUMNS + SERIES * (1 + POINTS)), dtype=np.int64)
    rows[:, :COLUMNS] = [ring.slots[number % ring.capacity] for ring, number in found]
    rows[:, 1:3] -= rows[:, :1] * np.array([[ring.width_ms] for ring, _ in found], dtype=np.int64)
    used = np.ones(rows.shape, dtype=bool)
    kept, kept_used = (table[:, COLUMNS:].reshape(-1, SERIES, 1 + POINTS) for table in (rows, used))
    kept[:, :, 0] = (points & WEIGHT_MASK).sum(axis=2)
    kept[:, :, 1] = values[:, :, 0]
    kept[:, :, 2:] = values[:, :, 1:] - values[:, :, :-1]
    kept_used[:, :, 1:] = points > 0
    for (ring, number), encoded in zip(found, varints.encode_each(rows[used], used.sum(axis=1)), strict=True):
        ring.encoded(number, encoded)

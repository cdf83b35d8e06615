"""Windows of weights: of each row the buckets in use, from the lowest to the highest, and a few beside them.

In: rows, each with the buckets that it must hold. Out: the places of buckets in one array of weights, and whole windows of many
rows at once. A window has one of the WIDTHS; for a bucket outside, the row moves to a window that holds all
its buckets in use, these in the middle. Freed windows are used again by rows of the same width.

Memory: 8 bytes a bucket of a window; the use of a pod that varies by a factor of two takes 16 buckets of 5 %, by ten 48.
"""

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from cotenant_metrics_ingest.prediction.buckets import Floats, Indices

WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_GROWTH = 8
"""The array grows by this part of its size, at least by LEAST_GROWTH weights."""
LEAST_GROWTH = 4096


class Windows:
    """Mutable. Rows are numbered from 0; a row without weights has no window."""

    def __init__(self, buckets: int, rows: int = 0) -> None:
        self.buckets = buckets
        self.weights: Floats = np.zeros(0)
        """All windows; the rest is 0."""
        self._widths: Indices = np.array([*(width for width in WIDTHS if width < buckets), buckets], dtype=np.int64)
        self._begin: Indices = np.zeros(rows, dtype=np.int64)
        self._first: Indices = np.zeros(rows, dtype=np.int64)
        self._width: Indices = np.zeros(rows, dtype=np.int64)
        """Of each row: the start of its window, its first bucket, and its width."""
        self._used = 0
        self._free: dict[int, list[int]] = {}
        """Starts of free windows, by width."""

    def widen(self, rows: int) -> None:
        """Grow to at least this many rows."""
        more = np.zeros(max(rows - len(self._begin), 0), dtype=np.int64)
        self._begin, self._first, self._width = (
            np.concatenate((each, more)) for each in (self._begin, self._first, self._width)
        )

    def keep(self, rows: Indices) -> None:
        """Drop all rows but these; they are numbered again from 0."""
        gone = np.ones(len(self._begin), dtype=bool)
        gone[rows] = False
        self.clear(np.flatnonzero(gone))
        self._begin, self._first, self._width = self._begin[rows], self._first[rows], self._width[rows]

    def clear(self, rows: Indices) -> None:
        """Free the windows of rows."""
        for row in rows[self._width[rows] > 0].tolist():
            self._release(int(self._begin[row]), int(self._width[row]))
        self._width[rows] = 0

    def places(self, rows: Indices, buckets: Indices) -> Indices:
        """Where in `weights` the bucket of each of distinct rows is."""
        self._hold(rows, buckets, buckets)
        return self._begin[rows] + buckets - self._first[rows]

    def places_of_many(self, rows: Indices, buckets: Indices) -> Indices:
        """The same for any number of buckets a row, which ascend and come one after the other."""
        if not len(rows):
            return rows
        changes = np.flatnonzero(rows[1:] != rows[:-1])
        starts, ends = np.concatenate(([0], changes + 1)), np.append(changes, len(rows) - 1)
        self._hold(rows[starts], buckets[starts], buckets[ends])
        return self._begin[rows] + buckets - self._first[rows]

    def _hold(self, rows: Indices, lowest: Indices, highest: Indices) -> None:
        """Give distinct rows windows that hold these buckets too."""
        first = self._first[rows]
        outside = (lowest < first) | (highest - first >= self._width[rows])
        if not outside.any():
            return
        rows_outside = rows[outside]
        new = self._width[rows_outside] == 0
        self._begin_windows(rows_outside[new], lowest[outside][new], highest[outside][new])
        moved = zip(
            rows_outside[~new].tolist(), lowest[outside][~new].tolist(), highest[outside][~new].tolist(), strict=True
        )
        for row, low, high in moved:
            self._move(row, low, high)

    def _begin_windows(self, rows: Indices, lowest: Indices, highest: Indices) -> None:
        sizes = highest - lowest + 1
        widths = self._widths[self._widths.searchsorted(sizes)]
        for width in set(widths.tolist()):
            alike = widths == width
            self._begin[rows[alike]] = self._windows(width, int(alike.sum()))
        self._width[rows] = widths
        self._first[rows] = np.clip(lowest - (widths - sizes) // 2, 0, self.buckets - widths)

    def _move(self, row: int, lowest: int, highest: int) -> None:
        begin, first, width = int(self._begin[row]), int(self._first[row]), int(self._width[row])
        held = self.weights[begin : begin + width].copy()
        used = np.flatnonzero(held)
        if len(used):
            lowest, highest = min(lowest, first + int(used[0])), max(highest, first + int(used[-1]))
        self._release(begin, width)
        one = np.array([row])
        self._begin_windows(one, np.array([lowest]), np.array([highest]))
        if len(used):
            self.weights[int(self._begin[row]) - int(self._first[row]) + first + used] = held[used]

    def _windows(self, width: int, count: int) -> Indices:
        free = self._free.get(width, [])
        again = [free.pop() for _ in range(min(count, len(free)))]
        end = self._used + width * (count - len(again))
        if end > len(self.weights):
            more = max(end - len(self.weights), len(self.weights) // _GROWTH, LEAST_GROWTH)
            # In place if possible: there are no views of it.
            self.weights.resize(len(self.weights) + more, refcheck=False)
        begins = np.array([*again, *range(self._used, end, width)], dtype=np.int64)
        self._used = end
        return begins

    def _release(self, begin: int, width: int) -> None:
        self.weights[begin : begin + width] = 0.0
        self._free.setdefault(width, []).append(begin)

    def of(self, row: int) -> Floats:
        """A row's weights of all buckets, float64 (buckets,)."""
        found = np.zeros(self.buckets)
        first, width = int(self._first[row]), int(self._width[row])
        found[first : first + width] = self.weights[int(self._begin[row]) : int(self._begin[row]) + width]
        return found

    def scale(self, row: int, factor: float) -> None:
        """Multiply a row's weights."""
        self.weights[int(self._begin[row]) : int(self._begin[row]) + int(self._width[row])] *= factor

    def tables(self, rows: Indices) -> Iterator[tuple[Indices, Indices, Floats]]:
        """The windows of rows by width: which of `rows`, the bucket that each begins with, and a copy of the weights,
        float64 (of them, width)."""
        widths = self._width[rows]
        for width in sorted({*widths.tolist()} - {0}):
            which = np.flatnonzero(widths == width)
            own = rows[which]
            yield which, self._first[own], sliding_window_view(self.weights, width)[self._begin[own]]

"""Arrays that grow by doubling, and the log of rows that changed.

A column holds one number per node; row numbers are stable while a node is known. `Changes` lets a reader that has kept
results per row ask which rows changed since it last looked; it is bounded: a reader that is too far behind has to
start over.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
CodeArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]

Rows = slice | IntArray
"""Rows that a vectorised function works on: a slice of them, or an array of row numbers."""

Cells = memoryview
"""A column for access to single numbers, in half of numpy's time."""

FIRST_CAPACITY = 64

CHANGES_KEPT = 65_536
"""Changed rows that are kept; a reader further behind recomputes everything."""


def of_rows(columns: IntArray, rows: Rows) -> IntArray:
    """Return the given rows of columns (int64, columns by rows)."""
    return columns[:, rows] if isinstance(rows, slice) else columns.take(rows, axis=1)


def grown(array: IntArray, capacity: int) -> IntArray:
    """Return the array (int64) with room for `capacity` entries along its last axis, new ones zero."""
    wider = np.zeros((*array.shape[:-1], capacity), dtype=np.int64)
    wider[..., : array.shape[-1]] = array
    return wider


def doubled(current: int, needed: int) -> int:
    """Return the smallest doubling of `current` that holds `needed`."""
    while current < needed:
        current *= 2
    return current


class Changes:
    """Rows that changed, in the order of their changes; positions count from the first change ever.

    Not `engine.agenda`: that is one set of names for one reader, which empties it. Here every cache of a shape reads from its
    own position, and rows are returned as a slice of an array.
    """

    def __init__(self) -> None:
        self._rows = np.zeros(CHANGES_KEPT, dtype=np.int64)
        self._cells: Cells = self._rows.data
        self.position = 0
        """The position after the last change."""
        self._start = 0
        """The position of the first change that is kept."""

    def __deepcopy__(self, memo: dict[int, object]) -> Changes:
        """A copy's cells are those of the copy's rows."""
        copied = memo[id(self)] = Changes()
        copied._rows[:] = self._rows
        copied.position, copied._start = self.position, self._start
        return copied

    def add(self, row: int) -> None:
        """Record that a row changed."""
        index = self.position - self._start
        if index >= CHANGES_KEPT:
            self.forget()
            index = 0
        self._cells[index] = row
        self.position += 1

    def extend(self, rows: IntArray) -> None:
        """Record that rows (int64, row numbers) changed."""
        size = rows.shape[0]
        if self.position - self._start + size > CHANGES_KEPT:
            self.forget()
            if size > CHANGES_KEPT:
                return
        first = self.position - self._start
        self._rows[first : first + size] = rows
        self.position += size

    def forget(self) -> None:
        """Make every reader start over."""
        self.position += 1
        self._start = self.position

    def since(self, position: int) -> IntArray | None:
        """Return the rows (int64) that changed after a position, duplicates included, until the next change; None: too many,
        start over."""
        if position < self._start:
            return None
        return self._rows[position - self._start : self.position - self._start]

    def few_since(self, position: int, most: int) -> list[int] | None:
        """Return the rows that changed after a position, duplicates included; None: more than `most`, or too many."""
        if position < self._start or self.position - position > most:
            return None
        rows: list[int] = self._cells[position - self._start : self.position - self._start].tolist()
        return rows


def distinct(rows: IntArray, size: int) -> IntArray:
    """Return the rows (int64, row numbers below `size`) without duplicates, ascending."""
    marked = np.zeros(size, dtype=np.bool_)
    marked[rows] = True
    found: IntArray = np.flatnonzero(marked)
    return found

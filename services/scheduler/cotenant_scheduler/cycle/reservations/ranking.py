"""The rows on which a reservation takes a pod, compared by their scores.

In: by row, the scores of the other plugins with its reservations free, and the room that the pod gets there. Out: the row with
the highest sum of scores, of which that of the reservation is normalised over the rows that are compared
(`plugins.reservation.scoring`). One row is compared by itself; several over arrays. Bounds: one entry a row that ever took a
pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import numpy as np

from cotenant_scheduler.plugins.reservation.fitting import ReservationCapacity
from cotenant_scheduler.plugins.reservation.scoring import MAX_SCORE, normalised, preferring, room_score
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.nodes import TIE_BITS, NodeTable
from cotenant_scheduler.state.reservations.records import ReserveRecord

_NO_ORDER = 1 << 62
_REFUSES = (-1, _NO_ORDER, -1)


class Found(msgspec.Struct, frozen=True, eq=False):
    """A row that takes a pod. `record` and `room` None: the pod uses no reservation there."""

    row: int
    scores: list[int]
    """Weighted, by plugin."""
    record: ReserveRecord | None = None
    room: ReservationCapacity | None = None


class Ranking:
    """Entries of rows, for pods with the same requests."""

    def __init__(self, nodes: NodeTable, requests: Mapping[str, int]) -> None:
        self._nodes = nodes
        self._requests = requests
        self.found: dict[int, Found] = {}
        """By row, how it takes a pod."""
        self._index: dict[int, int] = {}
        self._rows: list[int] = []
        self._only = _REFUSES
        """The first entry: raw score (-1: it takes none), order, key without the reservation's score."""
        self._columns: IntArray | None = None
        """The same of all entries, once there are several."""

    def put(self, row: int, found: Found | None) -> None:
        """Set how a row takes a pod; None: it does not."""
        if found is None:
            self.found.pop(row, None)
        else:
            self.found[row] = found
        index = self._index.get(row)
        if index is None:
            if found is None:
                return
            index = self._index[row] = len(self._rows)
            self._rows.append(row)
        entry = self._entry(row, found) if found is not None else _REFUSES
        if index == 0:
            self._only = entry
        if len(self._rows) == 1:
            return
        columns = self._columns
        if columns is None or index >= columns.shape[1]:
            wider = np.full((3, max(8, 2 * index)), -1, dtype=np.int64)
            if columns is not None:
                wider[:, : columns.shape[1]] = columns
            wider[:, 0] = self._only
            columns = self._columns = wider
        columns[:, index] = entry

    def _entry(self, row: int, found: Found) -> tuple[int, int, int]:
        room = found.room
        key = sum(found.scores) << TIE_BITS | self._nodes.tie.item(row)
        if room is None:
            return 0, _NO_ORDER, key
        return room_score(self._requests, room), room.order or _NO_ORDER, key

    def best(
        self, weight: int, instead: Callable[[int], int], among: IntArray | None = None
    ) -> tuple[int, Found] | None:
        """Return the row with the highest key, with the reservation's weighted score there; None if no row takes a pod.
        `instead` may return another row, given that key; None is returned if no reservation takes a pod there. `among`: only
        these rows are compared."""
        if not self.found:
            return None
        if self._columns is None:
            return self._only_one(weight, instead, among)
        raw, orders, keys = self._columns[:, : len(self._rows)]
        if among is not None:
            inside = np.isin(self._rows, among)
            raw, orders, keys = np.where(inside, raw, -1), np.where(inside, orders, _NO_ORDER), np.where(inside, keys, -1)
        first = int(orders.min())
        totals = weight * normalised(preferring(raw, self._preferred(orders, first) if first != _NO_ORDER else -1))
        whole = np.where(keys >= 0, keys + (totals << TIE_BITS), -1)
        index = int(whole.argmax())
        if whole[index] < 0:
            return None
        other = instead(int(whole[index]))
        if other >= 0:
            index = self._index.get(other, -1)
            if index < 0 or keys[index] < 0:
                return None
        return int(totals[index]), self.found[self._rows[index]]

    def _only_one(
        self, weight: int, instead: Callable[[int], int], among: IntArray | None
    ) -> tuple[int, Found] | None:
        row = self._rows[0]
        if among is not None and row not in among:
            return None
        score, order, key = self._only
        weighted = weight * MAX_SCORE if score > 0 or order != _NO_ORDER else 0
        other = instead(key + (weighted << TIE_BITS))
        return (weighted, self.found[row]) if other in (-1, row) else None

    def _preferred(self, orders: IntArray, order: int) -> int:
        """The entry with the smallest order; of several, that of the oldest reservation."""
        entries: list[int] = np.flatnonzero(orders == order).tolist()
        return min(entries, key=self._seniority)

    def _seniority(self, index: int) -> tuple[str, str]:
        room = self.found[self._rows[index]].room
        return (room.created, room.name) if room is not None else ("", "")

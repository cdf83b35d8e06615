"""The reservations that pods of one shape and ask may use, and the score of each node that has some.

In: the records of reservations, the node table with what they hold, the results of the shape. Out: per row the room that a pod
gets there with the scores of the other plugins, or why it gets none. Other filters and scores see a row on which every matched
reservation is free: its reserve pods are taken away, the row is judged, and they are put back (Koordinator's restore); the
plugin's own check frees one reservation at a time (`plugins.reservation.fitting`).

Only rows that changed are judged again. Cost: some 20 us a row. Bounds: one entry a row that has a reservation for the ask.
Over 300 lines: judging a row and caching the result share the same entries.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from cotenant.domain.reservations.diagnosis import Diagnosis
from cotenant.domain.reservations.lifecycle import allocates_once
from cotenant.model.names import RESOURCE_PODS
from cotenant_scheduler.cycle.reservations.matched import Matched, lift, room_of
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.plugins.reservation.fitting import Ignored, ReservationCapacity, judged, may_be_nominated
from cotenant_scheduler.plugins.reservation.matching import Ask, Miss, missed
from cotenant_scheduler.plugins.reservation.scoring import MAX_SCORE, nominated, normalised, preferring, room_score
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.nodes import TIE_BITS, NodeTable
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.reservations.cache import ReservationCache
from cotenant_scheduler.state.reservations.records import ReserveRecord

FEW_ROWS = 4
"""Up to this many rows are judged again whenever anything has changed."""

_NO_ORDER = 1 << 62


class Found(msgspec.Struct, frozen=True, eq=False):
    """A row that takes a pod. `record` and `room` None: the pod uses no reservation there."""

    row: int
    scores: list[int]
    """Weighted, by plugin."""
    record: ReserveRecord | None = None
    room: ReservationCapacity | None = None


class Candidates:
    """Rows with reservations for one shape and ask."""

    def __init__(self, nodes: NodeTable, cache: ReservationCache, shape: Shape, ask: Ask, ignored: Ignored) -> None:
        self._nodes = nodes
        self._cache = cache
        self._shape = shape
        self._ask = ask
        self._ignored = ignored
        self._stamp: tuple[object, ...] = ()
        self._positions = (-1, -1, -1)
        self._row_of: dict[str, int] = {}
        self._members: dict[int, dict[str, ReserveRecord]] = {}
        """By row, the reservations whose owners match the pods."""
        self.found: dict[int, Found] = {}
        self.diagnoses: dict[int, Diagnosis] = {}
        self.reasons: dict[int, tuple[str, ...]] = {}
        """By row, why a pod gets no room there."""
        self._index: dict[int, int] = {}
        self._rows: list[int] = []
        self._only = (-1, _NO_ORDER, -1)
        """The first entry: raw score (-1: none), order, key without the reservation's score."""
        self._columns: IntArray = np.zeros((3, 0), dtype=np.int64)
        """The same of all entries, once there are several."""

    def refresh(self, evaluation: Evaluation) -> None:
        """Update everything to the state."""
        nodes, cache = self._nodes, self._cache
        stamp = (nodes.version, evaluation.highest, evaluation.counted_version())
        positions = (nodes.changes.position, nodes.static_changes.position, cache.changed.position)
        if stamp == self._stamp and positions == self._positions:
            return
        names = cache.changed.since(self._positions[2])
        logs = (nodes.changes, nodes.static_changes)
        changed = [log.since(position) for log, position in zip(logs, self._positions, strict=False)]
        same = stamp == self._stamp and names is not None and all(rows is not None for rows in changed)
        self._stamp, self._positions = stamp, positions
        if not same:
            self._reset()
            rows: set[int] = set(self._members)
        else:
            assert names is not None
            rows = self._relist(names)
            if len(self._members) <= FEW_ROWS:
                rows |= self._members.keys()
            else:
                for log in changed:
                    assert log is not None
                    rows |= self._members.keys() & set(log.tolist())
        for row in sorted(rows):
            self._judge(row, evaluation)

    def _reset(self) -> None:
        self._row_of, self._members = {}, {}
        self.found, self.diagnoses, self.reasons = {}, {}, {}
        self._index, self._rows = {}, []
        self._columns = np.zeros((3, 0), dtype=np.int64)
        lists = self._cache.by_owners
        for number in sorted(lists) if self._ask.ignored else self._ask.owners:
            for name, record in lists.get(number, {}).items():
                self._list(name, record)

    def _list(self, name: str, record: ReserveRecord) -> None:
        share = record.share()
        row = self._nodes.rows.get(share.node) if share is not None else None
        if row is not None:
            self._row_of[name] = row
            self._members.setdefault(row, {})[name] = record

    def _relist(self, names: list[str]) -> set[int]:
        """Update which of some reservations exist now; return the affected rows."""
        rows: set[int] = set()
        for name in dict.fromkeys(names):
            row = self._row_of.pop(name, None)
            if row is not None:
                del self._members[row][name]
                rows.add(row)
            record = self._cache.by_name.get(name)
            if record is None or not record.owners:
                continue
            if name in self._cache.by_owners.get(record.owners, {}) and (
                self._ask.ignored or record.owners in self._ask.owners
            ):
                self._list(name, record)
                if name in self._row_of:
                    rows.add(self._row_of[name])
        return rows

    # -- judging a row -------------------------------------------------------------------------------------------

    def _judge(self, row: int, evaluation: Evaluation) -> None:
        self.found.pop(row, None)
        self.diagnoses.pop(row, None)
        self.reasons.pop(row, None)
        matched = self._matched(row)
        if matched:
            self._judge_matched(row, matched, evaluation)
        if not self._members.get(row):
            self._members.pop(row, None)
        self._enter(row)

    def _matched(self, row: int) -> Matched:
        matched = []
        found = Diagnosis(taint_counts={})
        uses = self._nodes.held.on(row)
        for name, record in sorted(self._members.get(row, {}).items()):
            share = record.share()
            use = uses.get(record.uid)
            if share is None or use is None or use.reserve is None or name in self._cache.over:
                continue
            assert record.reservation is not None
            if allocates_once(record.reservation.spec) and use.users:
                continue
            if self._ask.ignored:
                matched.append((record, use))
                continue
            found.owner_matched += 1
            miss = missed(
                self._ask, self._shape.requests, record.reservation, share.allocatable, self._nodes.labels[row]
            )
            if miss is None:
                matched.append((record, use))
                affinity = self._ask.wanted
                if affinity is not None and affinity.name:
                    found.name_matched += 1
            else:
                _note(found, *miss)
        if found.owner_matched:
            self.diagnoses[row] = found
        return matched

    def _judge_matched(self, row: int, matched: Matched, evaluation: Evaluation) -> None:
        record, room = None, None
        if not self._ask.ignored:
            room, reasons = self._room(row, matched)
            if room is None:
                self.reasons[row] = reasons
                return
            record = {record.uid: record for record, _ in matched}[room.uid]
        code, scores = self._judged_without(row, matched, evaluation)
        if code:
            self.reasons[row] = (evaluation.refusal_text(row, code),)
        else:
            self.found[row] = Found(row, scores, record, room)

    def _room(self, row: int, matched: Matched, uid: str = "") -> tuple[ReservationCapacity | None, tuple[str, ...]]:
        """Return the reservation that a pod is given on a row; or None, and why. `uid`: of this one alone."""
        requests, ask = self._shape.requests, self._ask
        affinity = ask.wanted
        result = judged(
            requests,
            {name: self._free(row, name) for name in requests},
            self._free(row, RESOURCE_PODS) + len(matched),
            [room_of(record, use) for record, use in matched if uid in ("", record.uid)],
            required=ask.required,
            name=affinity.name if affinity is not None else "",
            ignored=self._ignored,
        )
        taking = [each for each in result.rooms if not may_be_nominated(requests, each, required=ask.required)]
        return nominated(requests, taking), result.reasons

    def _judged_without(self, row: int, matched: Matched, evaluation: Evaluation) -> tuple[int, list[int]]:
        uses = [use for _, use in matched]
        lift(self._nodes, row, uses, -1)
        try:
            return evaluation.judged(row)
        finally:
            lift(self._nodes, row, uses, 1)

    def crowded(self) -> dict[int, Matched]:
        """Return by row, ascending, the reservations that match the pods where none of them takes one."""
        return {} if self._ask.ignored else {row: self._matched(row) for row in sorted(self.reasons)}

    def takes(self, row: int, matched: Matched, evaluation: Evaluation, uid: str = "") -> Found | None:
        """Return which of these reservations takes a pod on a row as that is now, and how; `uid`: whether this one does."""
        room = self._room(row, matched, uid)[0]
        if room is None:
            return None
        code, scores = self._judged_without(row, matched, evaluation)
        return None if code else Found(row, scores, {record.uid: record for record, _ in matched}[room.uid], room)

    def now_on(self, row: int, evaluation: Evaluation) -> Found | None:
        """Return how a pod goes to a row because of the reservations there, as the row is now; None if it does not."""
        matched = self._matched(row)
        if not matched or not self._ask.ignored:
            return self.takes(row, matched, evaluation) if matched else None
        code, scores = self._judged_without(row, matched, evaluation)
        return None if code else Found(row, scores)

    def on(self, row: int) -> Matched:
        """Return the reservations of a row that match the pods."""
        return [] if self._ask.ignored else self._matched(row)

    def _free(self, row: int, name: str) -> int:
        nodes = self._nodes
        dim = nodes.dims.get(name)
        return nodes.allocatable.item(dim, row) - nodes.requested.item(dim, row) if dim is not None else 0

    # -- choosing a row ------------------------------------------------------------------------------------------

    def _enter(self, row: int) -> None:
        found = self.found.get(row)
        index = self._index.get(row)
        if index is None:
            if found is None:
                return
            index = self._index[row] = len(self._rows)
            self._rows.append(row)
        entry = self._entry(row, found)
        if index == 0:
            self._only = entry
        if len(self._rows) > 1:
            if index >= self._columns.shape[1]:
                wider = np.full((3, max(8, 2 * index)), -1, dtype=np.int64)
                wider[:, : self._columns.shape[1]] = self._columns
                wider[:, 0] = self._only
                self._columns = wider
            self._columns[:, index] = entry

    def _entry(self, row: int, found: Found | None) -> tuple[int, int, int]:
        if found is None:
            return -1, _NO_ORDER, -1
        room = found.room
        key = sum(found.scores) << TIE_BITS | self._nodes.tie.item(row)
        score = room_score(self._shape.requests, room) if room is not None else 0
        return score, room.order if room is not None and room.order else _NO_ORDER, key

    def best(self, weight: int, instead: Callable[[int], int]) -> tuple[int, Found] | None:
        """Return the row with the highest key, with the reservation's weighted score there; None if no row takes a pod.
        `instead` may return another row, given that key; None is returned if no reservation takes a pod there."""
        if not self.found:
            return None
        if len(self._rows) == 1:
            score, order, key = self._only
            weighted = weight * MAX_SCORE if score > 0 or order != _NO_ORDER else 0
            other = instead(key + (weighted << TIE_BITS))
            return (weighted, self.found[self._rows[0]]) if other in (-1, self._rows[0]) else None
        raw, orders, keys = self._columns[:, : len(self._rows)]
        first = int(orders.min())
        totals = weight * normalised(preferring(raw, self._preferred(first) if first != _NO_ORDER else -1))
        whole = np.where(keys >= 0, keys + (totals << TIE_BITS), -1)
        index: int | None = int(whole.argmax())
        assert index is not None
        other = instead(int(whole[index]))
        if other >= 0:
            index = self._index.get(other)
            if index is None or keys[index] < 0:
                return None
        return int(totals[index]), self.found[self._rows[index]]

    def _preferred(self, order: int) -> int:
        """The entry with the smallest order; of several, that of the oldest reservation."""
        entries: list[int] = np.flatnonzero(self._columns[1, : len(self._rows)] == order).tolist()
        return min(entries, key=self._seniority)

    def _seniority(self, index: int) -> tuple[str, str]:
        room = self.found[self._rows[index]].room
        return (room.created, room.name) if room is not None else ("", "")


def _note(found: Diagnosis, miss: Miss, taint: str) -> None:
    match miss:
        case Miss.NAME:
            found.name_unmatched += 1
        case Miss.UNSCHEDULABLE:
            found.unschedulable += 1
        case Miss.AFFINITY:
            found.affinity_unmatched += 1
        case Miss.EXACT:
            found.not_exact += 1
        case Miss.TAINTS:
            found.taints += 1
            found.taint_counts[taint] = found.taint_counts.get(taint, 0) + 1

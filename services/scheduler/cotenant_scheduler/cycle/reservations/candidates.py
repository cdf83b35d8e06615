"""The reservations that pods of one shape and ask may use, and the score of each node that has some.

In: the records of reservations, the node table with what they hold, the results of the shape. Out: per row the room that a pod
gets there with the scores of the other plugins, or why it gets none. Other filters and scores see a row on which every matched
reservation is free: its reserve pods are taken away, the row is judged, and they are put back (Koordinator's restore); the
plugin's own check frees one reservation at a time (`plugins.reservation.fitting`).

Only rows that changed are judged again. Cost: some 20 us a row. Bounds: one entry a row that has a reservation for the ask.
"""

from __future__ import annotations

from collections.abc import Callable

from cotenant.domain.reservations.diagnosis import Diagnosis
from cotenant.domain.reservations.lifecycle import allocates_once
from cotenant.events.allocations import ReservationUsed
from cotenant.model.names import RESOURCE_PODS
from cotenant_scheduler.cycle.reservations.matched import Matched, lift, room_of
from cotenant_scheduler.cycle.reservations.ranking import Found, Ranking
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.plugins.reservation.fitting import (
    Ignored,
    ReservationCapacity,
    judged,
    may_be_nominated,
    share_short,
)
from cotenant_scheduler.plugins.reservation.matching import Ask, Miss, missed
from cotenant_scheduler.plugins.reservation.scoring import nominated
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.reservations.cache import ReservationCache
from cotenant_scheduler.state.reservations.records import ReserveRecord

FEW_ROWS = 4
"""Up to this many rows are judged again whenever anything has changed."""


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
        self._ranking = Ranking(nodes, shape.requests)
        self.diagnoses: dict[int, Diagnosis] = {}
        self.reasons: dict[int, tuple[str, ...]] = {}
        """By row, why a pod gets no room there."""
        self._short: dict[int, list[tuple[int, ReservationUsed]]] = {}
        self._by_name: list[int] | None = None

    @property
    def found(self) -> dict[int, Found]:
        """By row that takes a pod, how."""
        return self._ranking.found

    def best(
        self, weight: int, instead: Callable[[int], int], among: IntArray | None = None
    ) -> tuple[int, Found] | None:
        """Return the best row that takes a pod (`ranking`)."""
        return self._ranking.best(weight, instead, among)

    def refresh(self, evaluation: Evaluation) -> None:
        """Update everything to the state."""
        nodes, cache = self._nodes, self._cache
        stamp = (nodes.version, evaluation.highest, evaluation.counted_version())
        positions = (nodes.changes.position, nodes.static_changes.position, cache.changed.position)
        if stamp != self._stamp:
            rows = self._reset()
        elif positions == self._positions:
            return
        else:
            rows = self._changed_rows(self._positions)
        self._stamp, self._positions = stamp, positions
        for row in sorted(rows):
            self._judge(row, evaluation)

    def _changed_rows(self, before: tuple[int, int, int]) -> set[int]:
        """Update which reservations there are to the state; return the rows to judge again, all if too much has changed."""
        nodes = self._nodes
        names = self._cache.changed.since(before[2])
        changed = (nodes.changes.since(before[0]), nodes.static_changes.since(before[1]))
        if names is None or changed[0] is None or changed[1] is None:
            return self._reset()
        rows = self._relist(names)
        if len(self._members) <= FEW_ROWS:
            return rows | self._members.keys()
        for log in changed:
            assert log is not None
            rows |= self._members.keys() & set(log.tolist())
        return rows

    def _reset(self) -> set[int]:
        """Begin again; return the rows with reservations for the pods."""
        self._row_of, self._members = {}, {}
        self._ranking = Ranking(self._nodes, self._shape.requests)
        self.diagnoses, self.reasons = {}, {}
        self._short, self._by_name = {}, None
        lists = self._cache.by_owners
        for number in sorted(lists) if self._ask.ignored else self._ask.owners:
            for name, record in lists.get(number, {}).items():
                self._list(name, record)
        return set(self._members)

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
        was_matched = row in self.found or row in self.reasons
        self.diagnoses.pop(row, None)
        self.reasons.pop(row, None)
        self._short.pop(row, None)
        diagnosis = Diagnosis(taint_counts={})
        matched = self._matched(row, diagnosis)
        if diagnosis.owner_matched:
            self.diagnoses[row] = diagnosis
        self._ranking.put(row, self._judge_matched(row, matched, evaluation) if matched else None)
        if was_matched is not bool(matched):
            self._by_name = None
        if not self._members.get(row):
            self._members.pop(row, None)

    def _matched(self, row: int, found: Diagnosis | None = None) -> Matched:
        """Return the reservations of a row that match the pods; `found` gets the counts of why others do not."""
        matched = []
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
            miss = missed(
                self._ask, self._shape.requests, record.reservation, share.allocatable, self._nodes.labels[row]
            )
            if miss is None:
                matched.append((record, use))
            if found is not None:
                found.owner_matched += 1
                affinity = self._ask.wanted
                if miss is not None:
                    _note(found, *miss)
                elif affinity is not None and affinity.name:
                    found.name_matched += 1
        return matched

    def _judge_matched(self, row: int, matched: Matched, evaluation: Evaluation) -> Found | None:
        """Return how a row takes a pod, else note why it does not."""
        record, room = None, None
        if not self._ask.ignored:
            room, reasons = self._room(row, matched)
            if room is None:
                self.reasons[row] = reasons
                return None
            record = {record.uid: record for record, _ in matched}[room.uid]
        code, scores = self._judged_without(row, matched, evaluation)
        if code:
            self.reasons[row] = (evaluation.refusal_text(row, code),)
            return None
        return Found(row, scores, record, room)

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

    # -- where room comes ----------------------------------------------------------------------------------------

    def matched_rows(self) -> list[int]:
        """Return the rows with reservations that match the pods, by the names of their nodes; none for pods that ignore
        reservations."""
        if self._ask.ignored:
            return []
        if self._by_name is None:
            self._by_name = sorted({*self.found, *self.reasons}, key=self._nodes.names.__getitem__)
        return self._by_name

    def short_of(self, row: int) -> list[tuple[int, ReservationUsed]]:
        """Return for each reservation of a row that matches the pods what share of the node is short for one more in it, in
        millionths."""
        found = self._short.get(row)
        if found is None:
            matched, offered = self._matched(row), self._offered(row)
            free = {name: self._free(row, name) for name in self._shape.requests}
            pods_free = self._free(row, RESOURCE_PODS) + len(matched)
            found = self._short[row] = [
                (
                    share_short(self._shape.requests, free, pods_free, room_of(record, use), offered, self._ignored),
                    ReservationUsed(name=record.name, uid=record.uid),
                )
                for record, use in matched
            ]
        return found

    def _offered(self, row: int) -> dict[str, int]:
        nodes = self._nodes
        return {name: nodes.allocatable.item(dim, row) for name, dim in nodes.dims.items()}


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

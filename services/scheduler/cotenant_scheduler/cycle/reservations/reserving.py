"""Choosing a reservation for a pod, and why none takes it.

In: the results of the pod's shape, its demands on reservations. Out: a `SelectedNode` of a node and a reservation there; or the
reasons. A pod goes to the row with the highest sum of scores, of which that of the reservation has the weight 5000: so it goes
to a reservation that takes it, if any does; a pod with reservation affinity goes nowhere else.

Candidates are cached by shape and ask. Bound: CANDIDATES_CACHED of them; the least recently used are evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Set
from datetime import datetime

import msgspec

from cotenant.domain.reservations.diagnosis import counted, reservation_reasons
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.envelope import Event
from cotenant.events.placements import WaitingReason
from cotenant.events.reservations import ReservationOwner
from cotenant_scheduler.cycle.reservations.candidates import Candidates
from cotenant_scheduler.cycle.reservations.events import used_up_by
from cotenant_scheduler.cycle.reservations.ranking import Found
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.plugins.reservation.args import ReservationArgs
from cotenant_scheduler.plugins.reservation.fitting import NO_MATCH, Ignored, ReservationCapacity, allocated_of
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.plugins.reservation.scoring import MAX_SCORE, WEIGHT, room_score
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.reservations.cache import ReservationCache
from cotenant_scheduler.state.reservations.operating import ActingRecord
from cotenant_scheduler.state.reservations.records import ReserveRecord

CANDIDATES_CACHED = 1024
NAME = "Reservation"
WAKES_ON = ("node.*.reservation.*", "objects.scheduling%2Ekoordinator%2Esh.reservations.>")


class SelectedNode(msgspec.Struct, frozen=True, eq=False):
    """Where a pod goes, with the weighted scores by plugin and the reservation's. `record` None: no reservation."""

    row: int
    scores: list[int]
    weighted: int
    record: ReserveRecord | None
    room: ReservationCapacity | None

    @property
    def allocation(self) -> Allocation | None:
        """The reservation as the placement names it."""
        record = self.record
        return Allocation(reservation=ReservationUsed(name=record.name, uid=record.uid)) if record is not None else None


class ReservationRefusal(msgspec.Struct, frozen=True):
    """Why no reservation takes a pod: by reason, nodes; and lines about reservations. `required`: nothing else would do."""

    nodes: Mapping[str, int]
    lines: tuple[str, ...]
    required: bool


class Reserving:
    """Chooses; see the module."""

    def __init__(
        self, nodes: NodeTable, cache: ReservationCache, args: ReservationArgs, weights: Mapping[str, int]
    ) -> None:
        self._nodes = nodes
        self._cache = cache
        self._ignored = Ignored(frozenset(args.ignored_resources), frozenset(args.ignored_resource_groups))
        self._weight = weights.get(NAME, WEIGHT)
        self._candidates: OrderedDict[tuple[Shape, Ask], Candidates] = OrderedDict()

    @property
    def any(self) -> bool:
        """Whether there is any reservation that pods may use."""
        return bool(self._cache.by_owners)

    def is_over(self, record: PodRecord) -> bool:
        """Return whether a record is that of a reservation whose time is over."""
        return isinstance(record, ReserveRecord) and record.name in self._cache.over

    def choose(self, evaluation: Evaluation, ask: Ask, among: IntArray | None = None) -> SelectedNode | None:
        """Return where a pod goes because of a reservation, of some rows (row numbers) if given; None if it uses none."""
        if ask.problem or not self._cache.by_owners:
            return None
        candidates = self.candidates(evaluation, ask)

        def better(key: int) -> int:
            if ask.required:
                return -1
            row = evaluation.best() if among is None else evaluation.best_of(among)
            return row if row >= 0 and evaluation.key(row) > key else -1

        best = candidates.best(self._weight, better, among)
        if best is None:
            return None
        weighted, found = best
        return SelectedNode(found.row, found.scores, weighted, found.record, found.room)

    def apart_from(
        self, evaluation: Evaluation, ask: Ask, pending: Set[int], most: int
    ) -> tuple[bool, SelectedNode | None]:
        """Return whether a pod goes to the same reservation before and after others go to some rows (`pending`), and where it
        goes; None: it uses no reservation. `most`: what no total score of the other plugins exceeds."""
        found = self.rows(evaluation, ask)
        if not found:
            return True, None
        choice = self.choose(evaluation, ask) if pending.isdisjoint(found) else None
        return choice is not None and choice.weighted > most, choice

    def choose_on(self, evaluation: Evaluation, ask: Ask, row: int, uid: str) -> SelectedNode | None:
        """Return how a pod goes into one reservation of a row; None if that does not take it."""
        if ask.problem:
            return None
        candidates = self.candidates(evaluation, ask)
        found = candidates.takes(row, candidates.on(row), evaluation, uid)
        return self._selected(evaluation, found) if found is not None and found.room is not None else None

    def rows(self, evaluation: Evaluation, ask: Ask) -> Mapping[int, Found]:
        """Return the rows that a pod may go to because of a reservation there; valid until anything changes."""
        return {} if ask.problem or not self._cache.by_owners else self.candidates(evaluation, ask).found

    def choose_at(self, evaluation: Evaluation, ask: Ask, row: int) -> SelectedNode | None:
        """Return how a pod goes to a row because of a reservation there; None if it uses none."""
        found = self.rows(evaluation, ask).get(row)
        return self._selected(evaluation, found) if found is not None else None

    def _selected(self, evaluation: Evaluation, found: Found) -> SelectedNode:
        scored = found.room is not None and room_score(evaluation.shape.requests, found.room) > 0
        return SelectedNode(found.row, found.scores, self._weight * MAX_SCORE if scored else 0, found.record, found.room)

    def candidates(self, evaluation: Evaluation, ask: Ask) -> Candidates:
        """Return the rows with reservations for pods of a shape and ask, up to date."""
        key = (evaluation.shape, ask)
        known = self._candidates.get(key)
        if known is None:
            known = self._candidates[key] = Candidates(self._nodes, self._cache, evaluation.shape, ask, self._ignored)
            if len(self._candidates) > CANDIDATES_CACHED:
                self._candidates.popitem(last=False)
        else:
            self._candidates.move_to_end(key)
        known.refresh(evaluation)
        return known

    def used_up(self, choice: SelectedNode, record: PodRecord, shape: Shape, now: datetime) -> tuple[Event, ...]:
        """Return the events that end a reservation which its first owner uses up."""
        reserve, room = choice.record, choice.room
        if reserve is None or room is None or not room.allocate_once or isinstance(reserve, ActingRecord):
            return ()  # a pod that acts as a reservation stays
        share, facts = reserve.share(), record.facts
        assert share is not None
        assert facts is not None
        owner = ReservationOwner(namespace=facts.namespace, name=facts.name, uid=facts.uid)
        allocated = allocated_of((shape.requests,), tuple(share.allocatable))
        return used_up_by(reserve, share, owner, allocated, now)

    def refused(self, evaluation: Evaluation, ask: Ask) -> ReservationRefusal:
        """Return why no reservation takes a pod."""
        total = self._nodes.count
        if ask.problem:
            return ReservationRefusal({ask.problem: total}, (), True)
        candidates = self.candidates(evaluation, ask)
        names = self._nodes.names
        diagnoses = {names[row]: found for row, found in candidates.diagnoses.items()}
        reasons = {names[row]: found for row, found in candidates.reasons.items()}
        lines = reservation_reasons(diagnoses, reasons, required=ask.required)
        nodes = counted(text for found in reasons.values() for text in found)
        without = total - sum(1 for found in reasons.values() if found)
        if without > 0:
            nodes[NO_MATCH] = without
        return ReservationRefusal(nodes if ask.required else {}, tuple(lines), ask.required)


def reasons_of(refused: ReservationRefusal) -> tuple[list[WaitingReason], list[str]]:
    """Return the reasons and the texts of a waiting event for why no reservation takes a pod."""
    reasons = [
        WaitingReason(code="reservation", count=count, detail=text.removeprefix("node(s) "))
        for text, count in sorted(refused.nodes.items(), key=lambda entry: (-entry[1], entry[0]))
    ]
    texts = [f"{count} {text}" for text, count in sorted(refused.nodes.items(), key=lambda entry: (-entry[1], entry[0]))]
    reasons += [WaitingReason(code="reservation", count=0, detail=line) for line in refused.lines]
    return reasons, [*texts, *refused.lines]

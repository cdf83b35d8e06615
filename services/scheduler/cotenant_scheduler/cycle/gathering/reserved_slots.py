"""How many of a gang's pods nodes have room for with the reservations that the pods may use.

In: equal pods with their demands on reservations, how many of them each row takes without one. Out: the same with reservations:
the pods are assumed on a row one after the other, each as it would be placed there (in a reservation that takes it, else beside
the reservations where the pod may go there), and taken back. A pod that must use a reservation has no other room.

Cost: some 50 us a pod that fits. Bound: ROWS rows, the first ones by number, are counted so for pods of a kind; on the others a
reservation that takes a pod counts as room for one at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant_scheduler.cycle.reservations.candidates import Candidates
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.assigned_pods import AssignedPods
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.load.load_estimate import microseconds
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord

ROWS = 256


class ReservedSlots:
    """Counts; see the module."""

    def __init__(self, nodes: NodeTable, reserving: Reserving, assigned: AssignedPods) -> None:
        self._nodes = nodes
        self._reserving = reserving
        self._assigned = assigned

    def counted(
        self, evaluation: Evaluation, ask: Ask, records: Sequence[PodRecord], beside: IntArray, now: datetime
    ) -> IntArray:
        """Return by row how many of these equal pods it takes. `beside`: how many without a reservation."""
        slots = np.zeros_like(beside) if ask.required or ask.problem else beside.copy()
        rows = sorted(self._reserving.rows(evaluation, ask))
        if not rows:
            return slots
        candidates = self._reserving.candidates(evaluation, ask)
        for number, row in enumerate(rows):
            if number < ROWS:
                slots[row] = self._fill(row, evaluation, ask, candidates, records, now)
            else:
                slots[row] = max(slots.item(row), 1)
        return slots

    def _fill(
        self,
        row: int,
        evaluation: Evaluation,
        ask: Ask,
        candidates: Candidates,
        records: Sequence[PodRecord],
        now: datetime,
    ) -> int:
        """Return how many of the pods a row takes one after the other."""
        nodes, shape = self._nodes, evaluation.shape
        taken: list[PodRecord] = []
        for record in records:
            found = candidates.now_on(row, evaluation)
            if found is None and (ask.required or evaluation.judged(row)[0]):
                break
            used = found.record if found is not None else None
            allocation = Allocation(reservation=ReservationUsed(name=used.name, uid=used.uid)) if used is not None else None
            assert record.facts is not None
            nodes.assume(row, record.key, shape, self._assigned.of(record.facts, shape, microseconds(now)), allocation)
            taken.append(record)
        for record in reversed(taken):
            nodes.retract(row, record.key)
        return len(taken)

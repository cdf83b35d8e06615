"""Preemption inside reservations: a pod that its reservations have no room for makes users of a lower priority leave them.

In: a pod with the reservations that match it, the results of its shape. Out: a `PreemptionCandidate` as of `cycle.preemption`,
with the reservation that takes the pod, or none. The rules of preemption hold, with these differences:

    nodes      those on which reservations match the pod, and none of them takes it
    leaving    users of these reservations, and pods of the node that use none; never users of others
    room       a user's requests return to its reservation, the others' to the node; one of the reservations must take the pod
               then, with what the node has beside it where its policy allows that (`plugins.reservation.fitting`); every other
               filter must accept it. The load of those who leave stays: it is measured
Source: Koordinator's reservation plugin, `enablePreemption`; its dry runs count victims as `preemptible` and
`preemptibleInside`.

Cost: some 30 us a pod that may leave, on each such node. Bound: ROWS nodes, the first by name.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from cotenant.events.allocations import ReservationUsed
from cotenant_scheduler.cycle.preemption import Preemption, PreemptionCandidate
from cotenant_scheduler.cycle.reservations.candidates import Candidates
from cotenant_scheduler.cycle.reservations.matched import Matched
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.cycle.what_if import RowPod
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reservations.records import ReserveRecord

ROWS = 100
"""Nodes that are tried."""


class ReservationPreemption:
    """Chooses a node and its victims. A function of the state."""

    def __init__(self, nodes: NodeTable, reserving: Reserving, preemption: Preemption) -> None:
        self._nodes = nodes
        self._reserving = reserving
        self._preemption = preemption

    def choose(self, evaluation: Evaluation, ask: Ask, rows: IntArray | None = None) -> PreemptionCandidate | None:
        """Return the best node, of some rows if given, for a pod with these demands on reservations; None if preemption inside
        them helps on none."""
        if ask.problem or not ask.owners:
            return None
        names = self._nodes.names
        candidates = self._reserving.candidates(evaluation, ask)
        crowded = candidates.crowded()
        among = crowded.keys() if rows is None else crowded.keys() & set(rows.tolist())
        matched = {row: crowded[row] for row in islice(sorted(among, key=names.__getitem__), ROWS)}
        inside = {row: {record.uid for record, _ in there} for row, there in matched.items()}

        trials: dict[int, _Trial] = {}

        def trial(row: int) -> _Trial:
            trials[row] = _Trial(self._nodes, row, candidates, matched[row], evaluation)
            return trials[row]

        choice = self._preemption.best_without(evaluation.shape.priority, inside, trial)
        if choice is None:
            return None
        record = trials[self._nodes.rows[choice.node]].record
        assert record is not None
        return msgspec.structs.replace(choice, reservation=ReservationUsed(name=record.name, uid=record.uid))


class _Trial:
    """A row without some of its pods: does one of its reservations take the pod? `close` restores everything exactly."""

    def __init__(
        self,
        nodes: NodeTable,
        row: int,
        candidates: Candidates,
        matched: Matched,
        evaluation: Evaluation,
    ) -> None:
        self._nodes = nodes
        self._row = row
        self._candidates = candidates
        self._matched = matched
        self._evaluation = evaluation
        self._versions = [(counter, counter.version) for counter in nodes.counters]
        self._gone: dict[PodKey, RowPod] = {}
        self.record: ReserveRecord | None = None
        """The reservation that took the pod when it fitted last: those that were gone then are those that leave in the end."""

    def take(self, pod: RowPod) -> None:
        """Take a pod away."""
        self._gone[pod.key] = pod
        self._nodes.set_aside(self._row, pod.key, pod.counted, -1)

    def put_back(self, pod: RowPod) -> None:
        """Put back a pod that was taken away."""
        del self._gone[pod.key]
        self._nodes.set_aside(self._row, pod.key, pod.counted, 1)

    def fits(self) -> bool:
        """Return whether a reservation takes the pod now."""
        found = self._candidates.takes(self._row, self._matched, self._evaluation)
        if found is None:
            return False
        self.record = found.record
        return True

    def close(self) -> None:
        """Put all pods back."""
        for pod in list(self._gone.values()):
            self.put_back(pod)
        for counter, version in self._versions:
            counter.version = version

"""The pods on each row, and the columns with what they add up to.

In: pods assumed on rows and retracted. Out: requests, load, priorities and what plugins count (`counting`), always as if
exactly the pods there had been counted, in any order. Pods without counters that the nodes' reports do not include are
summed, and counted many at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from cotenant.events.allocations import Allocation
from cotenant.model.values import Value
from cotenant_scheduler.state.columns import Cells, Changes, IntArray
from cotenant_scheduler.state.counting import CountedPod, PodCounter, PodKey
from cotenant_scheduler.state.held_rooms import HeldRooms
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.load.load_estimate import AssignedPod
from cotenant_scheduler.state.node_columns import SHAPES_CACHED, NodeColumns
from cotenant_scheduler.state.reading.shapes import Shape


class Adds(Value, frozen=True, eq=False):
    """What a pod of a shape adds to its row: columns, and the amount for each."""

    reported: tuple[tuple[Cells, int], ...]
    """If the node's report includes the pod."""
    unreported: tuple[tuple[Cells, int], ...]
    """If it does not: the estimated load as well."""


class CountedRows(NodeColumns):
    """Rows with pods on them."""

    def __init__(self, args: LoadAwareArgs, counters: Sequence[PodCounter]) -> None:
        super().__init__(args, counters)
        self.names: list[str] = []
        """Of the nodes, by row."""
        self.pods: list[dict[PodKey, CountedPod]] = []
        self.priorities: dict[int, int] = {}
        """How many pods of each priority are counted on all rows."""
        self.changes = Changes()
        """Rows that changed in what placements and reports change."""
        self.held = HeldRooms()
        """What reservations hold."""
        self._last_pod: CountedPod | None = None
        """Intermediate results that pods counted one after the other share."""
        self._adds: dict[Shape, Adds] = {}
        """Invalid whenever the columns move."""
        self._uncounted: dict[Shape, list[int]] = {}
        """Rows of pods that are in `pods` but not yet in the columns, by shape."""
        self._stale: set[int] = set()
        """Rows whose load is to be computed again."""

    def _put(self, row: int, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None) -> CountedPod:
        pods = self.pods[row]
        if key in pods:
            raise ValueError(f"pod {key[0]}/{key[1]} is counted on node {self.names[row]} already")
        last = self._last_pod
        if last is None or last.shape is not shape or last.assigned is not assigned or last.allocation is not allocation:
            last = self._last_pod = CountedPod(shape, assigned, allocation)
        pods[key] = last
        return last

    def assume(
        self, row: int, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None = None
    ) -> None:
        """Count a pod on a row; `retract` undoes it exactly."""
        pod = self._put(row, key, shape, assigned, allocation)
        self._count(row, key, shape, 1)
        if allocation is not None and allocation.reservation is not None:
            self.held.count(row, key, pod, 1, self.dims, self.requested, self.nonzero)
        for counter in self.counters_of(shape):
            counter.count(row, key, pod)

    def assume_later(
        self, row: int, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None
    ) -> None:
        """Count a pod on a row no later than the next `settle`: many at once, if possible."""
        reserved = allocation is not None and allocation.reservation is not None
        if reserved or self.counters_of(shape) or self.load.reports(row, key):
            self.assume(row, key, shape, assigned, allocation)
            return
        self._put(row, key, shape, assigned, allocation)
        self._uncounted.setdefault(shape, []).append(row)

    def settle(self) -> None:
        """Update the columns with what was folded since; call it before they are read."""
        self._count_all()
        if self._stale:
            for row in self._stale:
                self._recompute_load(row)
            self._stale.clear()

    def _count_all(self) -> None:
        if not self._uncounted:
            return
        for shape, rows in self._uncounted.items():
            self._count_series(rows, shape, 1)
        self._uncounted.clear()

    def retract(self, row: int, key: PodKey) -> None:
        """Stop counting a pod on a row; the row stays."""
        pod = self.pods[row].pop(key)
        self._count(row, key, pod.shape, -1)
        if pod.allocation is not None and pod.allocation.reservation is not None:
            self.held.count(row, key, pod, -1, self.dims, self.requested, self.nonzero)
        for counter in self.counters_of(pod.shape):
            counter.uncount(row, key, pod)

    def assume_series(self, rows: list[int], keys: list[PodKey], shape: Shape, assigned: AssignedPod) -> None:
        """`assume` equal pods, one on each of the rows; the nodes' reports do not include them."""
        for row, key in zip(rows, keys, strict=True):
            self._put(row, key, shape, assigned, None)
        self._count_series(rows, shape, 1)

    def _count_series(self, rows: list[int], shape: Shape, sign: int) -> None:
        self._count_priority(shape.priority, len(rows) * sign)
        counts = np.bincount(rows)
        touched: IntArray = np.flatnonzero(counts)
        times: IntArray = counts[touched] * sign
        self._add_many(touched, shape, times)
        self.changes.extend(touched)

    def retract_all(self, assumed: list[tuple[int, PodKey, Shape]]) -> None:
        """Undo many `assume` at once: sums per shape over arrays if the node's report does not include the pod. Those come
        first: the load of a row whose report includes one is computed from the pods that are left."""
        by_shape: dict[Shape, list[int]] = {}
        singly: list[tuple[int, PodKey]] = []
        for row, key, shape in reversed(assumed):
            given = self.pods[row][key].allocation
            reserved = given is not None and given.reservation is not None
            if reserved or self.counters_of(shape) or self.load.reports(row, key):
                singly.append((row, key))
            else:
                del self.pods[row][key]
                by_shape.setdefault(shape, []).append(row)
        for shape, rows in by_shape.items():
            self._count_series(rows, shape, -1)
        for row, key in singly:
            self.retract(row, key)

    def _count(self, row: int, key: PodKey, shape: Shape, sign: int) -> None:
        self._count_priority(shape.priority, sign)
        adds = self._adds.get(shape) or self._adds_of(shape)
        reported = self.load.reports(row, key)
        for cells, amount in adds.reported if reported else adds.unreported:
            cells[row] += sign * amount
        if reported:
            self._recompute_load(row)
        self.changes.add(row)

    def _adds_of(self, shape: Shape) -> Adds:
        dims = zip(self.dims_of(shape), shape.needs, strict=True)
        reported = (
            (self.nonzero[0].data, shape.nonzero_cpu),
            (self.nonzero[1].data, shape.nonzero_memory),
            *((self.requested[dim].data, amount) for dim, (_, amount) in dims if dim >= 0),
        )
        if len(self._adds) >= SHAPES_CACHED:
            self._adds.clear()
        adds = self._adds[shape] = Adds(reported, (*reported, *self.load.adds_of(shape.estimate, shape.prod)))
        return adds

    def _columns_moved(self) -> None:
        super()._columns_moved()
        self._adds = {}

    def _count_priority(self, priority: int, change: int) -> None:
        left = self.priorities.get(priority, 0) + change
        if left:
            self.priorities[priority] = left
        else:
            del self.priorities[priority]

    def add_requests(self, row: int, shape: Shape, sign: int) -> None:
        """Add what a pod of a shape requests to a row's columns (1), or take it away (-1), but for its load. Nothing is noted
        as changed: the caller restores it."""
        for cells, amount in (self._adds.get(shape) or self._adds_of(shape)).reported:
            cells[row] += sign * amount

    def set_aside(self, row: int, key: PodKey, pod: CountedPod, sign: int) -> None:
        """Take a pod off a row for a moment (-1), or put it back (1): its requests, what it uses of a reservation, what
        counters hold; its load stays, which is measured. Nothing is noted as changed: the caller restores everything."""
        self.add_requests(row, pod.shape, sign)
        used = pod.allocation.reservation if pod.allocation is not None else None
        if used is not None:
            unreported = used.name in self.held.unreported
            self.held.count(row, key, pod, sign, self.dims, self.requested, self.nonzero)
            if not unreported:
                self.held.unreported.pop(used.name, None)
        for counter in self.counters_of(pod.shape):
            (counter.count if sign > 0 else counter.uncount)(row, key, pod)

    def load_without(self, row: int, keys: Collection[PodKey]) -> None:
        """Compute the load of a row as if these pods were not there; of none: as it is. Nothing is noted as changed: the caller
        restores it."""
        self._count_all()
        assigned = ((key, pod.assigned) for key, pod in self.pods[row].items() if key not in keys)
        self.load.recompute(row, assigned, keys)

    def _recompute_load(self, row: int) -> None:
        if self._uncounted:
            # Counting those comes first: it adds to what is computed here from all pods.
            self._stale.add(row)
            return
        self.load.recompute(row, ((key, pod.assigned) for key, pod in self.pods[row].items()))


"""The node table: every node's state in numpy columns, one row a node, kept current by `apply`.

In: what is known of a node (allocatable, labels, taints, report) and the pods placed on it. Out: columns over the rows
in use (`node_columns`), and the rows that changed. `names`, `labels`, `taints` and `pods` are lists beside the columns for
what is no number.

`static_changes` are changes of labels, taints and the like, which placements never make; `changes` are all others.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from cotenant.api.objects.node import Taint
from cotenant.events.allocations import Allocation
from cotenant.model.names import CPU, MEMORY, PODS
from cotenant_scheduler.state.columns import Cells, Changes, IntArray, doubled, grown
from cotenant_scheduler.state.counting import CountedPod, Counter, PodKey
from cotenant_scheduler.state.load_aware_args import LoadAwareArgs, Thresholds
from cotenant_scheduler.state.load_estimate import AssignedPod, NodeReport
from cotenant_scheduler.state.node_columns import SHAPES_CACHED, NodeColumns
from cotenant_scheduler.state.shapes import Shape

TIE_BITS = 21
"""Room for two million nodes in the tie-break of equal scores."""


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is declared, overlaid with what its executor and the resource calculator say."""

    name: str
    allocatable: dict[str, int]
    capacity_for_load: dict[str, int]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    thresholds: Thresholds
    images: dict[str, int] = {}
    """Size in bytes by name."""


class Adds(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What a pod of a shape adds to its row: columns, and how much to each."""

    reported: tuple[tuple[Cells, int], ...]
    """Where the node's report knows the pod."""
    unreported: tuple[tuple[Cells, int], ...]
    """Where it does not: also what the pod is taken to use."""


class NodeTable(NodeColumns):
    """Rows of nodes. A row exists from when its node is declared, or has pods, until neither is true."""

    def __init__(self, args: LoadAwareArgs, counters: Sequence[Counter] = ()) -> None:
        super().__init__(args, counters)
        self.rows: dict[str, int] = {}
        self.names: list[str] = []
        self.labels: list[dict[str, str]] = []
        self.taints: list[tuple[Taint, ...]] = []
        self.pods: list[dict[PodKey, CountedPod]] = []
        self.tainted: set[int] = set()
        self.count = 0
        """Declared nodes."""
        self.declared = np.zeros_like(self.block[0])
        self.unschedulable = self.declared.copy()
        self.tie = self.declared.copy()
        """What breaks a tie: the node whose name comes first in the alphabet has the largest."""
        self.lacking: set[int] = set()
        """Declared rows that offer no cpu or no memory."""
        self.images: dict[str, dict[int, int]] = {}
        """By image, the rows that have it, with its size there."""
        self.priorities: dict[int, int] = {}
        """How many pods of each priority are counted on all rows."""
        self.changes = Changes()
        self.static_changes = Changes()
        self.version = 0
        """Grows when row numbers, dimensions or tie-breaks change: results kept per row are then void."""
        self._images: dict[int, dict[str, int]] = {}
        self._free: list[int] = []
        self._last_pod: CountedPod | None = None
        """What pods that are counted after each other share."""
        self._adds: dict[Shape, Adds] = {}
        """Void whenever the columns move."""
        self._uncounted: dict[Shape, list[int]] = {}
        """Rows of pods that `pods` has and the columns have not, by shape."""
        self._stale: set[int] = set()
        """Rows whose load is to be computed again."""
        self._ranked = True
        for name in (CPU, MEMORY, PODS):
            self._dimension(name)

    @property
    def state(self) -> tuple[int, ...]:
        """Versions of everything that is read of the table: equal ones mean that nothing of it changed between."""
        counted = (counter.version for counter in self.counters)
        return self.version, self.changes.position, self.static_changes.position, *counted

    @property
    def all_offer(self) -> bool:
        """Every declared node offers cpu and memory. (What rows without a node are worth does not matter.)"""
        return not self.lacking

    def is_declared(self, name: str) -> bool:
        """Tell whether a node was declared; a row alone may only stand for pods."""
        row = self.rows.get(name)
        return row is not None and bool(self.declared[row])

    def declare(self, node: NodeDescription) -> None:
        """Take over what is declared of a node."""
        row = self._row(node.name)
        new = not self.declared[row]
        self._set_images(row, node.images, others=new)
        if new:
            self.declared[row] = 1
            self.count += 1
        for name in node.allocatable:
            if name not in self.dims:
                self._dimension(name)
        for name, dim in self.dims.items():
            self.allocatable[dim, row] = node.allocatable.get(name, 0)
        self.divisor[:, row] = np.maximum(self.allocatable[:2, row], 1)
        (self.lacking.discard if self.allocatable[:2, row].all() else self.lacking.add)(row)
        if (
            new
            or self.labels[row] != node.labels
            or self.taints[row] != node.taints
            or bool(self.unschedulable[row]) != node.unschedulable
        ):
            self.labels[row] = node.labels
            self.taints[row] = node.taints
            (self.tainted.add if node.taints else self.tainted.discard)(row)
            self.unschedulable[row] = 1 if node.unschedulable else 0
            self.static_changes.add(row)
        self.load.set_node(row, node.thresholds, node.capacity_for_load)
        self._stale.add(row)
        self.changes.add(row)

    def withdraw(self, name: str) -> None:
        """Forget what was declared of a node; its pods stay."""
        row = self.rows.get(name)
        if row is None or not self.declared[row]:
            return
        self._set_images(row, {}, others=True)
        self.declared[row] = 0
        self.count -= 1
        self.allocatable[:, row] = 0
        self.divisor[:, row] = 1
        self.lacking.discard(row)
        self.labels[row], self.taints[row] = {}, ()
        self.tainted.discard(row)
        self.static_changes.add(row)
        self.changes.add(row)
        self._release(name, row)

    def _set_images(self, row: int, images: dict[str, int], *, others: bool) -> None:
        """Take over which images a row has. Results of all rows are void: they count on how many nodes an image is, and
        on how many it is not (`others`: a node comes or goes)."""
        before = self._images.get(row, {})
        if before != images:
            for image in before:
                del self.images[image][row]
                if not self.images[image]:
                    del self.images[image]
            for image, size in images.items():
                self.images.setdefault(image, {})[row] = size
            self._images[row] = images
            self.version += 1
        elif others and self.images:
            self.version += 1

    def report(self, name: str, report: NodeReport | None, unknown: bool = False) -> None:
        """Take over a node's report; a node that is not there is passed over (the report is taken over when it is declared)."""
        row = self.rows.get(name)
        if row is not None:
            self.load.set_report(row, report, unknown)
            self._stale.add(row)
            self.changes.add(row)

    def place_later(
        self, name: str, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None = None
    ) -> None:
        """Count a pod on a node (which may be unknown so far) by the time that columns are read: many at once, if they can."""
        row = self._row(name)
        if self.counters_of(shape) or self.load.reports(row, key):
            self.assume(row, key, shape, assigned, allocation)
            return
        self._put(row, key, shape, assigned, allocation)
        self._uncounted.setdefault(shape, []).append(row)

    def _put(self, row: int, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None) -> CountedPod:
        pods = self.pods[row]
        if key in pods:
            raise ValueError(f"pod {key[0]}/{key[1]} is counted on node {self.names[row]} already")
        last = self._last_pod
        if last is None or last.shape is not shape or last.assigned is not assigned or last.allocation is not allocation:
            last = self._last_pod = CountedPod(shape, assigned, allocation)
        pods[key] = last
        return last

    def settle(self) -> None:
        """Bring the columns up to date with what was folded since: before they are read."""
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

    def place(
        self, name: str, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None = None
    ) -> None:
        """Count a pod on a node (which may be unknown so far)."""
        self.assume(self._row(name), key, shape, assigned, allocation)

    def assume(
        self, row: int, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None = None
    ) -> None:
        """Count a pod on a row; `retract` undoes it exactly."""
        pod = self._put(row, key, shape, assigned, allocation)
        self._count(row, key, shape, 1)
        for counter in self.counters_of(shape):
            counter.count(row, key, pod)

    def remove(self, name: str, key: PodKey) -> None:
        """Count a pod no longer on a node."""
        row = self.rows[name]
        self.retract(row, key)
        self._release(name, row)

    def retract(self, row: int, key: PodKey) -> None:
        """Count a pod no longer on a row; the row stays."""
        pod = self.pods[row].pop(key)
        self._count(row, key, pod.shape, -1)
        for counter in self.counters_of(pod.shape):
            counter.uncount(row, key, pod)

    def assume_series(self, rows: list[int], keys: list[PodKey], shape: Shape, assigned: AssignedPod) -> None:
        """`assume` equal pods, one on each of the rows; their nodes' reports do not know them."""
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
        """Undo many `assume` at once: sums per shape over arrays where the node's report does not know the pod."""
        by_shape: dict[Shape, list[int]] = {}
        for row, key, shape in reversed(assumed):
            if self.counters_of(shape) or self.load.reports(row, key):
                self.retract(row, key)
            else:
                del self.pods[row][key]
                by_shape.setdefault(shape, []).append(row)
        for shape, rows in by_shape.items():
            self._count_series(rows, shape, -1)

    def expire(self, now_us: int) -> None:
        """Bring the age of the reports up to a moment."""
        changed = self.load.expire(now_us, self.size)
        if changed is not None:
            self.changes.extend(changed)

    def rank(self) -> None:
        """Bring the tie-breaks up to date with the names."""
        if self._ranked:
            return
        self._ranked = True
        self.version += 1
        last = (1 << TIE_BITS) - 1
        for place, name in enumerate(sorted(self.rows)):
            self.tie[self.rows[name]] = last - place

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

    def _recompute_load(self, row: int) -> None:
        if self._uncounted:
            # Counting those comes first: it adds to what is computed here from all pods.
            self._stale.add(row)
            return
        self.load.recompute(row, ((key, pod.assigned) for key, pod in self.pods[row].items()))

    def _row(self, name: str) -> int:
        row = self.rows.get(name)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
        else:
            row = self.size
            self.size += 1
            self.names.append("")
            self.labels.append({})
            self.taints.append(())
            self.pods.append({})
            if self.size > self.declared.shape[0]:
                self._grow(doubled(self.declared.shape[0], self.size))
        self.names[row] = name
        self.rows[name] = row
        self._ranked = False
        return row

    def _release(self, name: str, row: int) -> None:
        if self.declared[row] or self.pods[row]:
            return
        self._count_all()
        self._stale.discard(row)
        del self.rows[name]
        self.names[row] = ""
        self.load.clear(row)
        self._free.append(row)
        self._ranked = False

    def _grow(self, capacity: int) -> None:
        self.version += 1
        before = self.tie.shape[0]
        for column in ("declared", "unschedulable", "tie"):
            setattr(self, column, grown(getattr(self, column), capacity))
        self._grow_columns(before, capacity)

    def _dimension(self, name: str) -> None:
        self._count_all()
        dim = self._add_dimension(name)
        self.version += 1
        # Pods that asked for the resource before any node offered it count from now on.
        for row in self.rows.values():
            for pod in self.pods[row].values():
                self.requested[dim, row] += pod.shape.requests.get(name, 0)


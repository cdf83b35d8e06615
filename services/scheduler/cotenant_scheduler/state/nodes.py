"""The node table: every node's state in numpy columns, one row a node, kept current by `apply`.

In: what is known of a node (allocatable, labels, taints, report) and the pods placed on it. Out: columns over the rows in use
(`node_columns`), the pods on each row (`counted_rows`), and the rows that changed. `names`, `labels`, `taints` and `pods` are
lists beside the columns for what is no number.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from cotenant.api.objects.node import Taint
from cotenant.events.allocations import Allocation
from cotenant.model.names import CPU, MEMORY, RESOURCE_PODS
from cotenant_scheduler.state.columns import Changes, doubled, grown
from cotenant_scheduler.state.counted_rows import CountedRows
from cotenant_scheduler.state.counting import PodCounter, PodKey
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs, Thresholds
from cotenant_scheduler.state.load.load_estimate import AssignedPod, NodeReport
from cotenant_scheduler.state.reading.shapes import Shape

TIE_BITS = 21
"""Leaves room for two million nodes in the tie-break of equal scores."""


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A node as it is declared, overlaid with what its executor and the resource calculator publish."""

    name: str
    allocatable: dict[str, int]
    capacity_for_load: dict[str, int]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    thresholds: Thresholds
    images: dict[str, int] = {}
    """Size in bytes by name."""


class NodeTable(CountedRows):
    """Rows of nodes. A row exists while its node is declared or has pods."""

    def __init__(self, args: LoadAwareArgs, counters: Sequence[PodCounter] = ()) -> None:
        super().__init__(args, counters)
        self.rows: dict[str, int] = {}
        self.labels: list[dict[str, str]] = []
        self.taints: list[tuple[Taint, ...]] = []
        self.tainted: set[int] = set()
        self.count = 0
        """Declared nodes."""
        self.declared = np.zeros_like(self.block[0])
        self.unschedulable = self.declared.copy()
        self.tie = self.declared.copy()
        """The tie-break: the node whose name comes first in the alphabet has the largest."""
        self.lacking: set[int] = set()
        """Declared rows that offer no cpu or no memory."""
        self.images: dict[str, dict[int, int]] = {}
        """By image, the rows that have it, with its size there."""
        self.static_changes = Changes()
        """Rows that changed in what placements and reports never change."""
        self.version = 0
        """Incremented when row numbers, dimensions or tie-breaks change: results cached per row are invalid then."""
        self._images: dict[int, dict[str, int]] = {}
        self._free: list[int] = []
        self._ranked = True
        for name in (CPU, MEMORY, RESOURCE_PODS):
            self._dimension(name)

    @property
    def state(self) -> tuple[int, ...]:
        """Versions of everything in the table: if they are equal, nothing changed in between."""
        counted = (counter.version for counter in self.counters)
        return self.version, self.changes.position, self.static_changes.position, *counted

    @property
    def all_offer(self) -> bool:
        """Whether every declared node offers cpu and memory. (The scores of rows without a node do not matter.)"""
        return not self.lacking

    def is_declared(self, name: str) -> bool:
        """Return whether a node is declared; a row may exist for its pods alone."""
        row = self.rows.get(name)
        return row is not None and bool(self.declared[row])

    def declare(self, node: NodeDescription) -> None:
        """Take over the declaration of a node."""
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
        """Withdraw the declaration of a node; its pods stay."""
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
        """Set the images of a row. Invalidates the results of all rows: they depend on how many nodes have an image, and on how
        many do not (`others`: a node was added or removed)."""
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
        """Take over a node's report; ignored if the node is not there (the report is taken over when it is declared)."""
        row = self.rows.get(name)
        if row is not None:
            self.load.set_report(row, report, unknown)
            self._stale.add(row)
            self.changes.add(row)

    def place_later(
        self, name: str, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None = None
    ) -> None:
        """Count a pod on a node (which may be unknown so far) no later than the columns are read: many at once, if possible."""
        self.assume_later(self._row(name), key, shape, assigned, allocation)

    def place(
        self, name: str, key: PodKey, shape: Shape, assigned: AssignedPod, allocation: Allocation | None = None
    ) -> None:
        """Count a pod on a node (which may be unknown so far)."""
        self.assume(self._row(name), key, shape, assigned, allocation)

    def remove(self, name: str, key: PodKey) -> None:
        """Stop counting a pod on a node."""
        row = self.rows[name]
        self.retract(row, key)
        self._release(name, row)

    def expire(self, now_us: int) -> None:
        """Update the age of the reports to a time."""
        changed = self.load.expire(now_us, self.size)
        if changed is not None:
            self.changes.extend(changed)

    def rank(self) -> None:
        """Update the tie-breaks to the names."""
        if self._ranked:
            return
        self._ranked = True
        self.version += 1
        last = (1 << TIE_BITS) - 1
        for place, name in enumerate(sorted(self.rows)):
            self.tie[self.rows[name]] = last - place

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
        # Pods that requested the resource before any node offered it count from now on.
        for row in self.rows.values():
            for pod in self.pods[row].values():
                self.requested[dim, row] += pod.shape.requests.get(name, 0)
        for row, amount in self.held.covered_of(name).items():
            self.requested[dim, row] -= amount


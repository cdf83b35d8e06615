"""The node table: every node's state in numpy columns, one row a node, kept current by `apply`.

In: what is known of a node (allocatable, labels, taints, report) and the pods placed on it. Out: columns over the rows
in use, and the rows that changed. A resource is a dimension: every name that a node offers gets one, and is 0 where a
node does not offer it. `names`, `labels`, `taints` and `pods` are lists beside the columns for what is no number.

`static_changes` are changes of labels, taints and the like, which placements never make; `changes` are all others.
"""

from __future__ import annotations

from copy import copy, deepcopy

import msgspec
import numpy as np

from cotenant.api.objects.node import Taint
from cotenant.model.names import CPU, MEMORY, PODS
from cotenant_scheduler.state.columns import FIRST_CAPACITY, Changes, IntArray, Rows, doubled, grown
from cotenant_scheduler.state.load_aware_args import LoadAwareArgs, Thresholds
from cotenant_scheduler.state.load_columns import LoadColumns
from cotenant_scheduler.state.load_estimate import AssignedPod, NodeReport
from cotenant_scheduler.state.pod_needs import HostPort
from cotenant_scheduler.state.relation_counts import RelationCounts
from cotenant_scheduler.state.shapes import Adds, Asked, Shape

PodKey = tuple[str, str]
"""Namespace and name."""

TIE_BITS = 21
"""Room for two million nodes in the tie-break of equal scores."""


def held_key(key: PodKey) -> PodKey:
    """The key under which a pod that is only nominated to a node is counted there."""
    return ("", f"{key[0]}/{key[1]}")


def is_held(key: PodKey) -> bool:
    """Tell whether a key is that of a pod that is only nominated; no namespace is empty."""
    return not key[0]


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


DIMENSIONS = 8
"""Resources that there is room for at first; for more the room is doubled."""

NOT_ASKED = -(1 << 62)
"""Less than is left of any resource on any node."""

_FIRST_DIMENSION = 4
"""The lanes before are those of `nonzero` and `divisor`."""

_LAID = frozenset({"allocatable", "requested", "nonzero", "divisor"})
"""What is a view of the block."""


class NodeTable:
    """Rows of nodes. A row exists from when its node is declared, or has pods, until neither is true. Columns that
    placements change, and what they are compared with, are views of one block, so that rows are taken out at once."""

    allocatable: IntArray
    requested: IntArray
    nonzero: IntArray
    """cpu and memory requested, with a small amount for containers that ask for none."""
    divisor: IntArray
    """cpu and memory allocatable, at least 1."""

    def __init__(self, args: LoadAwareArgs) -> None:
        self.rows: dict[str, int] = {}
        self.size = 0
        """Rows in use are below this number."""
        self.names: list[str] = []
        self.labels: list[dict[str, str]] = []
        self.taints: list[tuple[Taint, ...]] = []
        self.pods: list[dict[PodKey, tuple[Shape, AssignedPod]]] = []
        self.ports: list[dict[HostPort, int]] = []
        self.tainted: set[int] = set()
        self.with_ports: set[int] = set()
        self.dims: dict[str, int] = {}
        self.dims_version = object()
        """Another one whenever a dimension is new or the columns move; no two tables that are counted on have the same."""
        self.count = 0
        """Declared nodes."""
        self.declared = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.unschedulable = self.declared.copy()
        self.tie = self.declared.copy()
        """What breaks a tie: the node whose name comes first in the alphabet has the largest."""
        self._lay(np.zeros((_FIRST_DIMENSION + 2 * DIMENSIONS, FIRST_CAPACITY), dtype=np.int64))
        self.divisor[:] = 1
        self.lacking: set[int] = set()
        """Declared rows that offer no cpu or no memory."""
        self.load = LoadColumns(args)
        self.images: dict[str, dict[int, int]] = {}
        """By image, the rows that have it, with its size there."""
        self.relations = RelationCounts()
        self.held_relations = RelationCounts()
        """The relations of pods that are nominated only: they keep others away, but attract none."""
        self.priorities: dict[int, int] = {}
        """How many pods of each priority are counted on all rows."""
        self.changes = Changes()
        self.static_changes = Changes()
        self.version = 0
        """Grows when row numbers, dimensions or tie-breaks change: results kept per row are then void."""
        self._images: dict[int, dict[str, int]] = {}
        self._free: list[int] = []
        self._entry: tuple[Shape, AssignedPod] | None = None
        """What pods that are counted after each other share."""
        self._uncounted: dict[Shape, list[int]] = {}
        """Rows of pods that `pods` has and the columns have not, by shape."""
        self._stale: set[int] = set()
        """Rows whose load is to be computed anew."""
        self._ranked = True
        for name in (CPU, MEMORY, PODS):
            self._dimension(name)

    @property
    def all_rows(self) -> Rows:
        """Every row in use."""
        return slice(0, self.size)

    @property
    def state(self) -> tuple[int, ...]:
        """Versions of everything that is read of the table: equal ones mean that nothing of it changed between."""
        relations = self.relations.version, self.held_relations.version
        return self.version, self.changes.position, self.static_changes.position, *relations

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
        """Take over a node's report; a node that is not there is passed over (it is told again when it is declared)."""
        row = self.rows.get(name)
        if row is not None:
            self.load.set_report(row, report, unknown)
            self._stale.add(row)
            self.changes.add(row)

    def place_later(self, name: str, key: PodKey, shape: Shape, assigned: AssignedPod) -> None:
        """Count a pod on a node (which may be unknown so far) by the time that columns are read: many at once, if they can."""
        row = self._row(name)
        if shape.host_ports or shape.relational or self.load.reports(row, key):
            self.assume(row, key, shape, assigned)
            return
        pods = self.pods[row]
        if key in pods:
            raise ValueError(f"pod {key[0]}/{key[1]} is counted on node {self.names[row]} already")
        if self._entry is None or self._entry[0] is not shape or self._entry[1] is not assigned:
            self._entry = (shape, assigned)
        pods[key] = self._entry
        self._uncounted.setdefault(shape, []).append(row)

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

    def place(self, name: str, key: PodKey, shape: Shape, assigned: AssignedPod) -> None:
        """Count a pod on a node (which may be unknown so far)."""
        self.assume(self._row(name), key, shape, assigned)

    def assume(self, row: int, key: PodKey, shape: Shape, assigned: AssignedPod) -> None:
        """Count a pod on a row; `retract` undoes it exactly."""
        pods = self.pods[row]
        if key in pods:
            raise ValueError(f"pod {key[0]}/{key[1]} is counted on node {self.names[row]} already")
        pods[key] = (shape, assigned)
        self._count(row, key, shape, 1)

    def remove(self, name: str, key: PodKey) -> None:
        """Count a pod no longer on a node."""
        row = self.rows[name]
        self.retract(row, key)
        self._release(name, row)

    def retract(self, row: int, key: PodKey) -> None:
        """Count a pod no longer on a row; the row stays."""
        shape, _ = self.pods[row].pop(key)
        self._count(row, key, shape, -1)

    def with_more(self, rows: IntArray, shape: Shape, first: int, depth: int) -> NodeTable:
        """Return a table of what-if rows: each of `rows` `depth` times, with `first`, `first` + 1, ... pods of the shape
        more.

        For plugins that placements change, and shapes without host ports or relations, on nodes whose reports do not know
        the pods.
        """
        taken = np.repeat(rows, depth)
        more = np.tile(np.arange(first, first + depth, dtype=np.int64), rows.shape[0])
        table = copy(self)
        table.size = taken.shape[0]
        table._lay(self.block.take(taken, axis=1))
        for dim, (_, amount) in zip(self.dims_of(shape), shape.needs, strict=True):
            if dim >= 0:
                table.requested[dim] += amount * more
        table.nonzero[0] += shape.nonzero_cpu * more
        table.nonzero[1] += shape.nonzero_memory * more
        table.with_ports = set()
        table.load = self.load.with_more(taken, shape.estimate, shape.prod, more)
        return table

    def beside(self, size: int) -> NodeTable:
        """Return a table with room for so many entries in place of the rows, which are to be copied there. For plugins that
        placements change, and shapes without host ports or relations; good until the version changes."""
        table = copy(self)
        table.size = size
        table._lay(np.zeros((self.block.shape[0], size), dtype=np.int64))
        table.load = self.load.of(np.zeros((self.load.block.shape[0], size), dtype=np.int64))
        return table

    def __deepcopy__(self, memo: dict[int, object]) -> NodeTable:
        """A copy's columns are views of the copy's block."""
        copied = copy(self)
        memo[id(self)] = copied
        for name, value in vars(self).items():
            if name not in _LAID:
                setattr(copied, name, deepcopy(value, memo))
        copied._lay(copied.block)
        return copied

    def _lay(self, block: IntArray) -> None:
        """Take a block's lanes as columns."""
        self.block = block
        self.nonzero, self.divisor = block[:2], block[2:_FIRST_DIMENSION]
        self.allocatable, self.requested = np.split(block[_FIRST_DIMENSION:], 2)

    def assume_series(self, rows: list[int], keys: list[PodKey], shape: Shape, assigned: AssignedPod) -> None:
        """`assume` equal pods, one on each of the rows; their nodes' reports do not know them."""
        entry = (shape, assigned)
        pods = self.pods
        for row, key in zip(rows, keys, strict=True):
            if key in pods[row]:
                raise ValueError(f"pod {key[0]}/{key[1]} is counted on node {self.names[row]} already")
            pods[row][key] = entry
        self._count_series(rows, shape, 1)

    def _count_series(self, rows: list[int], shape: Shape, sign: int) -> None:
        self._count_priority(shape.priority, len(rows) * sign)
        counts = np.bincount(rows)
        touched: IntArray = np.flatnonzero(counts)
        times: IntArray = counts[touched] * sign
        for dim, (_, amount) in zip(self.dims_of(shape), shape.needs, strict=True):
            if dim >= 0:
                self.requested[dim, touched] += amount * times
        self.nonzero[0, touched] += shape.nonzero_cpu * times
        self.nonzero[1, touched] += shape.nonzero_memory * times
        self.load.add_rows(touched, shape.estimate, shape.prod, times)
        self.changes.extend(touched)

    def retract_all(self, assumed: list[tuple[int, PodKey, Shape]]) -> None:
        """Undo many `assume` at once: sums per shape over arrays where the node's report does not know the pod."""
        by_shape: dict[Shape, list[int]] = {}
        for row, key, shape in reversed(assumed):
            if shape.host_ports or shape.relational or self.load.reports(row, key):
                self.retract(row, key)
            else:
                del self.pods[row][key]
                by_shape.setdefault(shape, []).append(row)
        for shape, rows in by_shape.items():
            self._count_series(rows, shape, -1)

    def dims_of(self, shape: Shape) -> tuple[int, ...]:
        """Return the dimension of each of the shape's needs, -1 where no node offers the resource."""
        return self._asked(shape).dims

    def asked_by(self, shape: Shape) -> IntArray:
        """Return what the shape needs of each dimension, up to the last that it needs, as a column; NOT_ASKED where that is
        nothing."""
        return self._asked(shape).column

    def _asked(self, shape: Shape) -> Asked:
        known = shape.asked
        if known is not None and known.version is self.dims_version:
            return known
        dims = tuple(self.dims.get(name, -1) for name, _ in shape.needs)
        column = np.full((max(dims) + 1, 1), NOT_ASKED, dtype=np.int64)
        for dim, (_, amount) in zip(dims, shape.needs, strict=True):
            if dim >= 0:
                column[dim] = amount
        known = shape.asked = Asked(self.dims_version, dims, column)
        return known

    def _adds_of(self, shape: Shape) -> Adds:
        dims = zip(self.dims_of(shape), shape.needs, strict=True)
        reported = (
            (self.nonzero[0].data, shape.nonzero_cpu),
            (self.nonzero[1].data, shape.nonzero_memory),
            *((self.requested[dim].data, amount) for dim, (_, amount) in dims if dim >= 0),
        )
        unreported = (*reported, *self.load.adds_of(shape.estimate, shape.prod))
        known = shape.adds = Adds(self.dims_version, reported, unreported)
        return known

    def domains(self, topology: str) -> tuple[IntArray, int]:
        """Return each row's domain of a topology, -1 where it has none, and how many domains there are."""
        stamp = (self.version, self.static_changes.position)
        return self.relations.domains(topology, self.labels, stamp, self.declared)

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
        adds = shape.adds
        if adds is None or adds.version is not self.dims_version:
            adds = self._adds_of(shape)
        reported = self.load.reports(row, key)
        for cells, amount in adds.reported if reported else adds.unreported:
            cells[row] += sign * amount
        if reported:
            self._recompute_load(row)
        self.changes.add(row)
        if shape.relational:
            relations = self.held_relations if is_held(key) else self.relations
            relations.count(row, shape, sign)
        if shape.host_ports:
            ports = self.ports[row]
            for port in shape.host_ports:
                ports[port] = ports.get(port, 0) + sign
                if not ports[port]:
                    del ports[port]
            (self.with_ports.add if ports else self.with_ports.discard)(row)

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
        self.load.recompute(row, ((key, assigned) for key, (_, assigned) in self.pods[row].items()))

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
            self.ports.append({})
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
        self._lay(grown(self.block, capacity))
        self.divisor[:, before:] = 1
        self.load.grow(capacity)
        self.dims_version = object()

    def _dimension(self, name: str) -> None:
        self._count_all()
        dim = len(self.dims)
        self.dims[name] = dim
        self.dims_version = object()
        self.version += 1
        if dim >= self.allocatable.shape[0]:
            room = np.zeros_like(self.allocatable)
            self._lay(np.concatenate((self.nonzero, self.divisor, self.allocatable, room, self.requested, room)))
        # Pods that asked for the resource before any node offered it count from now on.
        for row in self.rows.values():
            for shape, _ in self.pods[row].values():
                self.requested[dim, row] += shape.requests.get(name, 0)


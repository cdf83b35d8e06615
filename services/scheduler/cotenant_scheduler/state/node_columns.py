"""The numeric columns of the node table: allocatable, requested amounts, estimated usage.

A resource is a dimension: every name that a node offers gets one, and is 0 where a node does not offer it. Columns that
placements change, and what they are compared with, are views of one block (int64, lanes by rows), so that rows are taken out at
once: `beside` and `with_more` return tables of copied rows, which plugins evaluate like the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Self

import numpy as np

from cotenant.model.values import Value
from cotenant_scheduler.state.columns import FIRST_CAPACITY, IntArray, Rows, grown
from cotenant_scheduler.state.counting import PodCounter
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs
from cotenant_scheduler.state.load.load_columns import LoadColumns
from cotenant_scheduler.state.reading.shapes import Shape

DIMENSIONS = 8
"""Initial capacity in resources; doubled on demand."""

NOT_ASKED = -(1 << 62)
"""Less than the headroom of any resource on any node."""

_FIRST_DIMENSION = 4
"""The lanes before are those of `nonzero` and `divisor`."""

_LAID = frozenset({"allocatable", "requested", "nonzero", "divisor"})
"""Attributes that are views of the block."""

_CACHES = frozenset({"_needs", "_adds"})
"""Attributes that refer to one table's counters and columns."""

SHAPES_CACHED = 8192
"""Shapes whose needs and amounts are cached; beyond, the cache is cleared."""


class Needs(Value, frozen=True, eq=False):
    """What a shape requests of the nodes, in terms of one table's dimensions."""

    dims: tuple[int, ...]
    """The dimension of each need, -1 where no node offers the resource."""
    asked: IntArray
    """The needs by dimension, up to the last one that is needed, as a column; NOT_ASKED where nothing is needed."""
    counters: tuple[PodCounter, ...]
    """Plugins that count pods of the shape."""


class NodeColumns:
    """Numbers by row; `size` rows are in use."""

    allocatable: IntArray
    """By dimension and row: milli-cores, bytes, pieces."""
    requested: IntArray
    nonzero: IntArray
    """cpu and memory requested, with a small amount for containers that ask for none."""
    divisor: IntArray
    """cpu and memory allocatable, at least 1."""

    def __init__(self, args: LoadAwareArgs, counters: Sequence[PodCounter]) -> None:
        self.size = 0
        """Rows in use are below this number."""
        self.dims: dict[str, int] = {}
        self.counters = tuple(counters)
        self._lay(np.zeros((_FIRST_DIMENSION + 2 * DIMENSIONS, FIRST_CAPACITY), dtype=np.int64))
        self.divisor[:] = 1
        self.load = LoadColumns(args)
        self._needs: dict[Shape, Needs] = {}
        """Invalid whenever a dimension is added."""

    @property
    def all_rows(self) -> Rows:
        """Every row in use, as a slice."""
        return slice(0, self.size)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """A copy's columns are views of the copy's block."""
        copied = copy(self)
        memo[id(self)] = copied
        for name, value in vars(self).items():
            if name not in _LAID and name not in _CACHES:
                setattr(copied, name, deepcopy(value, memo))
        copied._lay(copied.block)
        copied._columns_moved()
        return copied

    def _columns_moved(self) -> None:
        """Invalidate what was computed from dimensions and columns."""
        self._needs = {}

    def _lay(self, block: IntArray) -> None:
        """Take a block's lanes as columns."""
        self.block = block
        self.nonzero, self.divisor = block[:2], block[2:_FIRST_DIMENSION]
        self.allocatable, self.requested = np.split(block[_FIRST_DIMENSION:], 2)

    def dims_of(self, shape: Shape) -> tuple[int, ...]:
        """Return the dimension of each of the shape's needs, -1 where no node offers the resource."""
        return (self._needs.get(shape) or self._find_needs(shape)).dims

    def asked_by(self, shape: Shape) -> IntArray:
        """Return what the shape needs of each dimension (int64, dimensions by 1), up to the last that it needs; NOT_ASKED where
        that is nothing."""
        return (self._needs.get(shape) or self._find_needs(shape)).asked

    def counters_of(self, shape: Shape) -> tuple[PodCounter, ...]:
        """Return the plugins that count pods of the shape. Pods that none counts are sums, and are counted many at once."""
        return (self._needs.get(shape) or self._find_needs(shape)).counters

    def _find_needs(self, shape: Shape) -> Needs:
        dims = tuple(self.dims.get(name, -1) for name, _ in shape.needs)
        asked = np.full((max(dims) + 1, 1), NOT_ASKED, dtype=np.int64)
        for dim, (_, amount) in zip(dims, shape.needs, strict=True):
            if dim >= 0:
                asked[dim] = amount
        counters = tuple(counter for counter in self.counters if counter.counts(shape))
        if len(self._needs) >= SHAPES_CACHED:
            self._needs.clear()
        known = self._needs[shape] = Needs(dims, asked, counters)
        return known

    def _add_dimension(self, name: str) -> int:
        """Make room for a resource; return its dimension."""
        dim = len(self.dims)
        self.dims[name] = dim
        if dim >= self.allocatable.shape[0]:
            room = np.zeros_like(self.allocatable)
            self._lay(np.concatenate((self.nonzero, self.divisor, self.allocatable, room, self.requested, room)))
        self._columns_moved()
        return dim

    def _grow_columns(self, before: int, capacity: int) -> None:
        self._lay(grown(self.block, capacity))
        self.divisor[:, before:] = 1
        self.load.grow(capacity)
        self._columns_moved()

    def _add_many(self, rows: IntArray, shape: Shape, times: IntArray) -> None:
        """Add this many pods of a shape to each of the (distinct) rows, whose reports do not include them."""
        for dim, (_, amount) in zip(self.dims_of(shape), shape.needs, strict=True):
            if dim >= 0:
                self.requested[dim, rows] += amount * times
        self.nonzero[0, rows] += shape.nonzero_cpu * times
        self.nonzero[1, rows] += shape.nonzero_memory * times
        self.load.add_rows(rows, shape.estimate, shape.prod, times)

    def with_more(self, rows: IntArray, shape: Shape, first: int, depth: int) -> Self:
        """Return a table of what-if rows: each of `rows` `depth` times, with `first`, `first` + 1, ... pods of the shape
        more. For shapes that no counter counts, on nodes whose reports do not include the pods."""
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
        table.load = self.load.with_more(taken, shape.estimate, shape.prod, more)
        return table

    def beside(self, size: int) -> Self:
        """Return a table with room for this many entries, to which rows are to be copied; valid until the
        version changes."""
        table = copy(self)
        table.size = size
        table._lay(np.zeros((self.block.shape[0], size), dtype=np.int64))
        table.load = self.load.of(np.zeros((self.load.block.shape[0], size), dtype=np.int64))
        return table

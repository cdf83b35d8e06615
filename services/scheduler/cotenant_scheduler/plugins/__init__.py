"""Plugins of the scheduler: what keeps a pod off a node, and what makes one node better than another.

A filter gives each node a code: 0 lets the pod pass, any other number is this filter's own code for a refusal, which
`reason` turns into words. A score gives each node 0..100. Both exist over all asked rows at once and, with the same
result, for one row. `static` plugins look only at what placements and metrics never change: their results are kept and
shared.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

import msgspec

from cotenant_scheduler.state.columns import BoolArray, CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.shapes import Shape

MAX_SCORE = 100

RowFunction = Callable[[int], int]
"""A filter or a score of one row, bound to a table and a shape."""


class Normalise(Enum):
    """How raw scores become 0..100 over the nodes that can take the pod.

    PLAIN: they are already. HIGHEST: 100 * score // highest; all 0 where the highest is 0. LOWEST: 100 - that; all 100
    where the highest is 0.
    """

    PLAIN = "plain"
    HIGHEST = "highest"
    LOWEST = "lowest"


class Refusal(msgspec.Struct, frozen=True):
    """One filter's reason in words. `text` is Kubernetes' or Koordinator's own; `detail` has the figures."""

    code: str
    text: str
    resource: str = ""
    detail: str = ""


class Filter(Protocol):
    """Keeps pods off nodes."""

    name: str
    static: bool
    relational: bool
    """Looks at pods of other nodes too."""
    preemptible: bool
    """Ending pods of a node can lift its refusal at once. (Load is measured: it does not fall before the next report.)"""

    @property
    def wakes_on(self) -> tuple[str, ...]:
        """Subjects whose events can change a refusal."""

    def concerns(self, shape: Shape) -> bool:
        """Tell whether the filter can refuse a node to the shape at all."""

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        """Return 0 or a code for each row."""

    def row_filter(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        """Return the filter as a function of one row; good until the table's `version` changes."""

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:
        """Return the reason for a code with the figures of the rows that were refused for it."""


class Score(Protocol):
    """Prefers nodes."""

    name: str
    static: bool
    weight: int
    normalise: Normalise

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        """Return the raw score of each row, in a new array."""

    def row_score(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        """Return the raw score as a function of one row; good until the table's `version` changes."""


class RelationalScore(Protocol):
    """Prefers nodes by what is on other nodes; asked only for shapes with relations, and for all rows at once."""

    name: str
    weight: int

    def score(self, nodes: NodeTable, shape: Shape, feasible: BoolArray) -> IntArray:
        """Return 0..100 for each row, normalised over the feasible ones."""


def row_count(rows: Rows) -> int:
    """Return how many rows are asked for."""
    return int(rows.stop - (rows.start or 0)) if isinstance(rows, slice) else rows.shape[0]


def row_numbers(rows: Rows) -> list[int]:
    """Return the row numbers asked for, ascending."""
    if isinstance(rows, slice):
        return list(range(rows.start or 0, rows.stop))
    found: list[int] = rows.tolist()
    return found

"""The interfaces of the scheduler's plugins. A plugin implements one or several, and the profile lists those that run.

    Filter          keeps pods off nodes: a code a row, 0 where the pod may run; `reason` turns a code into words
    Score           prefers nodes: a raw number a row, normalised to 0..100
    SpanningScore   prefers nodes by the pods on other nodes
    Counter         counts pods on each row (`state.counting`): `count` and `uncount`
    Allocator       assigns individual units to a pod: a fragment of its placement's allocation
    Grouping        says which pods are placed together or not at all
    Reader          reads requests of a pod's document; pods with equal requests are equivalent (`state.reading.pod_reader`)

Evaluation, series and preemption call the same functions. A what-if check without some pods uncounts them, calls the filters
again, and counts them again (`cycle.preemption`).

A filter or a score exists in array form, over all given rows at once. `RowFilter` and `RowScore` add the same answer for
one row, where that was measured to pay; other plugins are called with an array of one row. `static` plugins depend only on what
placements and metrics never change: their results are cached and shared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from typing import Protocol, runtime_checkable

import msgspec
import numpy as np

from cotenant.events.allocations import Allocation
from cotenant_scheduler.state.columns import BoolArray, CodeArray, IntArray, Rows
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape

MAX_SCORE = 100

RowFunction = Callable[[int], int]
"""A filter or a score of one row, bound to a table and a shape; good until the table's `version` changes."""


class Normalise(Enum):
    """How raw scores become 0..100 over the nodes that can take the pod.

    PLAIN: they are already. HIGHEST: 100 * score // highest; all 0 where the highest is 0. LOWEST: 100 - that; all 100
    where the highest is 0.
    """

    PLAIN = "plain"
    HIGHEST = "highest"
    LOWEST = "lowest"


class Refusal(msgspec.Struct, frozen=True):
    """One filter's reason in words. `text` is Kubernetes' or Koordinator's own; `detail` has the figures; `of_nearest`: they
    are those of the row that is nearest to taking the pod."""

    code: str
    text: str
    resource: str = ""
    detail: str = ""
    of_nearest: bool = False


class Filter(Protocol):
    """Keeps pods off nodes."""

    name: str
    static: bool
    spanning: bool
    """Depends on pods of other nodes too: a placement changes its result for all rows."""
    in_columns: bool
    """All that it reads of placements is in the table's columns: it can be evaluated on copies of rows."""
    preemptible: bool
    """Ending pods of a node can lift its refusal at once. (Load is measured: it does not fall before the next report.)"""

    @property
    def wakes_on(self) -> tuple[str, ...]:
        """Subjects whose events can change a refusal."""

    def concerns(self, shape: Shape) -> bool:
        """Return whether the filter can refuse a node to the shape at all."""

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        """Return 0 or a code below 4096 for each row (int32, one entry a row)."""

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:
        """Return the reason for a code with the figures of the rows (int64, row numbers) that were refused for it."""


class RowFilter(Protocol):
    """A filter with a row form. (A placement changes one row: fit, load and balance of it cost 3 us in row form, 45 us over
    arrays.)"""

    def row_filter(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        """Return the filter as a function of one row."""


@runtime_checkable
class AmountFilter(Protocol):
    """A filter that holds sums against limits. As preemption examines every pod of every node, it sums what ending pods
    release instead of running the filter again."""

    def room(self, nodes: NodeTable, shape: Shape, row: int) -> list[int]:
        """Return the headroom under each limit with a pod of the shape on the row; below 0 it does not fit."""

    def gives_back(self, shape: Shape, other: Shape) -> tuple[int, ...]:
        """Return what ending a pod of another shape adds to the headroom under each limit."""


class Score(Protocol):
    """Prefers nodes."""

    name: str
    static: bool
    in_columns: bool
    """As for a filter."""
    weight: int
    normalise: Normalise

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        """Return the raw score of each row (int64, one entry a row), in a new array."""


class RowScore(Protocol):
    """A score with a row form."""

    def row_score(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        """Return the raw score as a function of one row."""


class SpanningScore(Protocol):
    """Prefers nodes by the pods on other nodes; evaluated over all rows at once."""

    name: str
    weight: int

    def concerns(self, shape: Shape) -> bool:
        """Return whether the score can differ between nodes for the shape at all."""

    def score_all(self, nodes: NodeTable, shape: Shape, feasible: BoolArray) -> IntArray:
        """Return 0..100 for each row in use (int64), normalised over the feasible ones."""


class Allocator(Protocol):
    """Assigns individual units to pods. It is asked about shapes of which a reader has read something."""

    def allocate(self, nodes: NodeTable, shape: Shape, row: int) -> Allocation | None:
        """Return the units assigned to a pod of the shape on a row that the filters accepted; None if it requests none."""


class Together(Protocol):
    """A group of pods that are placed together, in one batch."""

    @property
    def name(self) -> str:
        """Not empty; unique per group."""

    def missing(self, members: Collection[PodKey]) -> str:
        """Return why none of these queued pods may be tried yet; empty if they may."""

    def enough(self, placed: Collection[PodKey], members: Collection[PodKey]) -> bool:
        """Return whether the placed pods of the group may be stored without the others."""

    def gives_up(self, refused: PodKey) -> bool:
        """Return whether no further pods are tried once this one finds no node."""

    def gang_of(self, pod: PodKey) -> str:
        """Return the gang that the placement of one of its pods names; empty for none."""


class Grouping(Protocol):
    """Decides which pods are placed together or not at all."""

    def together(self, key: PodKey, facts: ParsedPod) -> Together | None:
        """Return the group that a pod is placed with; None where it is placed alone."""


def filter_of_row(plugin: Filter, nodes: NodeTable, shape: Shape) -> RowFunction:
    """Return a filter as a function of one row."""
    row_form: Callable[[NodeTable, Shape], RowFunction] | None = getattr(plugin, "row_filter", None)
    if row_form is not None:
        return row_form(nodes, shape)
    return lambda row: plugin.filter(nodes, shape, np.array([row])).item(0)


def score_of_row(plugin: Score, nodes: NodeTable, shape: Shape) -> RowFunction:
    """Return a raw score as a function of one row."""
    row_form: Callable[[NodeTable, Shape], RowFunction] | None = getattr(plugin, "row_score", None)
    if row_form is not None:
        return row_form(nodes, shape)
    return lambda row: plugin.score(nodes, shape, np.array([row])).item(0)


def row_count(rows: Rows) -> int:
    """Return the number of rows to evaluate."""
    return int(rows.stop - (rows.start or 0)) if isinstance(rows, slice) else rows.shape[0]


def row_numbers(rows: Rows) -> list[int]:
    """Return the numbers of the rows to evaluate, in their order."""
    if isinstance(rows, slice):
        return list(range(rows.start or 0, rows.stop))
    found: list[int] = rows.tolist()
    return found

"""Which refusals of a shape the end of pods can lift, and on which rows another filter refuses.

In: the shape's filters and static results. Out: rows that preemption cannot help, and for `cycle.what_if` the filters whose
refusals it can lift. Few rows are computed one by one, more over arrays (`framework.plugin`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cotenant_scheduler.framework.plugin import AmountFilter, Filter, RowFunction, filter_of_row
from cotenant_scheduler.framework.static_results import StaticResults
from cotenant_scheduler.state.columns import BoolArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

FEW_ASKED = 10
"""Up to this many rows are computed one by one, above over arrays: about the break-even point."""


class Preemptibility:
    """Preemption's view of one shape's filters. The node table and the static results must be current."""

    def __init__(
        self,
        nodes: NodeTable,
        shape: Shape,
        static: StaticResults,
        filters: Sequence[Filter],
        spanning_filters: Sequence[Filter],
    ) -> None:
        """`filters`: those that placements on the row itself change; `spanning_filters`: those that look at other rows too."""
        self._nodes = nodes
        self._shape = shape
        self._static = static
        self._filters = filters
        self._lasting = [plugin for plugin in filters if not plugin.preemptible]
        self._lasting_spanning = [plugin for plugin in spanning_filters if not plugin.preemptible]
        self._lasting_of_row: list[RowFunction] = []
        liftable = [plugin for plugin in (*filters, *spanning_filters) if plugin.preemptible]
        self._sums: list[AmountFilter] = [plugin for plugin in liftable if isinstance(plugin, AmountFilter)]
        self._others = [plugin for plugin in liftable if not isinstance(plugin, AmountFilter)]

    def take(self, of_row: Sequence[RowFunction]) -> None:
        """Take over the filters as functions of one row; they are made again when the table grows."""
        both = zip(self._filters, of_row, strict=True)
        self._lasting_of_row = [refuses for plugin, refuses in both if not plugin.preemptible]

    def beyond(self, rows: Rows) -> BoolArray:
        """Return for each row (bool) whether a filter refuses it whose refusal preemption cannot lift; a row without a node
        is refused."""
        beyond: BoolArray = self._static.codes[rows] != 0
        for plugin in (*self._lasting, *self._lasting_spanning):
            beyond |= plugin.filter(self._nodes, self._shape, rows) > 0
        return beyond

    def is_beyond(self, row: int) -> bool:
        """As `beyond`, of one row."""
        if self._static.codes.item(row) or any(refuses(row) for refuses in self._lasting_of_row):
            return True
        if not self._lasting_spanning:
            return False
        rows = np.array([row])
        return any(plugin.filter(self._nodes, self._shape, rows).item(0) for plugin in self._lasting_spanning)

    def within(self, rows: list[int]) -> list[int]:
        """Return those of some rows that are not beyond preemption, in their order."""
        if len(rows) <= FEW_ASKED:
            return [row for row in rows if not self.is_beyond(row)]
        beyond = self.beyond(np.asarray(rows, dtype=np.intp))
        return [row for row, hopeless in zip(rows, beyond.tolist(), strict=True) if not hopeless]

    def refuses_otherwise(self, row: int) -> bool:
        """Return whether a filter other than those of sums refuses a row that is not beyond preemption."""
        return any(filter_of_row(plugin, self._nodes, self._shape)(row) for plugin in self._others)

    def liftable(self) -> tuple[list[AmountFilter], list[RowFunction]]:
        """Return the filters whose refusals ending pods can lift: filters of sums, and the others as functions of one row."""
        return self._sums, [filter_of_row(plugin, self._nodes, self._shape) for plugin in self._others]

"""The columns of changed rows side by side, in the order of the changes, so that caches per row are updated over slices.

In: the node table with its log of changes. Out: a table with one entry per change in place of one row per node, and the
entries that follow a position. A row is copied once, however many shapes read it. An entry holds the row as it was when it was
first read; where a row occurs more than once, the last entry is current.

Bounds: KEPT entries; when they are full the KEPT_BEHIND newest stay. A reader that is further behind reads the rows themselves.
"""

from __future__ import annotations

from cotenant_scheduler.state.nodes import NodeTable

KEPT = 3_000
KEPT_BEHIND = 1_000


class ChangedColumns:
    """Entries of the newest changes."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.table = nodes
        """Whose rows are the entries."""
        self._version = -1
        self._first = 0
        """Position of the first entry in the log of changes."""
        self._used = 0

    def since(self, position: int) -> slice | None:
        """Return which entries are behind a position; None where not all of them are kept."""
        nodes = self._nodes
        if self._version != nodes.version:
            self._version = nodes.version
            self.table = nodes.beside(KEPT)
            self._begin()
        if self._first + self._used != nodes.changes.position:
            self._take_over()
        if position < self._first:
            return None
        return slice(position - self._first, self._used)

    def _begin(self) -> None:
        self._first, self._used = self._nodes.changes.position, 0

    def _take_over(self) -> None:
        nodes, table = self._nodes, self.table
        rows = nodes.changes.since(self._first + self._used)
        if rows is None or rows.shape[0] > KEPT - KEPT_BEHIND:
            self._begin()
            return
        size = rows.shape[0]
        pairs = ((table.block, nodes.block), (table.load.block, nodes.load.block))
        if self._used + size > KEPT:
            gone = self._used - KEPT_BEHIND
            for entries, _ in pairs:
                entries[:, :KEPT_BEHIND] = entries[:, gone : self._used]
            self._first += gone
            self._used = KEPT_BEHIND
        table.load.percentiles, table.load.prod_thresholds = nodes.load.percentiles, nodes.load.prod_thresholds
        for entries, columns in pairs:
            if size == 1:
                entries[:, self._used] = columns[:, rows.item(0)]
            else:
                entries[:, self._used : self._used + size] = columns.take(rows, axis=1)
        self._used += size

"""The evaluation of all nodes for one shape: what callers ask about rows, from their keys (`row_keys`).

In: current keys and the plugins. Out: codes of refusals, scores by plugin and their totals, of the node table's rows or of
copies of rows in another table; reasons in words.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.framework.plugin import MAX_SCORE, filter_of_row
from cotenant_scheduler.framework.profile import CODES_PER_FILTER
from cotenant_scheduler.framework.row_keys import OF_CODE, RowKeys
from cotenant_scheduler.framework.static_results import scaled
from cotenant_scheduler.state.columns import BoolArray, CodeArray, IntArray
from cotenant_scheduler.state.nodes import TIE_BITS, NodeTable


class Evaluation(RowKeys):
    """The evaluation of all rows for one shape."""

    @property
    def codes(self) -> CodeArray:
        """The code of every row in use (int64): 0 where the node can take a pod of the shape, else why not."""
        keys = self._in_use
        codes: CodeArray = np.where(keys >= 0, 0, OF_CODE - keys)
        return codes

    def worth(self, table: NodeTable) -> tuple[CodeArray, IntArray, IntArray]:
        """Return codes (int32, a row each), weighted scores (int64, plugins by rows) and their sums (int64) for all rows of
        another table, from the plugins that placements change."""
        rows = table.all_rows
        scores = np.zeros((len(self.profile.scores), table.size), dtype=np.int64)
        for i, weight, plugin in self._scores:
            scores[i] = weight * plugin.score(table, self.shape, rows)
        return self._refused(np.zeros(table.size, dtype=np.int32), table, rows), scores, scores.sum(axis=0)

    def takes(self, table: NodeTable) -> BoolArray:
        """Return which rows of another table take a pod of the shape (bool, a row each), by the filters that read columns only
        and that placements change."""
        found = np.ones(table.size, dtype=np.bool_)
        for _, plugin in self._filters:
            if plugin.in_columns:
                found &= plugin.filter(table, self.shape, table.all_rows) == 0
        return found

    def normalised_of(self, rows: IntArray) -> IntArray:
        """Return the weighted scores of rows by static plugin (int64, plugins by rows); 0 for the others."""
        static = self._static
        scores = np.zeros((len(self.profile.scores), rows.shape[0]), dtype=np.int64)
        for i, weight, k in static.plain:
            scores[i] = weight * static.raw[k][rows]
        for (i, weight, normalise, k), highest in zip(static.normalised, self._highest, strict=True):
            scores[i] = weight * scaled(normalise, static.raw[k][rows], highest)
        return scores

    def at_highest(self) -> list[tuple[IntArray, int, int]]:
        """Return, for each normalised score that is not flat, the raw scores (int64, a row each), the highest, and how many
        feasible rows have it."""
        static = self._static
        if not static.scales:
            return []
        feasible = self._in_use >= 0
        return [
            (raw, highest, int(np.count_nonzero(feasible & (raw[: self.nodes.size] == highest))))
            for raw, highest in ((static.raw[k], most) for (*_, k), most in zip(static.normalised, self._highest, strict=True))
            if highest
        ]

    def total(self, row: int) -> int:
        """The total score of a feasible row."""
        return self._cells[row] >> TIE_BITS

    def scores(self, row: int) -> list[int]:
        """Return the weighted scores of a feasible row by plugin, those that are about other pods last."""
        scores = self._static.scores(row, self._highest)
        found = self._known_scores.get(row) or self._scores_of(row)
        for i, score in found.items():
            scores[i] = score
        for values in self._scores_by_others:
            scores.append(values.item(row))
        return scores

    def judged(self, row: int) -> tuple[int, list[int]]:
        """Return the code of a row, and its weighted scores by plugin if that is 0, as the row is now; nothing is kept. Scores
        that are normalised, or about other pods, are those of the last refresh."""
        code = self._codes[row]
        if not code:
            for base, refuses in self._filter_rows:
                if found := refuses(row):
                    return base + found, []
            for base, plugin in self._spanning_filters:
                if found := filter_of_row(plugin, self.nodes, self.shape)(row):
                    return base + found, []
        if code:
            return code, []
        scores = self._static.scores(row, self._highest)
        for i, score in self._scores_of(row).items():
            scores[i] = score
        scores.extend(values.item(row) for values in self._scores_by_others)
        return 0, scores

    def refusal_text(self, row: int, code: int) -> str:
        """Return why a row refuses, in words."""
        if code <= 0:
            return "node(s) had no such node"
        index, own = divmod(code, CODES_PER_FILTER)
        return self.profile.filters[index].reason(self.nodes, self.shape, own, np.array([row])).text

    @property
    def highest(self) -> tuple[int, ...]:
        """The highest raw scores that scores are normalised to."""
        return self._highest

    def most(self) -> int:
        """Return what no total score exceeds, whatever is placed; not for shapes to which pods on other nodes matter."""
        static = int(self._base[: self.nodes.size].max(initial=0)) >> TIE_BITS
        return static + MAX_SCORE * sum(weight for _, weight, _ in self._scores)

    def key(self, row: int) -> int:
        """The key of a row: the total score and the tie-break; below 0 if it cannot take the shape."""
        return self._cells[row]

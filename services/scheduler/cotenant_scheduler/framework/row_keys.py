"""The keys of all rows for one shape, kept current row by row.

In: the node table, a shape, the profile. Out: per row one key: the total score and the tie-break, total << TIE_BITS | tie, so
that the best row is the one with the highest key: the highest total and, among equals, the name first in the alphabet; or
below 0 the refusal, -2 - code. Only rows that changed since the last refresh are computed again, one by one where they are
few. The maximum over all keys takes 1.5 µs at 10,000 rows.

Scores that are normalised over the feasible nodes depend on the highest raw score among them: when that changes, all keys
are moved by as much as their `base` is (`static_results`). `evaluation` has what callers ask about a row or a table.

Over 300 lines: the same keys are read and kept current by rows and by arrays.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.framework.plugin import RowFunction, filter_of_row, score_of_row
from cotenant_scheduler.framework.preemptibility import Preemptibility
from cotenant_scheduler.framework.profile import CODES_PER_FILTER, NOT_DECLARED, Profile
from cotenant_scheduler.framework.static_results import StaticResults
from cotenant_scheduler.state.changed_columns import ChangedColumns
from cotenant_scheduler.state.columns import Cells, CodeArray, IntArray, Rows, distinct
from cotenant_scheduler.state.nodes import TIE_BITS, NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

FEW_ROWS, FEW_CHANGES = 10, 64
"""Up to this many changed rows and changes, rows are computed one by one, above over arrays: about the break-even point."""

FEW_REPEATS = 512
"""Up to this many changes are taken as they are; among more, duplicates are removed first."""

SCORES_CACHED = 256
"""Rows whose scores are cached beside their sum; beyond, the cache is cleared."""

OF_CODE = -2
"""The key of a row with code c is OF_CODE - c; codes begin at NOT_DECLARED."""

_REFUSED = OF_CODE - NOT_DECLARED
"""The key of a row without a node, the highest of those that refuse."""


class RowKeys:
    """Keys of all rows for one shape."""

    def __init__(
        self, nodes: NodeTable, shape: Shape, profile: Profile, static: StaticResults, changed: ChangedColumns
    ) -> None:
        self.nodes = nodes
        self.shape = shape
        self.profile = profile
        self._static = static
        self._changed = changed
        filters = [(i * CODES_PER_FILTER, f) for i, f in enumerate(profile.filters) if not f.static and f.concerns(shape)]
        self._filters = tuple((base, f) for base, f in filters if not f.spanning)
        self._spanning_filters = tuple((base, f) for base, f in filters if f.spanning)
        """Evaluated over all rows at once, as a placement changes the scores of all nodes of its domains."""
        both = [plugin for _, plugin in self._filters], [plugin for _, plugin in self._spanning_filters]
        self.preemptibility = Preemptibility(nodes, shape, static, *both)
        """Which refusals the end of pods can lift."""
        self.spanning = bool(self._spanning_filters) or any(score.concerns(shape) for score, _ in profile.spanning_scores)
        """Whether pods on other nodes matter to the shape."""
        self._spanning_scores = profile.spanning_scores if self.spanning else ()
        self._scores = tuple((i, profile.weights[i], s) for i, s in enumerate(profile.scores) if not s.static)
        """Those that placements change: index, weight."""
        self.in_columns = all(f.in_columns for _, f in filters) and all(s.in_columns for _, _, s in self._scores)
        """Whether the plugins can be evaluated on copies of rows in place of the nodes."""
        self._filter_rows: list[tuple[int, RowFunction]] = []
        self._score_rows: list[tuple[int, int, RowFunction]] = []
        self._known_scores: dict[int, dict[int, int]] = {}
        """By row, the weighted scores that placements change, as `_update_row` found them."""
        self.cost_bytes = 0
        """Memory that the arrays take, in bytes."""
        self._version = -1
        self._position = 0
        self._static_position = 0
        self._counted = 0
        """The version of the input of spanning plugins."""
        self._scores_by_others: tuple[IntArray, ...] = ()
        """By spanning score, weighted, a number a row."""
        self._keys: IntArray = np.zeros(0, dtype=np.int64)
        self._in_use: IntArray = self._keys
        """The keys of rows in use."""
        self._own: IntArray = self._keys
        """The keys before spanning filters and scores; the same array for shapes that these do not concern."""
        self._highest: tuple[int, ...] = ()
        """The highest raw score among the feasible rows of each score that is normalised."""
        self._base: IntArray = self._keys
        self._cells: Cells = self._keys.data
        self._own_cells = self._base_cells = self._codes = self._cells
        """`_codes`: those of the static filters."""

    @property
    def keys(self) -> IntArray:
        """The keys of all rows in use; valid until the next refresh."""
        return self._in_use

    @property
    def stamp(self) -> tuple[int, int, int, int]:
        """Equal stamps mean that no row was recomputed between."""
        return self._version, self._position, self._static_position, self._counted

    def refresh(self) -> None:
        """Bring all rows up to the node table."""
        nodes = self.nodes
        counted = self.counted_version()
        position, static_position = nodes.changes.position, nodes.static_changes.position
        before, static_before = self._position, self._static_position
        if (
            before == position
            and self._version == nodes.version
            and self._counted == counted
            and static_before == static_position
        ):
            return
        self._position, self._static_position, self._counted = position, static_position, counted
        few = nodes.changes.few_since(before, FEW_CHANGES)
        rows = dict.fromkeys(few) if few is not None else ()
        if few is not None and len(rows) <= FEW_ROWS and self._version == nodes.version and static_before == static_position:
            for row in rows:
                self._update_row(row)
        else:
            self._refresh_many(before, static_before)
        if self.spanning:
            self._relate()

    def _refresh_many(self, before: int, static_before: int) -> None:
        """Bring rows up to the node table that changed behind two positions: many, or what placements never change, too."""
        nodes = self.nodes
        changed, constraints = nodes.changes.since(before), nodes.static_changes.since(static_before)
        self._static.refresh()
        if self._version != nodes.version or changed is None or constraints is None:
            self._recompute()
        elif constraints.size:
            self._rebase()
            self._update(distinct(np.concatenate((changed, constraints)), nodes.size))
            self._normalise()
        elif changed.shape[0] >= FEW_REPEATS:
            self._update(distinct(changed, nodes.size))
        else:
            self._update(changed, self._changed.since(before) if self.in_columns else None)

    def best(self) -> int:
        """Return the row with the highest key, -1 if no node can take the shape."""
        if not self.nodes.size:
            return -1
        row = int(self._in_use.argmax())
        return row if self._cells[row] >= 0 else -1

    def best_of(self, rows: IntArray) -> int:
        """Return the row with the highest key among some (int64, row numbers), -1 if none of them can take the shape."""
        if not rows.shape[0]:
            return -1
        row = int(rows[self._in_use[rows].argmax()])
        return row if self._cells[row] >= 0 else -1

    def counted_version(self) -> int:
        """The version of what is counted on other rows, as far as it matters to the shape."""
        return sum(counter.version for counter in self.nodes.counters) if self.spanning else 0

    def _recompute(self) -> None:
        nodes, shape = self.nodes, self.shape
        self._version = nodes.version
        self._keys = np.full(nodes.declared.shape[0], _REFUSED, dtype=np.int64)
        self._in_use = self._keys[: nodes.size]
        self.cost_bytes = self._keys.nbytes * (2 if self.spanning else 1)
        self._own = self._keys.copy() if self.spanning else self._keys
        self._known_scores.clear()
        self._filter_rows = [(base, filter_of_row(plugin, nodes, shape)) for base, plugin in self._filters]
        self.preemptibility.take([refuses for _, refuses in self._filter_rows])
        self._score_rows = [(i, weight, score_of_row(plugin, nodes, shape)) for i, weight, plugin in self._scores]
        self._cells = self._keys.data
        self._own_cells, self._codes = self._own.data, self._static.codes.data
        self._highest, self._base = self._static.likely_base()
        self._base_cells = self._base.data
        rows = nodes.all_rows
        self._own[rows] = self._compute(nodes, rows, rows)
        if not self.spanning:
            self._normalise()

    def _update(self, rows: IntArray, entries: slice | None = None) -> None:
        """Recompute rows. `entries` of the changed columns are these rows, None if they are not there. Where a row occurs more
        than once the last entry counts: numpy assigns in index order."""
        keys = self._compute(self.nodes, rows, rows) if entries is None else self._compute(self._changed.table, entries, rows)
        self._known_scores.clear()
        own = self._own
        if not self._static.scales:
            own[rows] = keys
            return
        flips = np.bitwise_xor(own.take(rows), keys) < 0
        own[rows] = keys
        if np.count_nonzero(flips) and self._rescales(rows[flips]):
            self._normalise()

    def _update_row(self, row: int) -> None:
        code = self._codes[row]
        if not code:
            for base, refuses in self._filter_rows:
                found = refuses(row)
                if found:
                    code = base + found
                    break
        if code:
            key = OF_CODE - code
        else:
            known = self._known_scores
            if len(known) >= SCORES_CACHED:
                known.clear()
            scores = known[row] = self._scores_of(row)
            key = (sum(scores.values()) << TIE_BITS) + self._base_cells[row]
        own = self._own_cells
        flips = self._static.scales and (own[row] < 0) != (key < 0)
        own[row] = key
        if flips and self._rescales(np.array([row])):
            self._normalise()

    def _scores_of(self, row: int) -> dict[int, int]:
        scores = {}
        for i, weight, score_of in self._score_rows:
            scores[i] = weight * score_of(row)
        return scores

    def _compute(self, table: NodeTable, rows: Rows, numbers: Rows) -> IntArray:
        """Return the keys of a table's rows, without relations; `numbers` are those of the nodes."""
        shape = self.shape
        keys: IntArray | None = None
        for _, weight, plugin in self._scores:
            score = plugin.score(table, shape, rows)
            if weight != 1:
                score *= weight
            if keys is None:
                keys = score
            else:
                keys += score
        base = self._base[numbers]
        if keys is None:
            keys = base.copy()
        else:
            keys <<= TIE_BITS
            keys += base
        codes = self._refused(self._static.codes[numbers], table, rows)
        if np.count_nonzero(codes):
            np.copyto(keys, OF_CODE - codes, where=codes != 0)
        return keys

    def _refused(self, codes: CodeArray, table: NodeTable, rows: Rows) -> CodeArray:
        """Return codes with those of the filters that placements change; the first one that refuses counts."""
        for base, plugin in self._filters:
            found = plugin.filter(table, self.shape, rows)
            if np.count_nonzero(found):
                codes = np.where((codes == 0) & (found > 0), found + base, codes)
        return codes

    def _relate(self) -> None:
        """Add the results of spanning filters and scores. Where several filters refuse a row, the first one counts."""
        rows = self.nodes.all_rows
        own = self._own[rows]
        codes: IntArray = np.where(own >= 0, 0, OF_CODE - own)
        for base, plugin in self._spanning_filters:
            found = plugin.filter(self.nodes, self.shape, rows)
            if np.count_nonzero(found):
                found = np.where(found > 0, found + base, 0)
                codes = np.where((found > 0) & ((codes == 0) | (codes > found)), found, codes)
        self._keys[rows] = np.where(codes == 0, own, OF_CODE - codes)
        self._normalise()
        feasible = codes == 0
        self._scores_by_others = tuple(
            weight * score.score_all(self.nodes, self.shape, feasible) for score, weight in self._spanning_scores
        )
        keys = self._keys[rows]
        for scores in self._scores_by_others:
            keys[feasible] += scores[feasible] << TIE_BITS

    def _normalise(self) -> None:
        """Find the highest raw scores among the feasible rows; if they changed, shift all keys."""
        highest = self._static.highest(self._keys >= 0)
        if highest != self._highest:
            self._highest = highest
            self._rebase()

    def _rebase(self) -> None:
        """Shift all keys from their present base to the right one."""
        before, self._base = self._base, self._static.base(self._highest)
        self._base_cells = self._base.data
        moved = self._base - before
        for keys in (self._keys, self._own) if self.spanning else (self._keys,):
            np.add(keys, moved, out=keys, where=keys >= 0)

    def _rescales(self, flips: IntArray) -> bool:
        """Return whether the highest raw scores may have changed, as these rows became feasible or ceased to be. Scores of a
        row that is below the highest, or has none, do not matter."""
        if self.spanning:
            return False  # `_relate` finds them anyway
        raw = self._static.raw
        tops = ((int(raw[k][flips].max()), most) for (*_, k), most in zip(self._static.normalised, self._highest, strict=True))
        return any(top and top >= highest for top, highest in tops)

    def look_again(self, row: int) -> None:
        """Update one row that has changed before the others are; not for shapes to which pods on other nodes matter."""
        self._update_row(row)

    def follow(self, row: int) -> None:
        """Update one row, given that everything else is current and only this row changed, once."""
        if self.spanning:
            self.refresh()
            return
        self._position += 1
        self._update_row(row)

"""What all nodes are worth to one shape, kept current row by row.

In: the node table, a shape, the policy. Out: per row the refusal code (0: the node can take a pod of the shape) and
the total score; and the best row. Only rows that changed since the last look are computed again, one by one where they
are few. Rows are compared by one key, total << TIE_BITS | tie, so that the best is the highest total and, among
equals, the name first in the alphabet. The maximum over all keys takes 1.5 µs at 10,000 rows.

Scores that are normalised over the feasible nodes depend on the highest raw score among them: when that changes, all
keys are made anew. What placements never change (`static` plugins) is computed once per set of constraints and shared
by shapes.
"""

from __future__ import annotations

import msgspec
import numpy as np

from cotenant.events.placements import Figure
from cotenant_scheduler.columns import BoolArray, CodeArray, IntArray, Rows, distinct
from cotenant_scheduler.nodes import TIE_BITS, NodeTable
from cotenant_scheduler.plugins import MAX_SCORE, Normalise, Refusal, RowFunction
from cotenant_scheduler.policy import CODES_PER_FILTER, NOT_DECLARED, Policy
from cotenant_scheduler.shapes import Shape

FEW_ROWS = 5
"""Up to so many changed rows are computed one by one, more at once over arrays: about where the two cost the same."""

FEW_REPEATS = 512
"""Up to so many changes are taken as they are; among more, repeats are looked for."""

_REFUSED = -1


class Refusals(msgspec.Struct, frozen=True):
    """Nodes refused for one reason."""

    refusal: Refusal
    count: int


class StaticResults:
    """Results of the static plugins for one set of constraints: codes, and raw scores of those that score."""

    def __init__(self, nodes: NodeTable, shape: Shape, policy: Policy) -> None:
        self._nodes = nodes
        self._shape = shape
        self._filters = tuple((i, plugin) for i, plugin in enumerate(policy.filters) if plugin.static)
        self._scores = tuple(plugin for plugin in policy.scores if plugin.static)
        self.version = -1
        self.codes: CodeArray = np.zeros(0, dtype=np.int32)
        self.raw: tuple[IntArray, ...] = ()
        self._position = 0
        self.refresh()

    def refresh(self) -> None:
        """Bring the results up to the node table."""
        nodes = self._nodes
        changed = nodes.static_changes.since(self._position) if self.version == nodes.version else None
        self._position = nodes.static_changes.position
        if changed is None:
            self.version = nodes.version
            rows: Rows = nodes.all_rows
            capacity = nodes.declared.shape[0]
            self.codes = np.zeros(capacity, dtype=np.int32)
            self.raw = tuple(np.zeros(capacity, dtype=np.int64) for _ in self._scores)
        elif changed.size:
            rows = distinct(changed, nodes.size)
        else:
            return
        codes = np.zeros(nodes.declared[rows].shape[0], dtype=np.int32)
        for i, plugin in reversed(self._filters):
            found = plugin.filter(nodes, self._shape, rows)
            codes = np.where(found > 0, found + i * CODES_PER_FILTER, codes)
        self.codes[rows] = np.where(nodes.declared[rows] > 0, codes, NOT_DECLARED)
        for plugin_score, raw in zip(self._scores, self.raw, strict=True):
            raw[rows] = plugin_score.score(nodes, self._shape, rows)


class Evaluation:
    """Codes, scores and keys of all rows for one shape."""

    def __init__(self, nodes: NodeTable, shape: Shape, policy: Policy, static: StaticResults) -> None:
        self.nodes = nodes
        self.shape = shape
        self._policy = policy
        self._static = static
        filters = [(i * CODES_PER_FILTER, f) for i, f in enumerate(policy.filters) if not f.static and f.concerns(shape)]
        self._filters = tuple((base, f) for base, f in filters if not f.relational)
        self._relational_filters = tuple((base, f) for base, f in filters if f.relational)
        """Asked about all rows at once, as a placement changes what all nodes of its domains are worth."""
        self._dynamic = tuple(i for i, score in enumerate(policy.scores) if not score.static)
        self._filter_rows: list[tuple[int, RowFunction]] = []
        self._score_rows: list[tuple[int, int, RowFunction]] = []
        statics = [(k, i) for k, i in enumerate(i for i, score in enumerate(policy.scores) if score.static)]
        weights, normalise = policy.weights, [score.normalise for score in policy.scores]
        self._normalised = tuple((i, weights[i], normalise[i], k) for k, i in statics if normalise[i] is not Normalise.PLAIN)
        self._fixed = tuple((i, weights[i], k) for k, i in statics if normalise[i] is Normalise.PLAIN)
        """Scores of static plugins that are not normalised: index, weight, index among the static ones."""
        self.figure_names = tuple(f"score.{score.name}" for score in policy.scores)
        self._version = -1
        self._position = 0
        self._static_position = 0
        self._relations = 0
        self._relational = policy.relational if shape.relational else ()
        self._relational_scores: tuple[IntArray, ...] = ()
        self.codes: CodeArray = np.zeros(0, dtype=np.int32)
        self._own_codes: CodeArray = self.codes
        """The codes without those of relational filters; for shapes without relations the same array."""
        self._totals: IntArray = np.zeros(0, dtype=np.int64)
        self._keys: IntArray = np.zeros(0, dtype=np.int64)
        self._highest: list[int] = []
        self._unscaled = sum(weight * normalise.apply(0, 0) for _, weight, normalise, _ in self._normalised)
        """What the normalised scores give every row while none of their raw scores is above 0."""
        self._scales = False
        """Whether any raw score is above 0, so that normalising can change with the feasible rows."""

    @property
    def cost_bytes(self) -> int:
        """Memory that the arrays take."""
        return int(self.codes.nbytes + self._totals.nbytes + self._keys.nbytes)

    @property
    def stamp(self) -> tuple[int, int, int, int]:
        """Equal stamps mean that no row was computed anew between."""
        return self._version, self._position, self._static_position, self._relations

    def refresh(self) -> None:
        """Bring all rows up to the node table."""
        nodes = self.nodes
        relations = nodes.relations.version + nodes.held_relations.version if self.shape.relational else 0
        if (
            self._version == nodes.version
            and self._relations == relations
            and self._position == nodes.changes.position
            and self._static_position == nodes.static_changes.position
        ):
            return
        self._static.refresh()
        changed, constraints = nodes.changes.since(self._position), nodes.static_changes.since(self._static_position)
        self._position, self._static_position = nodes.changes.position, nodes.static_changes.position
        self._relations = relations
        if self._version != nodes.version or changed is None or constraints is None:
            self._recompute()
        elif self.shape.relational:
            rows = distinct(np.concatenate((changed, constraints)), nodes.size)
            if rows.size:
                self._compute(rows)
            self._relate()
            self._normalise()
        elif constraints.size:
            self._compute(distinct(np.concatenate((changed, constraints)), nodes.size))
            self._normalise()
        elif changed.shape[0] > FEW_ROWS:
            self._update(changed if changed.shape[0] < FEW_REPEATS else distinct(changed, nodes.size))
        else:
            for row in dict.fromkeys(changed.tolist()):
                self._update_row(row)

    def best(self) -> int:
        """Return the best row, -1 if no node can take the shape."""
        keys = self._keys[: self.nodes.size]
        if not keys.shape[0]:
            return -1
        row = int(keys.argmax())
        return row if keys[row] >= 0 else -1

    def candidates(self, wanted: int) -> tuple[IntArray, int]:
        """Return the `wanted` best rows in no order (fewer if fewer can take the shape), and the best key among the
        others, -1 if there are none."""
        keys = self._keys[: self.nodes.size]
        feasible: IntArray = np.flatnonzero(keys >= 0)
        if feasible.shape[0] <= wanted:
            return feasible, -1
        first = feasible.shape[0] - wanted
        values = keys[feasible]
        order = np.argpartition(values, first)
        best: IntArray = feasible[order[first:]]
        return best, int(values[order[:first]].max())

    def worth(self, table: NodeTable) -> tuple[CodeArray, IntArray, IntArray]:
        """Return codes, weighted scores by plugin and their sums of all rows of another table, by the plugins that
        placements change."""
        rows = table.all_rows
        codes = np.zeros(table.size, dtype=np.int32)
        for base, plugin in self._filters:
            found = plugin.filter(table, self.shape, rows)
            codes = np.where((codes == 0) & (found > 0), found + base, codes)
        scores = np.zeros((len(self._policy.scores), table.size), dtype=np.int64)
        for i in self._dynamic:
            scores[i] = self._policy.weights[i] * self._policy.scores[i].score(table, self.shape, rows)
        return codes, scores, scores.sum(axis=0)

    def normalised_of(self, rows: IntArray) -> IntArray:
        """Return the weighted scores of rows by static plugin; 0 for the others."""
        scores = np.zeros((len(self._policy.scores), rows.shape[0]), dtype=np.int64)
        for i, weight, k in self._fixed:
            scores[i] = weight * self._static.raw[k][rows]
        for i, weight, normalise, k in self._normalised:
            highest = self._highest[k]
            scaled = self._static.raw[k][rows] * MAX_SCORE // highest if highest else np.zeros(rows.shape[0], np.int64)
            scores[i] = weight * (scaled if normalise is Normalise.HIGHEST else MAX_SCORE - scaled)
        return scores

    def at_highest(self) -> list[tuple[IntArray, int, int]]:
        """Return, for each score that is normalised to something, raw scores, the highest, and how many feasible rows
        have it."""
        if not self._scales:
            return []
        feasible = self._keys[: self.nodes.size] >= 0
        return [
            (raw, highest, int(np.count_nonzero(feasible & (raw[: self.nodes.size] == highest))))
            for raw, highest in ((self._static.raw[k], self._highest[k]) for *_, k in self._normalised)
            if highest
        ]

    def beyond_preemption(self, rows: Rows) -> BoolArray:
        """Tell for each row whether a filter refuses it that no pod's end satisfies; a row without a node is refused."""
        beyond: BoolArray = self._static.codes[rows] != 0
        for _, plugin in self._filters:
            if not plugin.preemptible:
                beyond |= plugin.filter(self.nodes, self.shape, rows) > 0
        return beyond

    def relational_row_filters(self) -> list[RowFunction]:
        """Return the filters that look at pods of other rows too, as functions of one row."""
        return [plugin.row_filter(self.nodes, self.shape) for _, plugin in self._relational_filters]

    def total(self, row: int) -> int:
        """The total score of a feasible row."""
        return int(self._keys[row]) >> TIE_BITS

    def figures(self, row: int) -> tuple[Figure, ...]:
        """Return the weighted scores of a row by plugin, and their sum."""
        scores = [0] * len(self._policy.scores)
        for i, _, score_of in self._score_rows:
            scores[i] = score_of(row)
        for i, _, k in self._fixed:
            scores[i] = self._static.raw[k].item(row)
        for i, _, normalise, k in self._normalised:
            scores[i] = normalise.apply(self._static.raw[k].item(row), self._highest[k])
        figures = [Figure(name="score", value=self.total(row))]
        for name, weight, score in zip(self.figure_names, self._policy.weights, scores, strict=True):
            figures.append(Figure(name=name, value=weight * score))
        for (relational, _), values in zip(self._relational, self._relational_scores, strict=True):
            # Left out at 0, as for a shape without relations: the selector of a pod that waits can make it a relational one.
            if values.item(row):
                figures.append(Figure(name=f"score.{relational.name}", value=values.item(row)))
        return tuple(figures)

    def refusals(self) -> tuple[Refusals, ...]:
        """Return why the nodes refuse the shape: the most frequent reason first."""
        codes = self.codes[: self.nodes.size]
        found = []
        for code in self._present():
            rows = np.flatnonzero(codes == code)
            index, own = divmod(code, CODES_PER_FILTER)
            refusal = self._policy.filters[index].reason(self.nodes, self.shape, own, rows)
            found.append(Refusals(refusal, int(rows.shape[0])))
        return tuple(sorted(found, key=lambda entry: -entry.count))

    def wakes_on(self) -> tuple[str, ...]:
        """Return the subjects whose events can change the refusals."""
        indexes = sorted({code // CODES_PER_FILTER for code in self._present()})
        subjects = {subject for index in indexes for subject in self._policy.filters[index].wakes_on}
        return tuple(sorted(subjects or {"objects.core.nodes._.*"}))

    def _present(self) -> list[int]:
        """The codes of the rows that refuse the shape, ascending."""
        counts = np.bincount(np.maximum(self.codes[: self.nodes.size], 0))
        return [int(code) for code in np.flatnonzero(counts) if code]

    def _recompute(self) -> None:
        nodes = self.nodes
        self._version = nodes.version
        capacity = nodes.declared.shape[0]
        self.codes = np.full(capacity, NOT_DECLARED, dtype=np.int32)
        self._own_codes = self.codes.copy() if self.shape.relational else self.codes
        self._totals = np.zeros(capacity, dtype=np.int64)
        self._keys = np.full(capacity, _REFUSED, dtype=np.int64)
        shape = self.shape
        self._filter_rows = [(base, plugin.row_filter(nodes, shape)) for base, plugin in self._filters]
        self._score_rows = [
            (i, self._policy.weights[i], self._policy.scores[i].row_score(nodes, shape)) for i in self._dynamic
        ]
        self._compute(nodes.all_rows)
        self._relate()
        self._normalise()

    def _relate(self) -> None:
        """Bring in the codes of the relational filters: of several that refuse a row, the first one counts."""
        if not self.shape.relational:
            return
        rows = self.nodes.all_rows
        codes = self._own_codes[rows].copy()
        for base, plugin in self._relational_filters:
            found = plugin.filter(self.nodes, self.shape, rows)
            if np.count_nonzero(found):
                found = np.where(found > 0, found + base, 0)
                codes = np.where((found > 0) & ((codes == 0) | (codes > found)), found, codes)
        self.codes[rows] = codes

    def _update(self, rows: IntArray) -> None:
        feasible = self.codes[rows] == 0 if self._scales else None
        codes, total = self._compute(rows)
        if feasible is not None:
            if self._rescales(rows[feasible != (codes == 0)]):
                self._normalise()
            else:
                self._keys[rows] = self._keys_of(rows)
            return
        total += self._unscaled
        total <<= TIE_BITS
        total |= self.nodes.tie[rows]
        if np.count_nonzero(codes):
            total[codes != 0] = _REFUSED
        self._keys[rows] = total

    def _compute(self, rows: Rows) -> tuple[CodeArray, IntArray]:
        """Compute codes and sums of the scores that placements change."""
        nodes, shape = self.nodes, self.shape
        codes = self._static.codes[rows]
        if isinstance(rows, slice):
            codes = codes.copy()
        for base, plugin in self._filters:
            found = plugin.filter(nodes, shape, rows)
            if np.count_nonzero(found):
                codes = np.where((codes == 0) & (found > 0), found + base, codes)
        self._own_codes[rows] = codes
        total: IntArray | None = None
        for i in self._dynamic:
            weight = self._policy.weights[i]
            score = self._policy.scores[i].score(nodes, shape, rows)
            if weight != 1:
                score = score * weight
            total = score if total is None else total + score
        if total is None:
            total = np.zeros(codes.shape[0], dtype=np.int64)
        for _, weight, k in self._fixed:
            total += weight * self._static.raw[k][rows]
        self._totals[rows] = total
        return codes, total

    def _normalise(self) -> None:
        """Find the highest raw scores among the feasible rows and make all keys anew."""
        rows = self.nodes.all_rows
        feasible = self.codes[rows] == 0
        self._highest = [int(raw[rows][feasible].max(initial=0)) for raw in self._static.raw]
        self._scales = any(bool(self._static.raw[k][rows].any()) for *_, k in self._normalised)
        self._relational_scores = tuple(
            weight * score.score(self.nodes, self.shape, feasible) for score, weight in self._relational
        )
        self._keys[rows] = self._keys_of(rows)

    def _rescales(self, turned: IntArray) -> bool:
        """Tell whether the highest raw scores may be others, as these rows became feasible or ceased to be. Those of a row that
        is below the highest, or has none, do not count."""
        if not turned.shape[0]:
            return False
        if self._relational:
            return True
        tops = ((int(self._static.raw[k][turned].max()), self._highest[k]) for *_, k in self._normalised)
        return any(top and top >= highest for top, highest in tops)

    def _keys_of(self, rows: Rows) -> IntArray:
        total = self._totals[rows].copy()
        for _, weight, normalise, k in self._normalised:
            highest = self._highest[k]
            scaled = self._static.raw[k][rows] * MAX_SCORE // highest if highest else np.zeros_like(total)
            total += weight * (scaled if normalise is Normalise.HIGHEST else MAX_SCORE - scaled)
        for scores in self._relational_scores:
            total += scores[rows]
        return np.where(self.codes[rows] == 0, total << TIE_BITS | self.nodes.tie[rows], _REFUSED)

    def follow(self, row: int) -> None:
        """Bring one row up to date, where everything was and only this row changed since, once."""
        if self.shape.relational:
            self.refresh()
            return
        self._position += 1
        self._update_row(row)

    def _update_row(self, row: int) -> None:
        was_feasible = self.codes.item(row) == 0
        code = self._static.codes.item(row)
        if code == 0:
            for base, refuses in self._filter_rows:
                found = refuses(row)
                if found:
                    code = base + found
                    break
        self.codes[row] = code
        total = 0
        for _, weight, score_of in self._score_rows:
            total += weight * score_of(row)
        for _, weight, k in self._fixed:
            total += weight * self._static.raw[k].item(row)
        self._totals[row] = total
        if self._scales and was_feasible != (code == 0) and self._rescales(np.array([row])):
            self._normalise()
            return
        key = _REFUSED
        if code == 0:
            if self._scales:
                for _, weight, normalise, k in self._normalised:
                    total += weight * normalise.apply(self._static.raw[k].item(row), self._highest[k])
            else:
                total += self._unscaled
            key = total << TIE_BITS | self.nodes.tie.item(row)
        self._keys[row] = key

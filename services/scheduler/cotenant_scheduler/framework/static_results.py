"""Results that placements never change, computed once for a set of constraints and shared by all shapes that have it.

In: the node table, a shape with the constraints, the profile. Out: per row the refusal code of the static filters, the raw
scores of the static plugins that score, and `base`: a row's key without the scores that placements change,
given the highest raw scores among the rows that can take the pod.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.framework.plugin import MAX_SCORE, Normalise
from cotenant_scheduler.framework.profile import CODES_PER_FILTER, NOT_DECLARED, Profile
from cotenant_scheduler.state.columns import BoolArray, CodeArray, IntArray, Rows, distinct
from cotenant_scheduler.state.nodes import TIE_BITS, NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

BASES_CACHED = 4


class StaticResults:
    """Results of the static plugins for one set of constraints."""

    def __init__(self, nodes: NodeTable, shape: Shape, profile: Profile) -> None:
        self._nodes = nodes
        self._shape = shape
        self._filters = tuple((i, plugin) for i, plugin in enumerate(profile.filters) if plugin.static)
        scores = tuple((i, plugin) for i, plugin in enumerate(profile.scores) if plugin.static)
        self._scores = tuple(plugin for _, plugin in scores)
        self.plain = tuple((i, profile.weights[i], k) for k, (i, p) in enumerate(scores) if p.normalise is Normalise.PLAIN)
        """Scores that are not normalised: index, weight, index among the static ones."""
        self.normalised = tuple(
            (i, profile.weights[i], plugin.normalise, k)
            for k, (i, plugin) in enumerate(scores)
            if plugin.normalise is not Normalise.PLAIN
        )
        self._at_zero = [0] * len(profile.scores)
        """The weighted scores of a row whose raw scores are all 0, by plugin."""
        for i, weight, normalise, _ in self.normalised:
            self._at_zero[i] = weight * MAX_SCORE if normalise is Normalise.LOWEST else 0
        self.version = -1
        self.codes: CodeArray = np.zeros(0, dtype=np.int32)
        self.raw: tuple[IntArray, ...] = ()
        self.scales = False
        """Whether any raw score above 0 is normalised, so that the normalisation can change with the feasible rows."""
        self._graded = False
        """Whether any raw score is above 0."""
        self._bases: dict[tuple[int, ...], IntArray] = {}
        self._position = 0
        self.refresh()

    def refresh(self) -> None:
        """Update the results to the node table."""
        nodes = self._nodes
        changed = nodes.static_changes.since(self._position) if self.version == nodes.version else None
        self._position = nodes.static_changes.position
        if changed is None:
            self.version = nodes.version
            rows: Rows = nodes.all_rows
            capacity = nodes.declared.shape[0]
            self.codes = np.full(capacity, NOT_DECLARED, dtype=np.int32)
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
        self.scales = any(bool(self.raw[k].any()) for *_, k in self.normalised)
        self._graded = self.scales or any(bool(self.raw[k].any()) for *_, k in self.plain)
        self._bases.clear()

    def highest(self, feasible: BoolArray) -> tuple[int, ...]:
        """Return the highest raw score of each score that is normalised, among the `feasible` rows (bool, a row each)."""
        if not self.scales:
            return (0,) * len(self.normalised)
        return tuple(int(self.raw[k][feasible].max(initial=0)) for *_, k in self.normalised)

    def scores(self, row: int, highest: tuple[int, ...]) -> list[int]:
        """Return the weighted scores of a row by plugin, given the highest raw scores; 0 for those that placements change."""
        scores = self._at_zero.copy()
        if self._graded:
            for i, weight, k in self.plain:
                scores[i] = weight * self.raw[k].item(row)
            for (i, weight, normalise, k), most in zip(self.normalised, highest, strict=True):
                share = weight * (self.raw[k].item(row) * MAX_SCORE // most) if most else 0
                scores[i] += share if normalise is Normalise.HIGHEST else -share
        return scores

    def likely_base(self) -> tuple[tuple[int, ...], IntArray]:
        """Return the highest raw scores that another shape had last, and the base for them (as `base`)."""
        highest = next(reversed(self._bases), (0,) * len(self.normalised))
        return highest, self.base(highest)

    def base(self, highest: tuple[int, ...]) -> IntArray:
        """Return for each row (int64) the key that it has while all other scores are 0, if no filter refuses it. Read-only."""
        known = self._bases.get(highest)
        if known is None:
            nodes = self._nodes
            total = np.zeros(nodes.tie.shape[0], dtype=np.int64)
            for _, weight, k in self.plain:
                total += weight * self.raw[k]
            for (_, weight, normalise, k), most in zip(self.normalised, highest, strict=True):
                # A row above the highest is refused, or the highest is about to change: until then it counts as the highest.
                total += weight * scaled(normalise, np.minimum(self.raw[k], most), most)
            if len(self._bases) >= BASES_CACHED:
                self._bases.clear()
            known = self._bases[highest] = total << TIE_BITS | nodes.tie
        return known


def scaled(normalise: Normalise, raw: IntArray, highest: int) -> IntArray:
    """Return raw scores (int64, any shape) as 0..100, normalised to the highest."""
    values: IntArray = raw * MAX_SCORE // highest if highest else np.zeros_like(raw)
    return values if normalise is Normalise.HIGHEST else MAX_SCORE - values

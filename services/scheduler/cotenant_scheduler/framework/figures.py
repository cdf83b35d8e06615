"""The figures of its node that a placement carries: the total score, the weighted scores by plugin, and the node's estimated
load and capacity. A plugin's score of 0 is left out: most plugins have nothing to say of most pods.

In: the results of a shape and a row, or columns of such numbers. Out: `Figure` structs, shared where they repeat, as scores
usually do. Bounds: FIGURES_CACHED shared figures a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter, getitem

from cotenant.events.placements import Figure
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.state.columns import IntArray

FIGURES_CACHED = 8192
"""Figures of one name that are shared; beyond, new ones are made."""


class _Shared(dict[int, Figure]):
    """Figures of one name by value."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def __missing__(self, value: int) -> Figure:
        figure = Figure(name=self._name, value=value)
        if len(self) < FIGURES_CACHED:
            self[value] = figure
        return figure


class FigureCache:
    """Figures of a profile by name and value."""

    def __init__(self, profile: Profile, resources: tuple[str, ...]) -> None:
        scores = [_Shared("score"), *(_Shared(f"score.{score.name}") for score in profile.scores)]
        relational = [_Shared(f"score.{score.name}") for score, _ in profile.spanning_scores]
        load = [_Shared(f"node.{name}.{figure}") for name in resources for figure in ("used", "capacity")]
        self._total = scores[0]
        self._scores = tuple(scores[1:])
        self._spanning = tuple(relational)
        self._load = tuple(load)

    def of_row(self, evaluation: Evaluation, row: int) -> tuple[Figure, ...]:
        """Return the figures of a row that can take a pod of the shape."""
        return self._of(evaluation.total(row), evaluation.scores(row), evaluation.nodes.load.figures(row))

    def of_reserved(self, evaluation: Evaluation, row: int, scores: list[int], weighted: int) -> tuple[Figure, ...]:
        """Return the figures of a row that takes a pod into a reservation; `scores` by plugin, `weighted` the reservation's."""
        figures = self._of(sum(scores) + weighted, scores, evaluation.nodes.load.figures(row))
        return (*figures, Figure(name="score.Reservation", value=weighted))

    def _of(self, total: int, scores: Sequence[int], load: Sequence[int]) -> tuple[Figure, ...]:
        known = self._scores if len(scores) == len(self._scores) else (*self._scores, *self._spanning)
        shown = [figures[score] for figures, score in zip(known, scores, strict=True) if score]
        return (self._total[total], *shown, *map(getitem, self._load, load))

    def of_columns(self, totals: IntArray, scores: IntArray, load: IntArray) -> Iterator[tuple[Figure, ...]]:
        """Walk the figures of many rows for a shape without relations. `scores`: by plugin; `load`: used and capacity in turn
        by resource."""
        shown = [(known, column) for known, column in zip(self._scores, scores, strict=True) if column.any()]
        columns = [(self._total, totals), *shown, *zip(self._load, load, strict=True)]
        walk = zip(*(map(known.__getitem__, column.tolist()) for known, column in columns), strict=True)
        if all(column.all() for _, column in shown):
            return walk
        behind = 1 + len(shown)
        return ((row[0], *filter(_value, row[1:behind]), *row[behind:]) for row in walk)


_value = attrgetter("value")

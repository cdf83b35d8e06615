"""The figures of its node that a placement carries: the total score, the weighted scores by plugin, and the node's estimated
load and capacity.

In: the results of a shape and a row, or columns of such numbers. Out: `Figure` structs, shared where they repeat, as scores
usually do. Bounds: FIGURES_CACHED shared figures a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import getitem

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
        self._plain = (*scores, *load)
        self._relational = (*scores, *relational, *load)
        self._of_relations = {f"score.{score.name}" for score, _ in profile.spanning_scores}

    def of_row(self, evaluation: Evaluation, row: int) -> tuple[Figure, ...]:
        """Return the figures of a row that can take a pod of the shape."""
        values = (evaluation.total(row), *evaluation.scores(row), *evaluation.nodes.load.figures(row))
        if len(values) == len(self._plain):
            return tuple(map(getitem, self._plain, values))
        figures = map(getitem, self._relational, values)
        # Left out at 0, as for a shape without relations: a waiting pod's selector can make it a relational one.
        return tuple([figure for figure in figures if figure.value or figure.name not in self._of_relations])

    def of_reserved(self, evaluation: Evaluation, row: int, scores: list[int], weighted: int) -> tuple[Figure, ...]:
        """Return the figures of a row that takes a pod into a reservation; `scores` by plugin, `weighted` the reservation's."""
        load = evaluation.nodes.load.figures(row)
        total = sum(scores) + weighted
        values = (total, *scores, *load)
        names = self._plain if len(values) == len(self._plain) else self._relational
        found = map(getitem, names, values)
        shown = [figure for figure in found if figure.value or figure.name not in self._of_relations]
        return (*shown, Figure(name="score.Reservation", value=weighted))

    def of_columns(self, totals: IntArray, scores: IntArray, load: IntArray) -> Iterator[tuple[Figure, ...]]:
        """Walk the figures of many rows for a shape without relations. `scores`: by plugin; `load`: used and capacity in turn
        by resource."""
        values = [totals.tolist(), *scores.tolist(), *load.tolist()]
        return zip(*(map(known.__getitem__, column) for known, column in zip(self._plain, values, strict=True)), strict=True)

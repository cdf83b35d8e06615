"""Where equal pods go that follow each other, found all at once.

In: the results of one shape, and how many pods of it follow each other in the queue. Out: the row of each, with the
figures it was chosen by: exactly what placing them one after the other gives.

A pod of the shape on a row changes only that row's score for the next one. So the n best rows are
evaluated as they are and with one pod more, and those that take both with more again, over arrays. Repeatedly taking the best
row is then a merge of those sequences; an entry that is worth more than the one before it follows it at
once, so it is a sort by the lowest worth so far. The result is cut off where it would depend on values not computed:
behind a row that took DEEPEST pods, and where the last feasible row with the highest raw score fills up, since scores
normalised to it then change for all.

Cost: the evaluation of 2 n rows and of those filled far, over arrays, whatever the number of nodes; one pass over the
keys of all rows to find the candidates.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cotenant.events.placements import Figure
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.figures import FigureCache
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.nodes import TIE_BITS

FIRST_DEPTH = 2
"""Pods per row that are evaluated ahead at first."""

GROWTH = 4
"""For a row that takes all of these pods, this many times more are evaluated."""

DEEPEST = 1024
"""Pods per row that are evaluated ahead, about at most."""

WORTHWHILE = 48
"""Fewer pods are placed one by one: some 20 us a pod, while a series costs 0.7 ms and 6 us a pod."""


class RowSeries:
    """Rows in the order in which they are taken."""

    def __init__(self, evaluation: Evaluation, wanted: int) -> None:
        self._evaluation = evaluation
        self._candidates, excluded = _candidates(evaluation.keys, wanted)
        self.rows: list[int] = []
        self.worths: list[int] = []
        """By pick, the lowest key of its row so far: what no other row has may be taken before it."""
        size = self._candidates.shape[0]
        if not size:
            return
        self._fixed = evaluation.normalised_of(self._candidates)
        self._fixed_total: IntArray = self._fixed.sum(axis=0, dtype=np.int64)
        self._worst = np.zeros(0, dtype=np.int64)
        self._owner = np.zeros(0, dtype=np.int64)
        """Index of the candidate that an entry belongs to; entries of one candidate are in the order of their pods."""
        self._totals = np.zeros(0, dtype=np.int64)
        self._scores = np.zeros((len(evaluation.profile.scores), 0), dtype=np.int64)
        """By entry: weighted scores by plugin."""
        self._load = np.zeros((2 * len(evaluation.nodes.load.resources), 0), dtype=np.int64)
        """By entry: what the node is taken to use, and its capacity, in turn by resource."""
        depths = np.zeros(size, dtype=np.int64)
        self._extend(np.arange(size), 0, FIRST_DEPTH, np.full(size, 1 << 62, dtype=np.int64))
        depths += FIRST_DEPTH
        deepest = FIRST_DEPTH
        while True:
            order: IntArray = np.argsort(-self._worst, kind="stable")[:wanted]
            order = order[self._worst[order] > excluded]
            taken = np.bincount(self._owner[order], minlength=size)
            spent: IntArray = np.flatnonzero(taken >= depths)
            if not spent.size or deepest >= DEEPEST:
                break
            last = np.full(size, 1 << 62, dtype=np.int64)
            np.minimum.at(last, self._owner, self._worst)
            for depth in sorted(set(depths[spent].tolist())):
                some = spent[depths[spent] == depth]
                self._extend(some, depth, depth * (GROWTH - 1), last[some])
                depths[some] = depth * GROWTH
                deepest = max(deepest, depth * GROWTH)
        if spent.size:
            ends = np.flatnonzero(np.isin(self._owner[order], spent) & (self._nth(order) == depths[self._owner[order]]))
            order = order[: int(ends[0]) + 1]
        self._order = order[: self._unchanged_until(order)]
        self.rows = self._candidates[self._owner[self._order]].tolist()
        self.worths = self._worst[self._order].tolist()

    def _extend(self, some: IntArray, first: int, depth: int, worst_so_far: IntArray) -> None:
        """Evaluate candidates with `first` to `first` + `depth` - 1 additional pods."""
        evaluation = self._evaluation
        nodes = evaluation.nodes
        rows = self._candidates[some]
        table = nodes.with_more(rows, evaluation.shape, first, depth)
        codes, scores, totals = evaluation.worth(table)
        totals += np.repeat(self._fixed_total[some], depth)
        keys = np.where(codes == 0, totals << TIE_BITS | np.repeat(nodes.tie[rows], depth), -1).reshape(-1, depth)
        keys[:, 0] = np.minimum(keys[:, 0], worst_so_far)
        worst: IntArray = np.minimum.accumulate(keys, axis=1).reshape(-1)
        scores += np.repeat(self._fixed[:, some], depth, axis=1)
        load = np.stack((table.load.score_view, table.load.capacity), axis=1).reshape(-1, table.size)
        self._worst = np.concatenate((self._worst, worst))
        self._owner = np.concatenate((self._owner, np.repeat(some, depth)))
        self._totals = np.concatenate((self._totals, totals))
        self._scores = np.concatenate((self._scores, scores), axis=1)
        self._load = np.concatenate((self._load, load), axis=1)

    def _nth(self, order: IntArray) -> IntArray:
        """For each pick, its number among the picks of its row, from 1."""
        seen: dict[int, int] = {}
        numbers = []
        for owner in self._owner[order].tolist():
            seen[owner] = seen.get(owner, 0) + 1
            numbers.append(seen[owner])
        return np.array(numbers, dtype=np.int64)

    def _unchanged_until(self, order: IntArray) -> int:
        """How many picks are made before a score that all rows are normalised to changes."""
        until = int(order.shape[0])
        at_highest = self._evaluation.at_highest()
        if at_highest:
            room = np.bincount(self._owner[self._worst >= 0], minlength=self._candidates.shape[0])
            owners = self._owner[order]
            fills = np.flatnonzero(self._nth(order) == room[owners])
            rows = self._candidates[owners[fills]]
            for raw, highest, count in at_highest:
                gone = fills[raw[rows] == highest]
                if gone.shape[0] >= count:
                    until = min(until, int(gone[count - 1]) + 1)
        return until

    def figures(self, figures: FigureCache) -> Iterator[tuple[Figure, ...]]:
        """Walk the figures of the picks."""
        order = self._order
        return figures.of_columns(self._totals[order], self._scores[:, order], self._load[:, order])


def _candidates(keys: IntArray, wanted: int) -> tuple[IntArray, int]:
    """Return the `wanted` best rows in no order (fewer if fewer can take the shape), and the best key among the others, -1 if
    there are none."""
    feasible: IntArray = np.flatnonzero(keys >= 0)
    if feasible.shape[0] <= wanted:
        return feasible, -1
    first = feasible.shape[0] - wanted
    values = keys[feasible]
    order = np.argpartition(values, first)
    best: IntArray = feasible[order[first:]]
    return best, int(values[order[:first]].max())

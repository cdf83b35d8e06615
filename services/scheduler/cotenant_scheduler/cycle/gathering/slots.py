"""How many of a gang's pods each node has room for.

In: the results of each shape, how many pods of the gang have it. Out: a number a row: exact for equal pods that only sums limit
(resources, load), one after the other on that row; else at least as many as fit: each shape by itself, and without what ports,
affinity and volumes limit.

Cost: over arrays, a what-if row for each pod that is tried, twice to four times as many as fit; in blocks of BLOCK rows.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.state.columns import IntArray

FIRST_DEPTH = 2
GROWTH = 3
BLOCK = 1 << 16
"""What-if rows evaluated at once."""


def slots_of(evaluation: Evaluation, wanted: int) -> IntArray:
    """Return for each row in use how many pods of a shape it takes (int64), `wanted` at most, without reservations."""
    slots = np.zeros(evaluation.keys.shape[0], dtype=np.int64)
    rows: IntArray = np.flatnonzero(evaluation.keys >= 0)
    slots[rows] = 1
    tried, depth = 1, FIRST_DEPTH
    while rows.size and tried < wanted:
        depth = min(depth, wanted - tried)
        taken = np.concatenate([_more(evaluation, block, tried, depth) for block in _blocks(rows, depth)])
        slots[rows] += taken
        rows = rows[taken == depth]
        tried += depth
        depth *= GROWTH
    return slots


def _blocks(rows: IntArray, depth: int) -> list[IntArray]:
    return np.array_split(rows, max(1, -(-rows.shape[0] * depth // BLOCK)))


def _more(evaluation: Evaluation, rows: IntArray, first: int, depth: int) -> IntArray:
    """Return how many more pods rows take behind the `first` ones, `depth` at most."""
    fits = evaluation.takes(evaluation.nodes.with_more(rows, evaluation.shape, first, depth)).reshape(-1, depth)
    taken: IntArray = np.logical_and.accumulate(fits, axis=1).sum(axis=1, dtype=np.int64)
    return taken

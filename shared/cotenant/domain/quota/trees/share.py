"""Fair sharing of one resource among siblings: exact integers.

In: the parent's total, and per sibling its weight, its request (already limited by max), its floor (the larger of scaled min
and usage guarantee) and whether it lends. Siblings are in the order of their names. Out: the runtime of each. The rule:

1. A sibling that requests more than its floor starts with the floor and competes for the rest; one that requests less gets its
   request if it lends, else its floor. Floors may exceed the total: then nothing is left to share, and all floors are
   granted.
2. The rest is split among the competing siblings by weight, in rounds: a sibling never gets more than its request, the
   surplus is split again among the others, until nothing is left or no sibling competes. A sibling without weight keeps its
   floor.
3. A split is exact: each gets floor(weight x rest / sum of weights), and the units left over go to the largest
   remainders, ties by name; the parts always sum to the rest.

The result does not depend on the order in which siblings arrive. Capacity beyond all requests stays unassigned. Many siblings
are computed here, as arrays of 64-bit integers where these hold every product that is looked at; few, and larger numbers, in
`splits`, as Python's integers. Source: Koordinator ElasticQuota, runtime quota calculator with the largest-remainder split.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cotenant.domain.quota.trees.splits import split

Amounts64 = NDArray[np.int64]

MANY = 64
"""From so many siblings on arrays are faster."""
LARGEST_SUM = 1 << 62
"""Sums and differences of 64-bit integers below this do not overflow."""


def share_arrays(
    total: int, weights: Amounts64, requests: Amounts64, floors: Amounts64, lends: NDArray[np.bool_]
) -> tuple[Amounts64, int]:
    """Return the runtime of each sibling (int64), and the number of splits. Inputs: a sibling each, int64 amounts and bool
    flags; sums of any of these are below 2^62."""
    competes = requests > floors
    runtime = np.where(competes | ~lends, floors, requests)
    rest = total - int(runtime.sum())
    if rest <= 0:
        return runtime, 0
    index = np.flatnonzero(competes & (weights > 0))
    weight, need = weights[index], requests[index] - floors[index]
    rounds = 0
    while rest > 0 and index.size:
        parts = split_array(rest, weight)
        runtime[index] += np.minimum(parts, need)
        need -= parts
        going_on = need > 0
        rest = -int(need[~going_on].sum())
        index, weight, need = index[going_on], weight[going_on], need[going_on]
        rounds += 1
    return runtime, rounds


def split_array(rest: int, weights: Amounts64) -> Amounts64:
    """As `split`.

    A quotient in floating point is off by a little; the product minus quotient times divisor, each modulo 2^64, is its true
    remainder as long as that is below 2^63 in amount, and corrects it."""
    whole = int(weights.sum())
    if ((rest >> 50) + 2) * whole >= LARGEST_SUM:
        return np.array(split(rest, weights.tolist()), dtype=np.int64)
    parts = (weights * (rest / whole)).astype(np.int64)
    remainders = weights * np.int64(rest) - parts * np.int64(whole)
    off = remainders // whole
    parts += off
    remainders -= off * whole
    left = rest - int(parts.sum())
    if left:
        least = np.partition(remainders, -left)[-left]
        above = remainders > least
        parts += above
        parts[np.flatnonzero(remainders == least)[: left - int(np.count_nonzero(above))]] += 1
    return parts

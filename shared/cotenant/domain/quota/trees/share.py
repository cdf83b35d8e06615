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
are computed as arrays of 64-bit integers where these hold every product that is looked at, else as Python's integers. Source:
Koordinator ElasticQuota, runtime quota calculator with the largest-remainder split.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Amounts64 = NDArray[np.int64]

MANY = 64
"""From so many siblings on arrays are faster."""
_LARGEST_SUM = 1 << 62
"""Sums and differences of 64-bit integers below this do not overflow."""


def share_out(
    total: int, weights: Sequence[int], requests: Sequence[int], floors: Sequence[int], lends: Sequence[bool]
) -> tuple[list[int], int]:
    """Return the runtime of each sibling, and the number of splits."""
    if len(weights) >= MANY and max(max(weights), max(requests), max(floors)) * len(weights) < _LARGEST_SUM > abs(total):
        w, r, f = (np.array(column, dtype=np.int64) for column in (weights, requests, floors))
        runtime, rounds = share_arrays(total, w, r, f, np.array(lends, dtype=np.bool_))
        return runtime.tolist(), rounds
    return _share_lists(total, weights, requests, floors, lends)


def _share_lists(
    total: int, weights: Sequence[int], requests: Sequence[int], floors: Sequence[int], lends: Sequence[bool]
) -> tuple[list[int], int]:
    runtime = [
        floor if request > floor or not lending else request
        for request, floor, lending in zip(requests, floors, lends, strict=True)
    ]
    rest = total - sum(runtime)
    # Without weight a sibling never gets more than its floor.
    competing = [index for index, floor in enumerate(floors) if requests[index] > floor and weights[index] > 0]
    rounds = 0
    while rest > 0 and competing:
        parts = split(rest, [weights[index] for index in competing])
        still_competing: list[int] = []
        rest = 0
        for index, part in zip(competing, parts, strict=True):
            granted, request = runtime[index] + part, requests[index]
            if granted < request:
                still_competing.append(index)
                runtime[index] = granted
            else:
                rest += granted - request
                runtime[index] = request
        competing = still_competing
        rounds += 1
    return runtime, rounds


def split(rest: int, weights: Sequence[int]) -> list[int]:
    """Split `rest` by positive weights into integers that sum to it: largest remainder, the first among equals."""
    whole = sum(weights)
    products = [weight * rest for weight in weights]
    parts = [product // whole for product in products]
    left = rest - sum(parts)
    if left:
        remainders = [product % whole for product in products]
        # In reverse, too, the first of equal ones stays first.
        for index in sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)[:left]:
            parts[index] += 1
    return parts


def part_of_split(rest: int, weights: Sequence[int], index: int) -> int:
    """Return what `split` gives to one sibling. Siblings of weight 0 take no part: they have no remainder, and fewer units are
    left over than siblings have one."""
    whole = sum(weights)
    remainders = [weight * rest % whole for weight in weights]
    left = sum(remainders) // whole
    part, remainder = divmod(weights[index] * rest, whole)
    before = sum(map(remainder.__lt__, remainders))
    if before < left:
        before += remainders[:index].count(remainder)
    return part + 1 if before < left else part


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
    if ((rest >> 50) + 2) * whole >= _LARGEST_SUM:
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

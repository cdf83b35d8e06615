"""One resource among the children of one quota: what each child gets, and what that costs where few are asked for.

In: what the children request (limited by max), their floors (scaled min or guarantee), weights, and whether they lend; the
total comes with each question. Out: the amount of one child (`of`), or of all (`amounts`), by the rule of `share`. A child
*wants* what it would get if there were enough; what it wants above its floor it competes for. Many questions about one
child need no sharing:

    the total is enough for all                 it gets what it wants
    it does not compete                         it gets what it wants: its floor, or less where it lends
    its part of the first split is enough       it gets what it wants; the part depends on sums of floors and weights alone
    nobody else competes                        it gets all that is left

Else what is left above the floors is split in rounds, once for a total and what they want: among few children by `splits`,
where the part of each is computed when it is asked for, among many in arrays.

A child that gets less than it requests, before and after its request changed, took its whole part of every split and still
does: what is known of the others stays valid.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.domain.quota.trees.share import LARGEST_SUM, MANY, Amounts64, share_arrays
from cotenant.domain.quota.trees.splits import Splits, enough_at


class Line:
    """See the module. `least`: the sum of the mins; `wanted`: what all want."""

    __slots__ = (
        "_arrays",
        "_bases",
        "_competing",
        "_enough",
        "_floors",
        "_lends",
        "_reported",
        "_requests",
        "_runtime",
        "_splits",
        "_total",
        "_wants",
        "_weights",
        "_whole",
        "base",
        "least",
        "wanted",
    )

    def __init__(self, weights: Sequence[int], floors: Sequence[int], lends: Sequence[bool]) -> None:
        count = len(weights)
        self._weights = list(weights)
        self._lends = list(lends)
        self._floors = list(floors)
        self.least = sum(floors)
        self._requests = [0] * count
        self._wants = [0] * count
        self._bases = [0] * count
        """What each gets before anything is split."""
        self._competing = [0] * count
        """The weights of those that compete; 0 of the others."""
        self._enough = array("d", [enough_at(0, 0)] * count)
        """See `splits`."""
        self.wanted = self.base = self._whole = 0
        """The sums of `_wants`, `_bases` and `_competing`."""
        self._total = 0
        self._splits: Splits | None = None
        self._runtime: list[int] | None = None
        """The splits of `_total`, and what all get of it; None where that is not known."""
        self._reported = [0] * count
        self._arrays: tuple[Amounts64, Amounts64, Amounts64, NDArray[np.bool_]] | None = None
        """Weights, requests, floors and who lends as arrays, made when they are first needed."""
        for index in range(count):
            self._place(index)

    def request(self, index: int, amount: int) -> None:
        """Take over what a child requests."""
        self._requests[index] = amount
        if self._arrays is not None:
            if amount < LARGEST_SUM:
                self._arrays[1][index] = amount
            else:
                self._arrays = None
        before, floor = self._wants[index], self._floors[index]
        if not before > floor < amount:
            self._place(index)
            return
        # It competed, and still does: the sums of floors and weights stay.
        if not self._gets_less(index, before, amount):
            self._splits = self._runtime = None
        self._wants[index] = amount
        self.wanted += amount - before
        self._enough[index] = enough_at(amount - floor, self._competing[index])

    def _gets_less(self, index: int, before: int, after: int) -> bool:
        """Return whether a child is known to get less than it wanted, and than it wants now."""
        if self._runtime is not None:
            return self._runtime[index] < min(before, after)
        splits = self._splits
        if splits is None or not splits.open[index]:
            return False
        return before <= after or self._bases[index] + splits.of(index) < after

    def floor(self, index: int, amount: int) -> None:
        """Take over a child's floor."""
        if amount != self._floors[index]:
            self._floors[index] = amount
            self._arrays = None
            self._place(index)

    def _place(self, index: int) -> None:
        """Compute what a child wants, and the sums with it."""
        request, floor, weight = self._requests[index], self._floors[index], self._weights[index]
        if request > floor:
            wants = request if weight > 0 else floor
        else:
            wants = request if self._lends[index] else floor
        base = min(wants, floor)
        if wants == self._wants[index] and base == self._bases[index]:
            return
        competing = weight if wants > base else 0
        self.wanted += wants - self._wants[index]
        self.base += base - self._bases[index]
        self._whole += competing - self._competing[index]
        self._wants[index], self._bases[index], self._competing[index] = wants, base, competing
        self._enough[index] = enough_at(wants - base, competing)
        self._splits = self._runtime = None

    def of(self, index: int, total: int) -> int:
        """Return what a child gets of a total."""
        wants = self._wants[index]
        if self.wanted <= total:
            return wants
        base = self._bases[index]
        if wants == base:
            return wants
        rest = total - self.base
        if rest <= 0:
            return base
        weight, whole = self._competing[index], self._whole
        if weight * rest // whole >= wants - base:
            return wants
        if weight == whole:
            return base + rest
        if len(self._wants) >= MANY:
            return self.amounts(total)[index]
        splits = self.splits(total)
        return base + splits.of(index) if splits.open[index] else wants

    def splits(self, total: int) -> Splits:
        """Return how what is left of a total above the floors is split; valid until the next change."""
        if self._splits is None or total != self._total:
            self._splits = Splits(total - self.base, self._competing, self._wants, self._bases, self._enough)
            self._total, self._runtime = total, None
        return self._splits

    def amounts(self, total: int) -> list[int]:
        """Return what each child gets of a total; valid until the next change."""
        if self.wanted <= total:
            return self._wants
        if total <= self.base:
            return self._bases
        if self._runtime is None or total != self._total:
            arrays = self._as_arrays(total) if len(self._wants) >= MANY else None
            if arrays is not None:
                self._runtime = share_arrays(total, *arrays)[0].tolist()
                self._total, self._splits = total, None
            else:
                splits = self.splits(total)
                columns = zip(self._wants, self._bases, splits.open, strict=True)
                self._runtime = [
                    base + splits.of(index) if weight else wants for index, (wants, base, weight) in enumerate(columns)
                ]
        return self._runtime

    def changed(self, total: int) -> Sequence[int]:
        """Return the children that get something else of a total than of that of the last call; at first they had nothing."""
        before, now = self._reported, self.amounts(total)
        if before == now:
            return ()
        self._reported = now.copy()
        return [index for index, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]

    def _as_arrays(self, total: int) -> tuple[Amounts64, Amounts64, Amounts64, NDArray[np.bool_]] | None:
        """Return the columns as arrays; None where 64-bit integers do not hold all that is computed."""
        if self._arrays is None:
            columns = self._weights, self._requests, self._floors
            if max(map(max, columns)) >= LARGEST_SUM:
                return None
            weights, requests, floors = (np.array(column, dtype=np.int64) for column in columns)
            self._arrays = weights, requests, floors, np.array(self._lends, dtype=np.bool_)
        largest = max(int(column.max()) for column in self._arrays[:3])
        return self._arrays if largest * len(self._wants) < LARGEST_SUM and abs(total) < LARGEST_SUM else None

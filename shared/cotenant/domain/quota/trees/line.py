"""One resource among the children of one quota: what each child gets, and what that costs where few are asked for.

In: what the children request (limited by max), their floors (scaled min or guarantee), weights, and whether they lend; the
total comes with each question. Out: the amount of one child (`of`), or of all (`amounts`): those of sharing from scratch
(`share`). A child *wants* what it would get if there were enough; what it wants above its floor it competes for. Most questions
about one child need no sharing:

    the total is enough for all                 it gets what it wants
    it does not compete                         it gets what it wants: its floor, or less where it lends
    its part of the first split is enough       it gets what it wants; the part depends on sums of floors and weights alone
    nobody needs less than its first part       there is one split, of which only its own part is computed
    else                                        all are shared, once for a total and what they want

A child that gets less than it requests, before and after its request changed, took its whole part of every split and still
does: what is known of the others stays valid.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from cotenant.domain.quota.trees.share import MANY, Amounts64, part_of_split, share_arrays, share_out

_LARGEST = 1 << 62
_ALONE = 3
"""So many children are answered one by one before all are shared."""
_ROUNDING = 1e-9
"""More than a quotient in floating point is off, in parts of it."""


class Line:
    """See the module. `least`: the sum of the mins; `wanted`: what all want."""

    __slots__ = (
        "_alone",
        "_arrays",
        "_bases",
        "_competing",
        "_floors",
        "_known",
        "_lends",
        "_needs",
        "_reported",
        "_requests",
        "_runtime",
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
        self._needs: list[float] = [inf] * count
        """What each competes for, by its weight; infinite where it does not compete."""
        self.wanted = self.base = self._whole = 0
        """The sums of `_wants`, `_bases` and `_competing`."""
        self._runtime = [0] * count
        self._total = 0
        self._known = False
        """`_runtime` is what all get of `_total`."""
        self._alone = 0
        """How many were answered alone since the last sharing or change."""
        self._reported = [0] * count
        self._arrays: tuple[Amounts64, Amounts64, Amounts64, NDArray[np.bool_]] | None = None
        """Weights, requests, floors and who lends as arrays, made when they are first needed."""
        for index in range(count):
            self._place(index)

    def request(self, index: int, amount: int) -> None:
        """Take over what a child requests."""
        self._requests[index] = amount
        if self._arrays is not None:
            if amount < _LARGEST:
                self._arrays[1][index] = amount
            else:
                self._arrays = None
        before, floor = self._wants[index], self._floors[index]
        if not before > floor < amount:
            self._place(index)
            return
        # It competed, and still does: the sums of floors and weights stay.
        self._wants[index] = amount
        self.wanted += amount - before
        self._needs[index] = (amount - floor) / self._competing[index]
        self._alone = 0
        if self._known:
            has = self._runtime[index]
            self._known = has < before and has < amount

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
        self._needs[index] = (wants - base) / competing if competing else inf
        self._alone, self._known = 0, False

    def of(self, index: int, total: int) -> int:
        """Return what a child gets of a total."""
        wants = self._wants[index]
        if self.wanted <= total:
            return wants
        base = self._bases[index]
        if wants == base:
            return wants
        if self._known and total == self._total:
            return self._runtime[index]
        rest = total - self.base
        if rest <= 0:
            return base
        if self._competing[index] * rest // self._whole >= wants - base:
            return wants
        if self._alone < _ALONE and len(self._wants) < MANY:
            self._alone += 1
            if self._is_split_once(rest):
                return base + part_of_split(rest, self._competing, index)
        return self.amounts(total)[index]

    def _is_split_once(self, rest: int) -> bool:
        """Return whether everybody needs at least its exact share of the rest. A part is at most that, rounded up, so nobody
        gets more than it needs, and nothing is left for another split."""
        share, least = rest / self._whole, min(self._needs)
        if abs(least - share) > share * _ROUNDING:
            return least > share
        whole, columns = self._whole, zip(self._wants, self._bases, self._competing, strict=True)
        return all((wants - base) * whole >= weight * rest for wants, base, weight in columns)

    def amounts(self, total: int) -> list[int]:
        """Return what each child gets of a total; valid until the next change."""
        if self.wanted <= total:
            return self._wants
        if not self._known or total != self._total:
            self._runtime = self._shared(total)
            self._total, self._known, self._alone = total, True, 0
        return self._runtime

    def changed(self, total: int) -> Sequence[int]:
        """Return the children that get something else of a total than of that of the last call; at first they had nothing."""
        before, now = self._reported, self.amounts(total)
        if before == now:
            return ()
        self._reported = now.copy()
        return [index for index, (old, new) in enumerate(zip(before, now, strict=True)) if old != new]

    def _shared(self, total: int) -> list[int]:
        """Share a total that is not enough."""
        if total <= self.base:
            return self._bases.copy()
        arrays = self._as_arrays(total) if len(self._wants) >= MANY else None
        if arrays is not None:
            runtime: list[int] = share_arrays(total, *arrays)[0].tolist()
            return runtime
        return share_out(total, self._weights, self._requests, self._floors, self._lends)[0]

    def _as_arrays(self, total: int) -> tuple[Amounts64, Amounts64, Amounts64, NDArray[np.bool_]] | None:
        """Return the columns as arrays; None where 64-bit integers do not hold all that is computed."""
        if self._arrays is None:
            columns = self._weights, self._requests, self._floors
            if max(map(max, columns)) >= _LARGEST:
                return None
            weights, requests, floors = (np.array(column, dtype=np.int64) for column in columns)
            self._arrays = weights, requests, floors, np.array(self._lends, dtype=np.bool_)
        largest = max(int(column.max()) for column in self._arrays[:3])
        return self._arrays if largest * len(self._wants) < _LARGEST and abs(total) < _LARGEST else None

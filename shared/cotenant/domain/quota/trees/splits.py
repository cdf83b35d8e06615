"""What is left above the floors, split among few siblings in rounds: the part of one of them without those of the others.

In: what is left of a resource, and of each sibling its weight (0 where it does not compete) and what it needs. Out: the
splits, and what a sibling gets in all of them. The rule (`share`): the rest is split by weight; a sibling that gets more than
it needs leaves the surplus, which is split among the others.

A split is exact: its parts are quotients rounded down, and the units left over go to the largest remainders, the first among
equals. So a part follows from a few numbers of its split and the sibling's own weight. A round computes the remainders, and
the parts of siblings that may have enough; quotients in floating point say which these are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

ROUNDS = 16
"""In so many rounds a sibling gets less than this number of units above its exact shares; after them everybody is computed."""
_ROUNDING = 1e-9
"""More than quotients in floating point and their sum are off, in parts of them."""


def enough_at(need: int, weight: int) -> float:
    """Return how large the shares by weight 1 have to be together, at least, before a sibling may have what it needs: for
    `Splits`. It does not compete with weight 0."""
    return (need - ROUNDS) / weight * (1 - _ROUNDING) if weight else inf


class Split:
    """One split of `rest` by weights with this sum."""

    __slots__ = ("_cut", "_each", "_last", "_over", "_whole")

    def __init__(self, rest: int, weights: Sequence[int], whole: int) -> None:
        self._whole = whole
        # What is left of even parts by weight leaves the same remainders, and its products are smaller.
        self._each, self._over = divmod(rest, whole)
        over = self._over
        remainders = [weight * over % whole for weight in weights]
        left = sum(remainders) // whole
        self._cut, self._last = whole, -1
        """The smallest remainder that gets a unit, and the last sibling that gets one with it."""
        if left:
            # Fewer units are left over than siblings have a remainder.
            ordered = sorted(remainders)
            self._cut = cut = ordered[-left]
            for _ in range(left + bisect_right(ordered, cut) - len(ordered)):
                self._last = remainders.index(cut, self._last + 1)

    def part(self, index: int, weight: int) -> int:
        """Return what a sibling gets, whose weight this is."""
        part, remainder = divmod(weight * self._over, self._whole)
        part += weight * self._each
        return part + 1 if remainder > self._cut or (remainder == self._cut and index <= self._last) else part


def split(rest: int, weights: Sequence[int]) -> list[int]:
    """Split `rest` by weights, not all of them 0, into integers that sum to it."""
    one = Split(rest, weights, sum(weights))
    return [one.part(index, weight) for index, weight in enumerate(weights)]


class Splits:
    """All splits of what is left."""

    __slots__ = ("open", "rounds")

    def __init__(
        self, rest: int, weights: Sequence[int], wants: Sequence[int], bases: Sequence[int], enough: Sequence[float]
    ) -> None:
        """`bases`: what each has of what it wants before anything is split; `enough`: `enough_at` of the difference."""
        self.rounds: list[Split] = []
        self.open = unmet = list(weights)
        """The weights of the siblings that took their whole part of every split; 0 of those that needed less, or none."""
        whole, least, shares = sum(weights), min(enough), 0.0
        while rest > 0 and whole:
            self.rounds.append(Split(rest, unmet, whole))
            shares = shares + rest / whole if len(self.rounds) <= ROUNDS else inf
            if least > shares:
                break
            met, rest = [], 0
            for index, from_there in enumerate(enough):
                if from_there <= shares and unmet[index]:
                    surplus = bases[index] + self.of(index) - wants[index]
                    if surplus >= 0:
                        met.append(index)
                        rest += surplus
            if rest:
                for index in met:
                    whole -= unmet[index]
                    unmet[index] = 0

    def of(self, index: int) -> int:
        """Return what an open sibling gets."""
        weight, gets = self.open[index], 0
        for split in self.rounds:
            gets += split.part(index, weight)
        return gets

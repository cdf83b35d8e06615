"""Equal pods that are admitted one after the other, whatever their quotas: a count a quota instead of sums a pod.

In: the request of each, and the chain of its quota as `admission.admit` takes it. Out: whether a pod is admitted behind those
that were admitted before it, as if each of them had been charged. As all request the same, what a quota has left is a number
of pods, computed once from its limit and what it uses; an admitted pod takes one of it from its quota and each ancestor. The
rules are those of `admission`:

    own quota       used and the request fit the limit in every dimension that both have
    ancestors       the same, in the dimensions of the request only
    min             as the own quota, for non-preemptible pods, of what such pods use

A quota that lists fewer resources counts a smaller request: pods are equal only as far as their quotas count the same of them.
Bound: an entry a quota on the ways of the pods asked about; an instance is good until anything else is charged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cotenant.domain.quota.admission import QuotaLevel
from cotenant.model.amounts import Amounts, masked

NO_END = 1 << 62
"""More pods than there are."""


class _Left:
    """How many more pods one quota takes; each figure is computed when it is first asked for."""

    __slots__ = ("_level", "_min", "_request", "ancestor", "own", "taken", "taken_from_min")

    def __init__(self, level: QuotaLevel, request: Amounts) -> None:
        self._level = level
        self._request = request
        self._min = -1
        self.own = self.ancestor = -1
        """How many it took at first of its own pods, and of those of quotas below it; -1 while nobody has asked."""
        self.taken = 0
        """So many were admitted, of these `taken_from_min` non-preemptible ones."""
        self.taken_from_min = 0

    def within_min(self) -> int:
        """How many more non-preemptible pods of its own it takes."""
        if self._min < 0:
            least = self._level.min
            self._min = _least(self._level.non_preemptible_used, self._request, least, least)
        return self._min - self.taken_from_min


def _least(used: Amounts, request: Amounts, limit: Amounts, dimensions: Iterable[str]) -> int:
    """How many pods fit into those of the dimensions that the limit has."""
    least = NO_END
    for resource in dimensions:
        if resource not in limit:
            continue
        left = limit[resource]
        if resource in used:
            left -= used[resource]
        each = request.get(resource, 0)
        if each > 0:
            count = left // each
            if count < least:
                least = count
        elif left < 0 and (resource in used or resource in request):
            return 0
    return least if least > 0 else 0


class EqualPods:
    """See the module."""

    def __init__(self, request: Amounts, *, runtime_limits: bool, check_ancestors: bool) -> None:
        self._request = request
        self._runtime_limits = runtime_limits
        self._check_ancestors = check_ancestors
        self._counted: Amounts | None = None
        """The part of the request that the quotas of the pods so far count."""
        self._left: dict[str, _Left] = {}
        self._ways: dict[str, tuple[_Left, tuple[_Left, ...]] | None] = {}
        """By quota, what is left of it and of its ancestors; None where less is counted."""
        self._above: dict[str, tuple[_Left, ...]] = {}
        """By quota, what is left of it and of its ancestors, for the quotas below it."""

    def admit(self, chain: Sequence[QuotaLevel], *, preemptible: bool = True) -> bool:
        """Return whether the next pod is admitted, and count it if so. False also for a pod of which its quota counts something
        else: it has to be asked about by itself."""
        if not chain:
            return True
        name = chain[0].name
        way = self._ways[name] if name in self._ways else self._way(chain)
        if way is None:
            return False
        own, above = way
        if own.own <= own.taken or (not preemptible and own.within_min() <= 0):
            return False
        if self._check_ancestors:
            for level in above:
                if level.ancestor <= level.taken:
                    return False
        own.taken += 1
        for level in above:
            level.taken += 1
        if not preemptible:
            own.taken_from_min += 1
            for level in above:
                level.taken_from_min += 1
        return True

    def admit_several(self, chain: Sequence[QuotaLevel], most: int, *, preemptible: bool = True) -> int:
        """Return how many of the next pods of one quota, at most so many, are admitted one after the other, and count them."""
        if not chain:
            return most
        name = chain[0].name
        way = self._ways[name] if name in self._ways else self._way(chain)
        if way is None:
            return 0
        own, above = way
        count = min(most, own.own - own.taken)
        if not preemptible:
            count = min(count, own.within_min())
        if self._check_ancestors:
            for level in above:
                count = min(count, level.ancestor - level.taken)
        if count <= 0:
            return 0
        own.taken += count
        for level in above:
            level.taken += count
        if not preemptible:
            own.taken_from_min += count
            for level in above:
                level.taken_from_min += count
        return count

    def _way(self, chain: Sequence[QuotaLevel]) -> tuple[_Left, tuple[_Left, ...]] | None:
        own = chain[0]
        counted = self._request if self._request.keys() <= own.max.keys() else masked(self._request, own.max)
        if self._counted is None:
            self._counted = counted
        way = None
        if counted is self._counted or counted == self._counted:
            left = self._look(own, counted)
            if left.own < 0:
                limit = own.runtime if self._runtime_limits else own.max
                left.own = _least(own.used, counted, limit, limit)
            way = left, self._levels_above(chain, counted)
        self._ways[own.name] = way
        return way

    def _levels_above(self, chain: Sequence[QuotaLevel], counted: Amounts) -> tuple[_Left, ...]:
        if len(chain) < 2:
            return ()
        parent = chain[1].name
        known = self._above.get(parent)
        if known is None:
            known = self._above[parent] = tuple([self._as_ancestor(level, counted) for level in chain[1:]])
        return known

    def _as_ancestor(self, level: QuotaLevel, counted: Amounts) -> _Left:
        left = self._look(level, counted)
        if self._check_ancestors and left.ancestor < 0:
            left.ancestor = _least(level.used, counted, level.runtime if self._runtime_limits else level.max, counted)
        return left

    def _look(self, level: QuotaLevel, counted: Amounts) -> _Left:
        left = self._left.get(level.name)
        if left is None:
            left = self._left[level.name] = _Left(level, counted)
        return left

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

    __slots__ = ("_ancestor", "_level", "_limit", "_min", "_own", "_request", "taken", "taken_from_min")

    def __init__(self, level: QuotaLevel, request: Amounts, runtime_limits: bool) -> None:
        self._level = level
        self._request = request
        self._limit = level.runtime if runtime_limits else level.max
        self._own = self._min = self._ancestor = -1
        self.taken = 0
        """So many were admitted, of these `taken_from_min` non-preemptible ones."""
        self.taken_from_min = 0

    def as_own(self) -> int:
        """How many more of its own pods it takes."""
        if self._own < 0:
            self._own = _least(self._level.used, self._request, self._limit, self._limit)
        return self._own - self.taken

    def within_min(self) -> int:
        """How many more non-preemptible pods of its own it takes."""
        if self._min < 0:
            least = self._level.min
            self._min = _least(self._level.non_preemptible_used, self._request, least, least)
        return self._min - self.taken_from_min

    def as_ancestor(self) -> int:
        """How many more pods of quotas below it it takes."""
        if self._ancestor < 0:
            self._ancestor = _least(self._level.used, self._request, self._limit, self._request)
        return self._ancestor - self.taken


def _least(used: Amounts, request: Amounts, limit: Amounts, dimensions: Iterable[str]) -> int:
    """How many pods fit into those of the dimensions that the limit has."""
    least = NO_END
    for resource in dimensions:
        bound = limit.get(resource)
        if bound is None:
            continue
        each, left = request.get(resource, 0), bound - used.get(resource, 0)
        if each > 0:
            least = min(least, max(left // each, 0))
        elif left < 0 and (resource in used or resource in request):
            return 0
    return least


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
        return self.admit_several(chain, 1, preemptible=preemptible) > 0

    def admit_several(self, chain: Sequence[QuotaLevel], most: int, *, preemptible: bool = True) -> int:
        """Return how many of the next pods of one quota, at most so many, are admitted one after the other, and count them."""
        if not chain:
            return most
        name = chain[0].name
        way = self._ways[name] if name in self._ways else self._way(chain)
        if way is None:
            return 0
        own, above = way
        count = min(most, own.as_own())
        if not preemptible:
            count = min(count, own.within_min())
        if self._check_ancestors:
            for level in above:
                count = min(count, level.as_ancestor())
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
            way = self._look(own, counted), self._levels_above(chain, counted)
        self._ways[own.name] = way
        return way

    def _levels_above(self, chain: Sequence[QuotaLevel], counted: Amounts) -> tuple[_Left, ...]:
        if len(chain) < 2:
            return ()
        parent = chain[1].name
        known = self._above.get(parent)
        if known is None:
            known = self._above[parent] = tuple([self._look(level, counted) for level in chain[1:]])
        return known

    def _look(self, level: QuotaLevel, counted: Amounts) -> _Left:
        left = self._left.get(level.name)
        if left is None:
            left = self._left[level.name] = _Left(level, counted, self._runtime_limits)
        return left

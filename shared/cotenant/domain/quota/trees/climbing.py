"""How requests climb in a tree: from the quotas that pods came to, up to the root.

In: by quota, what more its pods request. Out: the request sums of it and its ancestors (`tree` has the rules), the requests in
the lines of their families, and marks on what is to be shared again. Requests are collected and climb when somebody asks: a
quota takes one step for all that comes to it and from its children.
"""

from __future__ import annotations

from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.trees.counted_quota import CountedQuota, add
from cotenant.model.amounts import Amounts

_NOTHING: dict[str, int] = {}


class Climbing:
    """The root of a tree and what `QuotaTree` needs of this module."""

    def __init__(self, *, guarantee: bool, usage: bool) -> None:
        """`guarantee`: what is used is guaranteed, so that no quota lends; `usage`: see `QuotaTree`."""
        self._guarantee = guarantee
        self._usage = usage
        self._version = 0
        """Incremented with every change on which what a quota gets may depend."""
        self._root = CountedQuota(QuotaNode(name=ROOT, parent=""), None)
        self._touched: set[str] = set()
        """Quotas of which anything but what they get changed since `changed` was last called."""
        self._asked: dict[CountedQuota, dict[str, int]] = {}
        """What more pods request, by quota, that has not climbed yet: at most an entry a quota."""

    def _ask_later(self, quota: CountedQuota, delta: dict[str, int]) -> None:
        """Have more requests climb before anything is answered."""
        asked = self._asked.get(quota)
        if asked is None:
            self._asked[quota] = delta
        else:
            add(asked, delta)

    def _climb(self) -> None:
        """Carry what was asked for upwards, level by level from the lowest one: a quota that several pods came to, or several
        of its children, takes one step."""
        asked, self._asked = self._asked, {}
        if len(asked) == 1:
            for quota, delta in asked.items():
                self._requested(quota, delta)
            return
        levels: list[dict[CountedQuota, dict[str, int]]] = [{}]
        for quota, delta in asked.items():
            while len(levels) <= len(quota.path):
                levels.append({})
            levels[len(quota.path)][quota] = delta
        for depth in range(len(levels) - 1, -1, -1):
            for quota, delta in levels[depth].items():
                upwards = self._step(quota, delta)
                parent = quota.parent
                if not upwards or parent is None:
                    continue
                above = levels[depth - 1].get(parent)
                if above is None:
                    levels[depth - 1][parent] = upwards
                else:
                    add(above, upwards)

    def _requested(self, quota: CountedQuota | None, delta: Amounts) -> None:
        """Add to what a quota's pods and children request, and climb with what its parent sees of it."""
        level = quota
        while level is not None and delta:
            delta = self._step(level, delta)
            level = level.parent

    def _step(self, level: CountedQuota, delta: Amounts) -> dict[str, int]:
        """Add to what a quota's pods and children request; return what its parent sees of it."""
        if self._usage:
            self._touched.add(level.name)
        asked, most, lines, index = level.child_request, level.node.max, level.lines, level.index
        least = None if level.lends else level.node.min
        upwards: dict[str, int] = {}
        for resource, amount in delta.items():
            before = asked.get(resource, 0)
            after = before + amount
            if after:
                asked[resource] = after
            else:
                asked.pop(resource, None)
            if least is not None:
                floor = least.get(resource, 0)
                before, after = max(before, floor), max(after, floor)
            bound = most.get(resource)
            if bound is not None:
                if before > bound:
                    before = bound
                if after > bound:
                    after = bound
            if after == before:
                continue
            upwards[resource] = after - before
            line = lines.get(resource)
            if line is not None:
                line.request(index, after)
                self._version += 1
        parent = level.parent
        if parent is None or index < 0:
            return _NOTHING
        if upwards and not parent.stale:
            self._mark_stale(parent)
        return upwards

    def _mark_stale(self, quota: CountedQuota) -> None:
        quota.stale = True
        level: CountedQuota | None = quota
        while level is not None and not level.stale_below:
            level.stale_below = True
            level = level.parent

"""How requests climb in a tree: from the quotas that pods came to, up to the root.

In: by quota, what more its pods request. Out: the request sums of it and its ancestors (`tree` has the rules), the requests in
the lines of their families, and marks on what is to be shared again. Requests are collected and climb when somebody asks: a
quota takes one step for all that comes to it and from its children.
"""

from __future__ import annotations

from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.trees.counted_quota import CountedQuota, add
from cotenant.domain.quota.trees.family import Line
from cotenant.model.amounts import Amounts

_NOTHING: dict[str, int] = {}
_NO_LINES: dict[str, Line] = {}


class Climbing:
    """The root of a tree and what `QuotaTree` needs of this module."""

    def __init__(self, *, guarantee: bool) -> None:
        """`guarantee`: what is used is guaranteed, so that no quota lends."""
        self._guarantee = guarantee
        self._root = CountedQuota(QuotaNode(name=ROOT, parent=""), None)
        self._touched: set[str] = set()
        """Quotas of which anything but the runtime changed since `changed`, or the runtime and it was noticed."""
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

    def _requested(self, quota: CountedQuota, delta: Amounts) -> None:
        """Add to what a quota's pods and children request, and climb with what its parent sees of it."""
        level: CountedQuota | None = quota
        while level is not None and delta:
            delta = self._step(level, delta)
            level = level.parent

    def _step(self, level: CountedQuota, delta: Amounts) -> dict[str, int]:
        """Add to what a quota's pods and children request; return what its parent sees of it."""
        self._touched.add(level.name)
        node, asked, requests, limited = level.node, level.child_request, level.request, level.limit_request
        index, most, parent = level.index, node.max, level.parent
        lends = node.lends and (not self._guarantee or index < 0)
        lines = parent.below.lines if parent is not None and parent.below is not None and index >= 0 else _NO_LINES
        upwards: dict[str, int] = {}
        stale = got = False
        for resource, amount in delta.items():
            request = asked.get(resource, 0) + amount
            if request:
                asked[resource] = request
            else:
                asked.pop(resource, None)
            if not lends:
                request = max(request, node.min.get(resource, 0))
            if request:
                requests[resource] = request
            else:
                requests.pop(resource, None)
            bound = most.get(resource, request)
            seen = bound if request > bound else request
            before = limited.get(resource, 0)
            if seen == before:
                continue
            if seen:
                limited[resource] = seen
            else:
                del limited[resource]
            upwards[resource] = seen - before
            line = lines.get(resource)
            if line is not None:
                got = line.request(index, seen) or got
                stale = stale or line.stale
        if parent is None or index < 0:
            return _NOTHING
        if got:
            self._got(level)
        if stale and not parent.stale:
            self._mark_stale(parent)
        return upwards

    def _got(self, child: CountedQuota) -> None:
        """A quota has another runtime."""
        child.runtime = None
        self._touched.add(child.name)
        if child.below is not None:
            self._mark_stale(child)

    def _mark_stale(self, quota: CountedQuota) -> None:
        quota.stale = True
        level: CountedQuota | None = quota
        while level is not None and not level.stale_below:
            level.stale_below = True
            level = level.parent

"""The charges of each quota, summed from the placements alone: for promise 3.

In: placements as they come, change and end, reports that a pod has ended, quotas as published. Out: what a quota's own
placements hold as known at a sequence, and the quotas of a tree. Updated by adding and removing whole placements, so that
the cost of a check depends on the commit and not on the size of the cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.placements import Placement
from cotenant.events.quotas import QuotaRuntime

QuotaKey = tuple[str, str]
"""Tree and name."""


class _Ended(msgspec.Struct, frozen=True):
    sequence: int
    requests: dict[str, int]


class Charges:
    """Sums by quota, and the quotas by tree."""

    def __init__(self) -> None:
        self.trees: dict[str, dict[str, Event]] = defaultdict(dict)
        """Tree to quota to its last event."""
        self._sums: dict[QuotaKey, Counter[str]] = defaultdict(Counter)
        self._ended: dict[QuotaKey, dict[tuple[str, str], _Ended]] = defaultdict(dict)
        """By (node, uid): placements whose pod's processes have ended, and the report that says so."""

    def publish(self, event: Event, data: QuotaRuntime) -> None:
        """Take a quota's newest state, or its end."""
        if event.tombstone:
            self.trees[data.tree].pop(data.quota, None)
        else:
            self.trees[data.tree][data.quota] = event

    def place(self, before: Placement | None, after: Placement | None, ended: int | None) -> None:
        """Replace a placement by another (None: there is none); `ended`: the report that its pod has ended."""
        if before is not None and before.quota:
            key = (before.quota_tree, before.quota)
            self._sums[key].subtract(before.requests)
            self._ended[key].pop((before.node, before.uid), None)
        if after is not None and after.quota:
            self._sums[after.quota_tree, after.quota].update(after.requests)
            if ended is not None:
                self.end(after, ended)

    def end(self, placement: Placement, sequence: int) -> None:
        """Note that the pod of a placement has ended on its node."""
        key = (placement.quota_tree, placement.quota)
        self._ended[key].setdefault((placement.node, placement.uid), _Ended(sequence, placement.requests))

    def of(self, quota: QuotaKey, folded: int) -> Counter[str]:
        """Return what a quota's own placements hold; those whose end was known at `folded` hold nothing."""
        held = Counter(self._sums.get(quota, {}))
        for ended in self._ended.get(quota, {}).values():
            if ended.sequence <= folded:
                held.subtract(ended.requests)
        return held

    def charged(self, tree: str) -> Iterator[str]:
        """Return the quotas of a tree that were ever charged, by name."""
        return iter(sorted(quota for of, quota in self._sums if of == tree))

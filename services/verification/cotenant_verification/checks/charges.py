"""What pods hold of their quotas, summed from the placements alone: for promise 3.

In: placements as they come, change and end, reports that a pod has ended, quotas as published. Out: what the own pods of each
quota hold as known at a sequence, and the quotas of a tree. A pod's quota follows from the quotas there are (`quota_of`), not
from the one that its placement was decided in. Updated by adding and removing whole placements, so that
the cost of a check depends on the commit and not on the size of the cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from cotenant.domain.quota.names import DEFAULT, DEFAULT_TREE, LABEL_QUOTA
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement
from cotenant.events.quotas import QuotaRuntime
from cotenant_verification.checks.records import ObjectHead

Asks = tuple[str, str]
"""A pod's namespace, and the quota that it names."""

_HEAD = msgspec.json.Decoder(ObjectHead)


class _Ended(msgspec.Struct, frozen=True):
    sequence: int
    requests: dict[str, int]


class Charges:
    """Sums by what pods ask for, and the quotas by tree."""

    def __init__(self) -> None:
        self.trees: dict[str, dict[str, Event]] = defaultdict(dict)
        """Tree to quota to its last event."""
        self._sums: dict[Asks, Counter[str]] = defaultdict(Counter)
        self._ended: dict[Asks, dict[tuple[str, str], _Ended]] = defaultdict(dict)
        """By (node, uid): placements whose pod's processes have ended, and the report that says so."""

    def publish(self, event: Event, data: QuotaRuntime) -> None:
        """Take a quota's newest state, or its end."""
        if event.tombstone:
            self.trees[data.tree].pop(data.quota, None)
        else:
            self.trees[data.tree][data.quota] = event

    def published(self) -> Iterator[QuotaRuntime]:
        """Walk the quotas of all trees as last published."""
        for quotas in self.trees.values():
            for event in quotas.values():
                assert isinstance(event.data, QuotaRuntime)
                yield event.data

    def place(self, before: Placement | None, after: Placement | None, ended: int | None) -> None:
        """Replace a placement by another (None: there is none); `ended`: the report that its pod has ended."""
        if before is not None:
            asks = _asks(before)
            self._sums[asks].subtract(before.requests)
            self._ended[asks].pop((before.node, before.uid), None)
        if after is not None:
            self._sums[_asks(after)].update(after.requests)
            if ended is not None:
                self.end(after, ended)

    def end(self, placement: Placement, sequence: int) -> None:
        """Note that the pod of a placement has ended on its node."""
        key = placement.node, placement.uid
        self._ended[_asks(placement)].setdefault(key, _Ended(sequence, placement.requests))

    def held(self, folded: int, quotas: Iterable[QuotaRuntime]) -> dict[tuple[str, str], Counter[str]]:
        """Return what the own pods of each quota (tree, name) hold, by these quotas; those whose end was known at `folded` hold
        nothing."""
        known = {quota.quota: quota for quota in quotas}
        found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for asks, requests in sorted(self._sums.items()):
            own = found[quota_of(known, *asks)]
            own.update(requests)
            for ended in self._ended.get(asks, {}).values():
                if ended.sequence <= folded:
                    own.subtract(ended.requests)
        return found


def quota_of(known: dict[str, QuotaRuntime], namespace: str, named: str) -> tuple[str, str]:
    """Return tree and name of the quota that a pod counts in which names this one (empty: none). Source: Koordinator
    ElasticQuota, getPodAssociateQuotaName."""
    found = known.get(named)
    if not named:
        own = known.get(namespace)
        if own is not None and own.namespace == namespace:
            found = own
        else:
            bound = [quota for quota in known.values() if namespace in quota.namespaces]
            found = min(bound, key=lambda quota: quota.quota, default=None)
    return (found.tree, found.quota) if found is not None else (DEFAULT_TREE, DEFAULT)


def _asks(placement: Placement) -> Asks:
    return placement.namespace, _HEAD.decode(placement.pod).metadata.labels.get(LABEL_QUOTA, "")

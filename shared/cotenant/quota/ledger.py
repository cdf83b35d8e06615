"""The quotas of all trees as published, with `used` from one's own placements: what admission is decided on.

In: QuotaRuntime events (and their ends), and pods charged or given back. Out: the quota of a pod (`associate`), and
the chain of levels that `admit` checks. `used` climbs from a pod's quota to every ancestor; it is kept per quota from
the pods alone, so a quota that moves, appears late or ends needs no repair. A pod's charge is reduced to the
dimensions of its quota's max when it is read, not when it is stored, so a change of max is never a drift.
"""

from collections.abc import Iterable

from cotenant.events.quotas import QuotaRuntime
from cotenant.quota.admission import QuotaLevel
from cotenant.quota.amounts import Amounts, masked, plus, total, without_zeros
from cotenant.quota.membership import Membership, QuotaIdentity, QuotaIndex
from cotenant.quota.names import BUILT_IN, ROOT
from cotenant.quota.sums import OwnPods, PodDemand, add_pod

QuotaKey = tuple[str, str]
"""Tree id and quota name."""


class QuotaLedger:
    """Mutable; a fold. Reading is cached until the next change."""

    def __init__(self) -> None:
        self._published: dict[QuotaKey, QuotaRuntime] = {}
        self._own: dict[QuotaKey, OwnPods] = {}
        self._children: dict[QuotaKey, list[QuotaKey]] | None = None
        self._sums: dict[QuotaKey, tuple[Amounts, Amounts]] = {}
        self._index: QuotaIndex | None = None

    def publish(self, quota: QuotaRuntime) -> None:
        """Take a quota's newest state."""
        key = (quota.tree, quota.quota)
        before = self._published.get(key)
        self._published[key] = quota
        if before is None or before.parent != quota.parent or set(before.max) != set(quota.max):
            self._children = None
            self._sums.clear()
        if before is None or before.namespaces != quota.namespaces or before.namespace != quota.namespace:
            self._index = None

    def end(self, tree: str, quota: str) -> None:
        """The quota is no longer there. What its pods use stays charged, and counts again if it comes back."""
        if self._published.pop((tree, quota), None) is not None:
            self._children = None
            self._index = None
            self._sums.clear()

    def charge(self, membership: Membership, request: Amounts, *, preemptible: bool) -> None:
        """A pod was placed. `request` has every dimension that the pod asks for."""
        self._add(membership, request, preemptible, 1)

    def give_back(self, membership: Membership, request: Amounts, *, preemptible: bool) -> None:
        """A placed pod is gone; the arguments are those of its charge."""
        self._add(membership, request, preemptible, -1)

    def _add(self, membership: Membership, request: Amounts, preemptible: bool, times: int) -> None:
        key = (membership.tree, membership.quota)
        demand = PodDemand(request=dict(request), assigned=True, preemptible=preemptible)
        own = add_pod(self._own.get(key, OwnPods()), demand, times)
        if own.used:
            self._own[key] = own
        else:
            self._own.pop(key, None)
        if key not in self._published:
            return
        used = {resource: amount * times for resource, amount in masked(request, self._max(key)).items()}
        fixed: Amounts = {} if preemptible else used
        for level in self._path(key):
            known = self._sums.get(level)
            if known is not None:
                # As a fresh ledger sums it up: what is given back entirely is no longer named.
                self._sums[level] = (without_zeros(plus(known[0], used)), without_zeros(plus(known[1], fixed)))

    def associate(self, namespace: str, labels: dict[str, str]) -> Membership | None:
        """The quota that counts a pod; None while there are no quotas at all."""
        if not self._published:
            return None
        if self._index is None:
            self._index = QuotaIndex(
                QuotaIdentity(quota.quota, quota.namespace, quota.tree, quota.namespaces)
                for key, quota in sorted(self._published.items())
                if key[1] != ROOT
            )
        return self._index.associate(namespace, labels)

    def published(self, membership: Membership) -> QuotaRuntime | None:
        """The quota's newest state."""
        return self._published.get((membership.tree, membership.quota))

    def chain(self, membership: Membership) -> tuple[QuotaLevel, ...]:
        """The pod's quota and its ancestors, nearest first, without the root; empty where the quota is not published."""
        return tuple(self._level(key) for key in self._path((membership.tree, membership.quota)))

    def used(self, membership: Membership) -> Amounts:
        """What the quota's sub-tree uses."""
        return self._sum((membership.tree, membership.quota))[0]

    def _level(self, key: QuotaKey) -> QuotaLevel:
        quota = self._published[key]
        used, non_preemptible = self._sum(key)
        return QuotaLevel(
            name=quota.quota,
            max=quota.max,
            min=quota.min,
            runtime=quota.runtime,
            used=used,
            non_preemptible_used=non_preemptible,
        )

    def _path(self, key: QuotaKey) -> Iterable[QuotaKey]:
        path: list[QuotaKey] = []
        # The publisher never publishes a cycle; two of its messages seen apart may still look like one.
        while key in self._published and key[1] != ROOT and key not in path:
            path.append(key)
            key = (key[0], self._published[key].parent)
        return path

    def _sum(self, key: QuotaKey) -> tuple[Amounts, Amounts]:
        known = self._sums.get(key)
        if known is not None:
            return known
        below = sorted(self._descendants(key))
        parts = [(quota, self._own[quota]) for quota in below if quota in self._own]
        known = (
            total(masked(own.used, self._max(quota)) for quota, own in parts),
            total(masked(own.non_preemptible_used, self._max(quota)) for quota, own in parts),
        )
        self._sums[key] = known
        return known

    def _max(self, key: QuotaKey) -> Amounts:
        return self._published[key].max

    def _descendants(self, key: QuotaKey) -> set[QuotaKey]:
        if self._children is None:
            self._children = {}
            for quota_key in sorted(self._published):
                parent = (quota_key[0], self._published[quota_key].parent)
                if quota_key[1] not in BUILT_IN:
                    self._children.setdefault(parent, []).append(quota_key)
        found = {key} if key in self._published else set()
        level = list(found)
        while level:
            level = [child for quota in level for child in self._children.get(quota, ()) if child not in found]
            found.update(level)
        return found

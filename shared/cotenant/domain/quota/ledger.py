"""The quotas of all trees as published, with `used` from one's own placements: what admission is decided on.

In: QuotaRuntime events (and their ends), and pods charged or given back. Out: the quota of a pod (`associate`), and
the chain of levels that `admit` checks. `used` climbs from a pod's quota to every ancestor; it is kept per quota from
the pods alone, so a quota that moves, appears late or ends needs no repair. A pod's charge is reduced to the
dimensions of its quota's max when it is read, not when it is stored, so a change of max is never a drift.
"""

import msgspec

from cotenant.domain.quota.admission import QuotaLevel
from cotenant.domain.quota.membership import Membership, QuotaIdentity, QuotaIndex
from cotenant.domain.quota.names import BUILT_IN, ROOT
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.amounts import Amounts, add_to, masked, total

QuotaKey = tuple[str, str]
"""Tree id and quota name."""


class _Held(msgspec.Struct, gc=False):
    """What pods use, and how much of it by non-preemptible ones. No amount is zero."""

    used: dict[str, int]
    non_preemptible: dict[str, int]

    def change(self, request: Amounts, preemptible: bool, times: int) -> None:
        add_to(self.used, request, times)
        if not preemptible:
            add_to(self.non_preemptible, request, times)


class QuotaLedger:
    """Mutable; a fold. Charging a pod changes the sums of its quota and of the ancestors in place: the cost is one addition per
    level, however many quotas there are."""

    def __init__(self) -> None:
        self.version = 0
        """Incremented with every change."""
        self._structure = 0
        """Incremented with every change of which quotas there are, under which parents and with which dimensions."""
        self._touched: dict[QuotaKey, int] = {}
        """By quota, incremented with every other change of what it publishes or its sub-tree uses."""
        self._published: dict[QuotaKey, QuotaRuntime] = {}
        self._own: dict[QuotaKey, _Held] = {}
        self._children: dict[QuotaKey, list[QuotaKey]] | None = None
        self._sums: dict[QuotaKey, _Held] = {}
        self._paths: dict[QuotaKey, tuple[QuotaKey, ...]] = {}
        self._chains: dict[QuotaKey, tuple[QuotaLevel, ...]] = {}
        self._index: QuotaIndex | None = None

    def publish(self, quota: QuotaRuntime) -> None:
        """Take over a quota's newest state."""
        self.version += 1
        key = (quota.tree, quota.quota)
        before = self._published.get(key)
        self._published[key] = quota
        if before is None or before.parent != quota.parent or set(before.max) != set(quota.max):
            self._forget_sums()
        else:
            self._touch(key)
        self._chains.clear()
        if before is None or before.namespaces != quota.namespaces or before.namespace != quota.namespace:
            self._index = None

    def end(self, tree: str, quota: str) -> None:
        """Remove a quota. What its pods use stays charged, and counts again if it comes back."""
        self.version += 1
        if self._published.pop((tree, quota), None) is not None:
            self._index = None
            self._forget_sums()

    def charge(self, membership: Membership, request: Amounts, *, preemptible: bool) -> None:
        """Charge a placed pod. `request` has every dimension that the pod requests."""
        self._add(membership, request, preemptible, 1)

    def give_back(self, membership: Membership, request: Amounts, *, preemptible: bool) -> None:
        """Refund a placed pod that is gone; the arguments are those of its charge."""
        self._add(membership, request, preemptible, -1)

    def version_of(self, membership: Membership) -> tuple[int, int]:
        """Equal versions mean that the pod's quota and its ancestors are as they were: `chain` has equal levels."""
        touched = self._touched
        path = self._path((membership.tree, membership.quota))
        return self._structure, sum(touched.get(level, 0) for level in path)

    def _touch(self, key: QuotaKey) -> None:
        self._touched[key] = self._touched.get(key, 0) + 1

    def _forget_sums(self) -> None:
        self._structure += 1
        self._touched.clear()
        self._children = None
        self._sums.clear()
        self._paths.clear()
        self._chains.clear()

    def _add(self, membership: Membership, request: Amounts, preemptible: bool, times: int) -> None:
        self.version += 1
        key = (membership.tree, membership.quota)
        own = self._own.get(key)
        if own is None:
            own = self._own[key] = _Held({}, {})
        own.change(request, preemptible, times)
        if not own.used:
            del self._own[key]
        if key not in self._published:
            return
        counted = masked(request, self._max(key))
        for level in self._path(key):
            self._touch(level)
            known = self._sums.get(level)
            if known is not None:
                known.change(counted, preemptible, times)

    def associate(self, namespace: str, labels: dict[str, str]) -> Membership | None:
        """Return the quota that a pod counts in; None while there are no quotas at all."""
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
        """Return the pod's quota and its ancestors, nearest first, without the root; empty if the quota is not published. Valid
        until the next change, as the levels include what is used."""
        key = (membership.tree, membership.quota)
        known = self._chains.get(key)
        if known is None:
            known = self._chains[key] = tuple(self._level(level) for level in self._path(key))
        return known

    def used(self, membership: Membership) -> Amounts:
        """What the quota's sub-tree uses."""
        return self._sum((membership.tree, membership.quota)).used

    def _level(self, key: QuotaKey) -> QuotaLevel:
        quota = self._published[key]
        held = self._sum(key)
        return QuotaLevel(
            name=quota.quota,
            max=quota.max,
            min=quota.min,
            runtime=quota.runtime,
            used=held.used,
            non_preemptible_used=held.non_preemptible,
        )

    def _path(self, key: QuotaKey) -> tuple[QuotaKey, ...]:
        known = self._paths.get(key)
        if known is not None:
            return known
        path: list[QuotaKey] = []
        level = key
        # The publisher never publishes a cycle; two of its messages seen apart may still look like one.
        while level in self._published and level[1] != ROOT and level not in path:
            path.append(level)
            level = (level[0], self._published[level].parent)
        self._paths[key] = tuple(path)
        return self._paths[key]

    def _sum(self, key: QuotaKey) -> _Held:
        known = self._sums.get(key)
        if known is not None:
            return known
        below = sorted(self._descendants(key))
        parts = [(quota, self._own[quota]) for quota in below if quota in self._own]
        known = self._sums[key] = _Held(
            total(masked(own.used, self._max(quota)) for quota, own in parts),
            total(masked(own.non_preemptible, self._max(quota)) for quota, own in parts),
        )
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

"""The basis of admission: the quotas with their runtimes, and `used` from the service's own placements.

In: the declared quotas, what nodes offer and pods request (`trees.demands`, from one's own fold), and pods charged or given
back. Out: the quota of a pod (`member`), and the chain of levels that `admit` checks. `used` climbs from a pod's quota to
every ancestor; it is kept per quota from the placements alone, so a quota that moves needs no repair, and `declare` says which
quotas pods may leave. A pod's charge is reduced to the dimensions of its quota's max when it is read, not when it is stored, so
a change of max causes no drift.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from cotenant.domain.quota.admission import QuotaLevel
from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.trees.demands import Demands
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, add_to, masked, total

QuotaKey = tuple[str, str]
"""Tree id and quota name."""


class _Held(msgspec.Struct, gc=False):
    """What pods use, and how much of it by non-preemptible ones. No amount is zero."""

    used: dict[str, int]
    non_preemptible: dict[str, int]

    def change(self, request: Amounts, preemptible: bool, times: int) -> None:
        used = self.used
        for resource, amount in request.items():
            if amount:
                now = used[resource] + amount * times if resource in used else amount * times
                if now:
                    used[resource] = now
                else:
                    del used[resource]
        if not preemptible:
            add_to(self.non_preemptible, request, times)


class _Chain(msgspec.Struct):
    levels: tuple[QuotaLevel, ...]
    above: tuple[QuotaLevel, ...]
    """Those of the parent."""
    version: int
    """That of the demands from which the runtimes were taken."""
    changes: int = 0
    """Incremented when any runtime changes."""


class QuotaLedger:
    """Mutable; a fold. Charging a pod changes the sums of its quota and of the ancestors in place: the cost is one addition per
    level, however many quotas there are."""

    def __init__(self, rules: QuotaRules | None = None) -> None:
        self.demands = Demands(rules or QuotaRules(), usage=False)
        self._version = 0
        self._structure = 0
        """Incremented with every change of which quotas there are."""
        self._touched: dict[str, int] = {}
        """By quota, incremented with every change of what its sub-tree uses."""
        self._own: dict[QuotaKey, _Held] = {}
        self._below: dict[str, list[str]] = {}
        self._sums: dict[str, _Held] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._chains: dict[QuotaKey, _Chain] = {}
        self._levels: dict[str, QuotaLevel] = {}
        """By quota; what the chains of its descendants share."""

    @property
    def version(self) -> int:
        """Differs after every change."""
        return self._version + self.demands.version

    def declare(self, quotas: dict[str, ElasticQuotaView]) -> set[Membership | None]:
        """Take over another set of quotas. Return the quotas that pods may leave thereby (`QuotaIndex.left_for`): whoever
        charged these charges the quota that each belongs to now."""
        before = self.demands.index
        self.demands.declare(quotas)
        self._sums.clear()
        self._paths.clear()
        self._structure += 1
        self._touched.clear()
        self._chains.clear()
        self._levels.clear()
        self._below = {}
        for name, parent in self.demands.forest.parents.items():
            self._below.setdefault(parent, []).append(name)
        return before.left_for(self.demands.index)

    def charge(self, membership: Membership, request: Amounts, *, preemptible: bool) -> None:
        """Charge a placed pod. `request` has every dimension that the pod requests; negative amounts: pods that left."""
        self._add(membership, request, preemptible, 1)

    def charge_equal(self, counts: Mapping[tuple[Membership, bool], int], request: Amounts) -> None:
        """Charge placed pods that request the same: so many of each quota, preemptible or not. An ancestor that several of the
        quotas have is changed once."""
        self._version += 1
        forest, known = self.demands.forest, self.demands.known
        parents = forest.parents
        above: dict[str, list[tuple[Amounts, bool, int]]] = {}
        """By parent, what its children count."""
        for (membership, preemptible), times in counts.items():
            name = membership.quota
            self._charge_own(membership, request, preemptible, times)
            if forest.tree_ids.get(name) != membership.tree:
                continue
            most = known[name].max
            counted = request if request.keys() <= most.keys() else masked(request, most)
            self._change_level(name, counted, preemptible, times)
            if name in parents:
                above.setdefault(parents[name], []).append((counted, preemptible, times))
        for parent, changes in above.items():
            levels = self._path(parent)
            for counted, preemptible, times in _together(changes):
                for level in levels:
                    self._change_level(level, counted, preemptible, times)

    def give_back(self, membership: Membership, request: Amounts, *, preemptible: bool) -> None:
        """Refund a placed pod that is gone; the arguments are those of its charge."""
        self._add(membership, request, preemptible, -1)

    def version_of(self, membership: Membership) -> tuple[int, int]:
        """Equal versions mean that the pod's quota and its ancestors are as they were: `chain` has equal levels."""
        self.chain(membership)
        known = self._chains.get((membership.tree, membership.quota))
        if known is None:
            return self._structure, 0
        return self._structure, known.changes + sum(self._touched.get(level.name, 0) for level in known.levels)

    def _add(self, membership: Membership, request: Amounts, preemptible: bool, times: int) -> None:
        self._version += 1
        self._charge_own(membership, request, preemptible, times)
        if self._is_known((membership.tree, membership.quota)):
            counted = masked(request, self._max(membership.quota))
            for level in self._path(membership.quota):
                self._change_level(level, counted, preemptible, times)

    def _charge_own(self, membership: Membership, request: Amounts, preemptible: bool, times: int) -> None:
        """Change what a quota's own pods use."""
        key = (membership.tree, membership.quota)
        own = self._own.get(key)
        if own is None:
            own = self._own[key] = _Held({}, {})
        own.change(request, preemptible, times)
        if not own.used:
            del self._own[key]

    def _change_level(self, level: str, counted: Amounts, preemptible: bool, times: int) -> None:
        self._touched[level] = self._touched.get(level, 0) + 1
        known = self._sums.get(level)
        if known is not None:
            known.change(counted, preemptible, times)

    def member(self, namespace: str, quota_label: str) -> Membership | None:
        """Return the quota that pods of a namespace count in which name this quota (empty: none); None while there are no
        quotas at all."""
        return self.demands.index.member(namespace, quota_label)

    def chain(self, membership: Membership) -> tuple[QuotaLevel, ...]:
        """Return the pod's quota and its ancestors, nearest first, without the root; empty if the quota is not known. Valid
        until the next change, as the levels include what is used."""
        key = (membership.tree, membership.quota)
        version = self.demands.version
        known = self._chains.get(key)
        if known is not None and known.version == version:
            return known.levels
        return self._find_chain(key, version).levels if self._is_known(key) else ()

    def chains(self) -> Callable[[Membership], tuple[QuotaLevel, ...]]:
        """Return what answers as `chain` does until the next change, for many questions in a row."""
        version, known = self.demands.version, self._chains

        def chain(membership: Membership) -> tuple[QuotaLevel, ...]:
            found = known.get((membership.tree, membership.quota))
            return found.levels if found is not None and found.version == version else self.chain(membership)

        return chain

    def _find_chain(self, key: QuotaKey, version: int) -> _Chain:
        """Return the chain of a known quota: its level before the chain of its parent."""
        known = self._chains.get(key)
        if known is None:
            known = self._chains[key] = _Chain((), (), -1)
        if known.version == version:
            return known
        known.version = version
        tree, name = key
        forest = self.demands.forest
        parent = forest.parents.get(name)
        above = self._find_chain((tree, parent), version).levels if parent is not None else ()
        level = self._level(name, forest.runtime(name))
        if not known.levels or known.levels[0] is not level or known.above is not above:
            known.levels, known.above = (level, *above), above
            known.changes += 1
        return known

    def used(self, membership: Membership) -> Amounts:
        """What the quota's sub-tree uses."""
        return self._sum(membership.quota).used if self._is_known((membership.tree, membership.quota)) else {}

    def _is_known(self, key: QuotaKey) -> bool:
        return self.demands.forest.tree_ids.get(key[1]) == key[0]

    def _level(self, name: str, runtime: dict[str, int]) -> QuotaLevel:
        known = self._levels.get(name)
        if known is not None and known.runtime is runtime:
            return known
        quota, held = self.demands.known[name], self._sum(name)
        known = self._levels[name] = QuotaLevel(
            name=name,
            max=quota.max,
            min=quota.min,
            runtime=runtime,
            used=held.used,
            non_preemptible_used=held.non_preemptible,
        )
        return known

    def _path(self, name: str) -> tuple[str, ...]:
        known = self._paths.get(name)
        if known is None:
            parents = self.demands.forest.parents
            path = [name]
            while path[-1] in parents:
                path.append(parents[path[-1]])
            known = self._paths[name] = tuple(path)
        return known

    def _sum(self, name: str) -> _Held:
        known = self._sums.get(name)
        if known is not None:
            return known
        tree = self.demands.forest.tree_ids[name]
        parts = [(quota, self._own[tree, quota]) for quota in sorted(self._descendants(name)) if (tree, quota) in self._own]
        known = self._sums[name] = _Held(
            total(masked(own.used, self._max(quota)) for quota, own in parts),
            total(masked(own.non_preemptible, self._max(quota)) for quota, own in parts),
        )
        return known

    def _max(self, name: str) -> Amounts:
        return self.demands.known[name].max

    def _descendants(self, name: str) -> set[str]:
        found = {name}
        level = [name]
        while level:
            level = [child for quota in level for child in self._below.get(quota, ())]
            found.update(level)
        return found


def _together(changes: list[tuple[Amounts, bool, int]]) -> list[tuple[Amounts, bool, int]]:
    """Add up changes that count the same and follow each other."""
    found = [changes[0]]
    for counted, preemptible, times in changes[1:]:
        last, last_preemptible, so_far = found[-1]
        if (counted is last or counted == last) and preemptible is last_preemptible:
            found[-1] = (last, last_preemptible, so_far + times)
        else:
            found.append((counted, preemptible, times))
    return found

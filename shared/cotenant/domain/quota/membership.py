"""Which quota a pod belongs to.

In: the pod's namespace and labels, and the known quotas. Out: (quota, tree), or None where no quota governs the pod.
The rule, in this order: the pod's label; a quota that lies in the pod's namespace and is named like it; a quota that
lists the pod's namespace in its `namespaces` annotation (the smallest name, if several do); the default quota. A label
that names no known quota counts as none of these: the default quota. Source: Koordinator ElasticQuota,
getPodAssociateQuotaName.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cotenant.domain.quota.names import DEFAULT, DEFAULT_TREE, LABEL_PREEMPTIBLE, LABEL_QUOTA


class Membership(msgspec.Struct, frozen=True, cache_hash=True):
    """The quota that a pod counts in, and that quota's tree."""

    quota: str
    tree: str = DEFAULT_TREE


_IN_DEFAULT = Membership(DEFAULT)


class QuotaIdentity(msgspec.Struct, frozen=True):
    """The part of a quota that the lookup needs."""

    name: str
    namespace: str = ""
    tree: str = DEFAULT_TREE
    namespaces: tuple[str, ...] = ()


class QuotaIndex:
    """The quotas known, indexed for the lookup. `default_quota` False: pods without a known quota are not governed."""

    def __init__(self, quotas: Iterable[QuotaIdentity], default_quota: bool = True) -> None:
        self._default_quota = default_quota
        self._otherwise = _IN_DEFAULT if default_quota else None
        self._known: dict[str, Membership] = {}
        self._own_namespace: set[str] = set()
        self._by_namespace: dict[str, str] = {}
        for quota in sorted(quotas, key=lambda quota: (quota.name, quota.namespace)):
            if quota.name not in self._known:
                self._known[quota.name] = Membership(quota.name, quota.tree)
            if quota.name == quota.namespace:
                self._own_namespace.add(quota.name)
            for namespace in quota.namespaces:
                self._by_namespace.setdefault(namespace, quota.name)

    def lookup(self, namespace: str, labels: Mapping[str, str]) -> str:
        """Return the name of the quota that the pod asks for, known or not; empty if it asks for none and there is no default
        quota."""
        named = labels.get(LABEL_QUOTA, "")
        if named or not self._default_quota:
            return named
        if namespace in self._own_namespace:
            return namespace
        return self._by_namespace.get(namespace, DEFAULT)

    def associate(self, namespace: str, labels: Mapping[str, str]) -> Membership | None:
        """Return the quota that the pod counts in; None where no quota governs it."""
        return self.member(namespace, labels.get(LABEL_QUOTA, ""))

    def member(self, namespace: str, quota_label: str) -> Membership | None:
        """As `associate`, for pods of a namespace that name this quota (empty: none)."""
        if quota_label or not self._default_quota:
            return self._known.get(quota_label) or self._otherwise
        if namespace in self._own_namespace:
            return self._known[namespace]
        bound = self._by_namespace.get(namespace)
        return self._known[bound] if bound is not None else self._otherwise

    def left_for(self, after: QuotaIndex) -> set[Membership | None]:
        """Return the quotas that pods may leave when `after` replaces this index; None: pods that no quota governed. The pods
        of all others stay where they are."""
        left: set[Membership | None] = set() if self._otherwise == after._otherwise else {self._otherwise}
        for name in self._known.keys() | after._known.keys():
            before = self._known.get(name)
            if before != after._known.get(name):
                left.add(before or self._otherwise)
        for namespace in self._bound() | after._bound():
            before = self.member(namespace, "")
            if before != after.member(namespace, ""):
                left.add(before)
        return left

    def _bound(self) -> set[str]:
        return self._own_namespace | self._by_namespace.keys()


NO_QUOTAS = QuotaIndex((), default_quota=False)
"""The index while no quota is declared: no pod is governed by any."""


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Only the label value `false` makes a pod non-preemptible."""
    return labels.get(LABEL_PREEMPTIBLE) != "false"

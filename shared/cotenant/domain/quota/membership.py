"""Which quota a pod belongs to.

In: the pod's namespace and labels, and the known quotas. Out: (quota, tree), or None where no quota governs the pod.
The rule, in this order: the pod's label; a quota that lies in the pod's namespace and is named like it; a quota that
lists the pod's namespace in its `namespaces` annotation (the smallest name, if several do); the default quota. A label
that names no known quota counts as none of these: the default quota. Source: Koordinator ElasticQuota,
getPodAssociateQuotaName.
"""

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
        known = self._known.get(self.lookup(namespace, labels))
        return known or (_IN_DEFAULT if self._default_quota else None)


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Only the label value `false` makes a pod non-preemptible."""
    return labels.get(LABEL_PREEMPTIBLE) != "false"

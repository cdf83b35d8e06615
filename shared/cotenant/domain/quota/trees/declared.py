"""The quotas by name, from their objects: a fold.

In: ElasticQuota objects and their ends. Out: the quota of each name, and which names several quotas have. A quota is
identified by its name alone; of several with one name the one in the smallest namespace counts.
"""

from __future__ import annotations

import msgspec

from cotenant.domain.quota.membership import QuotaIdentity, QuotaIndex
from cotenant.domain.quota.names import DEFAULT, SYSTEM
from cotenant.domain.quota.view import ElasticQuotaView, built_in_quota


class DeclaredQuotas:
    """See the module."""

    def __init__(self) -> None:
        self._views: dict[str, dict[str, tuple[ElasticQuotaView, int]]] = {}
        """By name and namespace; with the object's sequence."""
        self.changed = True
        """Any quota differs from when this was last cleared."""

    def __bool__(self) -> bool:
        return bool(self._views)

    def store(self, view: ElasticQuotaView, sequence: int) -> None:
        """Take over a quota. The charge that admission writes into the object with every pod does not count as a change."""
        view = msgspec.structs.replace(view, charged=None)
        namesakes = self._views.setdefault(view.name, {})
        before = namesakes.get(view.namespace)
        namesakes[view.namespace] = (view, sequence)
        self.changed = self.changed or before is None or before[0] != view

    def drop(self, namespace: str, name: str) -> None:
        """The quota's object has ended."""
        namesakes = self._views.get(name, {})
        if namesakes.pop(namespace, None) is not None:
            self.changed = True
        if not namesakes:
            self._views.pop(name, None)

    def quotas(self) -> dict[str, ElasticQuotaView]:
        """Return the quota of each name, sorted."""
        return {name: min(namesakes.items())[1][0] for name, namesakes in sorted(self._views.items())}

    def sequence(self, name: str, namespace: str | None = None) -> int:
        """Return the sequence of a quota's object, by default that of the one that counts; 0 without one."""
        namesakes = self._views.get(name)
        if not namesakes:
            return 0
        found = namesakes.get(min(namesakes) if namespace is None else namespace)
        return found[1] if found is not None else 0

    def duplicated(self) -> set[str]:
        """Return the names that several quotas have."""
        return {name for name, namesakes in self._views.items() if len(namesakes) > 1}


def with_built_in(quotas: dict[str, ElasticQuotaView]) -> dict[str, ElasticQuotaView]:
    """Return the default and the system quota, as declared or as they are without an object."""
    return {name: quotas.get(name) or built_in_quota(name) for name in (SYSTEM, DEFAULT)}


def index_of(known: dict[str, ElasticQuotaView]) -> QuotaIndex:
    """Return the lookup of a pod's quota among these."""
    return QuotaIndex(QuotaIdentity(q.name, q.namespace, q.tree, q.namespaces) for q in known.values())

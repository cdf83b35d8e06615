"""Quota profiles: the fold over ElasticQuotaProfile objects, and the sums over the nodes that each selects.

In: profiles, and nodes with their labels and amounts. Out: one ProfiledQuota per profile, by its subject. Of profiles that name
one quota of one tree the first in order of namespace and name is used. A node's change costs one step per profile that selects
it, or did. The formula is in `cotenant.domain.quota.profile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from cotenant.api.objects.selectors import selector_holds
from cotenant.domain.quota.profile import ProfileView, profiled_quota
from cotenant.events.quotas import ProfiledQuota
from cotenant.model.amounts import add_to
from cotenant.model.subjects import profiled_quota_subject

ProfileKey = tuple[str, str]
"""Namespace and name."""


class NodeOffer(msgspec.Struct, frozen=True):
    """A node for profiles: its labels, its amounts, and whether pods may be placed on it now."""

    labels: Mapping[str, str]
    amounts: dict[str, int]
    schedulable: bool = True


class _Selected:
    """A profile with its selected nodes."""

    def __init__(self, view: ProfileView, sequence: int) -> None:
        self.view = view
        self.sequence = sequence
        self.offered: dict[str, int] = {}
        self.unschedulable: dict[str, int] = {}
        self.quota: ProfiledQuota | None = None
        """Of these sums; None once they have changed."""

    def count(self, node: NodeOffer, times: int) -> None:
        """Count a node that the profile may select, or stop counting it."""
        if not selector_holds(self.view.selector, node.labels):
            return
        add_to(self.offered, node.amounts, times)
        if not node.schedulable:
            add_to(self.unschedulable, node.amounts, times)
        self.quota = None


class QuotaProfiles:
    """A mutable fold."""

    def __init__(self, every_node: Callable[[], Iterable[tuple[str, NodeOffer]]]) -> None:
        """`every_node` returns all nodes' present amounts; they are counted only while there is a profile."""
        self._every_node = every_node
        self._profiles: dict[ProfileKey, _Selected] = {}
        self._nodes: dict[str, NodeOffer] = {}
        self.version = 0
        """Increases whenever a result may have changed."""

    def declare(self, key: ProfileKey, view: ProfileView | None, sequence: int) -> None:
        """Fold a profile's object; None once it is gone or defines no quota."""
        self.version += 1
        if view is None:
            self._profiles.pop(key, None)
            if not self._profiles:
                self._nodes.clear()
            return
        if not self._profiles:
            self._nodes = dict(self._every_node())
        selected = self._profiles[key] = _Selected(view, sequence)
        for node in self._nodes.values():
            selected.count(node, 1)

    def __bool__(self) -> bool:
        return bool(self._profiles)

    def offer(self, name: str, node: NodeOffer | None) -> None:
        """Fold a node's amounts, while there is a profile; None once it does not count."""
        before = self._nodes.get(name)
        if node == before:
            return
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
        self.version += 1
        for selected in self._profiles.values():
            if before is not None:
                selected.count(before, -1)
            if node is not None:
                selected.count(node, 1)

    def desired(self) -> dict[str, ProfiledQuota]:
        """Return the desired events by subject."""
        found: dict[str, ProfiledQuota] = {}
        for selected in self._in_order():
            if selected.quota is None:
                selected.quota = profiled_quota(selected.view, selected.offered, selected.unschedulable)
            found.setdefault(profiled_quota_subject(selected.view.tree, selected.view.quota), selected.quota)
        return found

    def sequence(self, namespace: str, name: str) -> int:
        """Return the version of a profile's object; 0 if there is none."""
        selected = self._profiles.get((namespace, name))
        return selected.sequence if selected is not None else 0

    def _in_order(self) -> Iterable[_Selected]:
        return (self._profiles[key] for key in sorted(self._profiles))

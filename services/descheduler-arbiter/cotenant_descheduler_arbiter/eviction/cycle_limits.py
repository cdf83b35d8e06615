"""How many pods one descheduling cycle may evict: totals per node, per namespace and over all.

An eviction is refused when it would make a count larger than its limit; no limit means unlimited. A pod without a node
counts for its namespace and the total only. Refusals are checked in the order node, namespace, total.

Source: koord-descheduler eviction limiter.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant_descheduler_arbiter.config.policy import CycleLimits


class CycleCounts:
    """The eviction counts of the cycle in progress."""

    def __init__(self, limits: CycleLimits, evicted: Iterable[tuple[str, str]] = ()) -> None:
        """`evicted`: (node, namespace) of the cycle's earlier evictions."""
        self.limits = limits
        self.per_node: dict[str, int] = {}
        self.per_namespace: dict[str, int] = {}
        self.total = 0
        for node, namespace in evicted:
            self.count(node, namespace)

    def refusal(self, node: str, namespace: str) -> str | None:
        """Return why one more eviction is refused, or None."""
        limits = self.limits
        if node and self.node_full(node):
            return f"node {node} has reached its {limits.max_no_of_pods_to_evict_per_node} evictions of this cycle"
        if self.namespace_full(namespace):
            return (
                f"namespace {namespace} has reached its {limits.max_no_of_pods_to_evict_per_namespace} evictions "
                "of this cycle"
            )
        if _full(self.total, limits.max_no_of_pods_to_evict_total):
            return f"this cycle has reached its {limits.max_no_of_pods_to_evict_total} evictions"
        return None

    def count(self, node: str, namespace: str) -> None:
        """Count one eviction."""
        if node:
            self.per_node[node] = self.per_node.get(node, 0) + 1
        self.per_namespace[namespace] = self.per_namespace.get(namespace, 0) + 1
        self.total += 1

    def node_full(self, node: str) -> bool:
        """Whether the node has no eviction left in this cycle."""
        return _full(self.per_node.get(node, 0), self.limits.max_no_of_pods_to_evict_per_node)

    def namespace_full(self, namespace: str) -> bool:
        """Whether the namespace has no eviction left in this cycle."""
        return _full(self.per_namespace.get(namespace, 0), self.limits.max_no_of_pods_to_evict_per_namespace)


def _full(count: int, limit: int | None) -> bool:
    return limit is not None and count + 1 > limit

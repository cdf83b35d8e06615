"""The total of each tree.

In: the cluster's total, and the quotas. Out: the total of every tree id. The root quota of a tree other than the default one
has its total in an annotation; it is subtracted from the default tree's total, unless another annotation of the root disables
that. The default tree has the rest, and the usage of the default and the system quota is subtracted before sharing. A
total may be negative; nothing is shared then. Source: Koordinator
ElasticQuota, multi quota tree.
"""

from collections.abc import Mapping

from cotenant.domain.quota.names import DEFAULT_TREE, ROOT
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, minus
from cotenant.model.amounts import total as sum_of


def tree_totals(cluster: Amounts, quotas: Mapping[str, ElasticQuotaView]) -> dict[str, dict[str, int]]:
    """Return the total by tree id; empty for a tree whose root names none."""
    totals: dict[str, dict[str, int]] = {DEFAULT_TREE: dict(cluster)}
    for name in sorted(quotas):
        quota = quotas[name]
        if not quota.tree:
            continue
        totals.setdefault(quota.tree, {})
        if quota.parent == ROOT and quota.is_tree_root and quota.tree_total is not None:
            totals[quota.tree] = sum_of([totals[quota.tree], quota.tree_total])
            if not quota.ignores_default_tree:
                totals[DEFAULT_TREE] = minus(totals[DEFAULT_TREE], quota.tree_total)
    return totals


def available(total: Amounts, used_by_built_in: Amounts) -> dict[str, int]:
    """The default tree's shareable total: its total minus the usage of the default and system quota."""
    return minus(total, used_by_built_in)

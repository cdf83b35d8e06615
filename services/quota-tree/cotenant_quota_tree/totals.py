"""How much each tree may distribute.

In: what the cluster's nodes offer, and the quotas. Out: the total of every tree id. The root quota of a tree other
than the default one names its total in an annotation; that total is taken off the default tree, unless the root says
that it is not to be. The default tree has what is left. What the default and the system quota use is then taken off
the default tree's total before it is shared. A total may be negative; nothing is shared then. Source: Koordinator
ElasticQuota, multi quota tree.
"""

from collections.abc import Mapping

from cotenant.domain.quota.names import DEFAULT_TREE, ROOT
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, minus
from cotenant.model.amounts import total as sum_of


def tree_totals(cluster: Amounts, quotas: Mapping[str, ElasticQuotaView]) -> dict[str, dict[str, int]]:
    """The total by tree id; a tree whose root names none has nothing."""
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
    """What the default tree shares: its total without what the default and system quota use."""
    return minus(total, used_by_built_in)

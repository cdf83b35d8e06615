"""All quota trees in published form: one QuotaRuntime per quota, by subject.

In: the declared quotas by name, the cluster's total, per quota the sums over its own pods. Out: the desired events. While any
quota is declared there is one event for the root of each tree, and in the default tree one each for the default and the system
quota.
"""

from collections.abc import Collection, Mapping
from functools import partial

from cotenant.domain.quota.cached import Cached
from cotenant.domain.quota.names import DEFAULT_TREE, ROOT
from cotenant.domain.quota.sums import OwnPods
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.amounts import Amounts
from cotenant.model.subjects import quota_subject
from cotenant_quota_tree.hierarchy import build_trees
from cotenant_quota_tree.solution import Rules, SolvedQuota, TreeSolution
from cotenant_quota_tree.totals import tree_totals

DUPLICATE_NAME = "DuplicateName"


class Forest:
    """The trees of one set of quotas. `built_in`: default and system quota; `duplicated`: names that several quotas have."""

    def __init__(
        self,
        quotas: Mapping[str, ElasticQuotaView],
        built_in: Mapping[str, ElasticQuotaView],
        duplicated: Collection[str],
        rules: Rules,
    ) -> None:
        self._totals = Cached(partial(tree_totals, quotas=quotas))
        self._trees: list[tuple[str, TreeSolution]] = []
        self._publishers: dict[tuple[str, str], tuple[str, Cached[SolvedQuota, QuotaRuntime]]] = {}
        for tree_id, tree in build_trees(quotas).items() if quotas else ():
            apart = built_in if tree_id == DEFAULT_TREE else {}
            self._trees.append((tree_id, TreeSolution(tree, apart, rules)))
            for name in (ROOT, *apart, *(node.name for node in tree.nodes)):
                runtime_of = Cached(partial(_runtime, tree_id, quotas.get(name) or apart.get(name), name in duplicated))
                self._publishers[tree_id, name] = quota_subject(tree_id, name), runtime_of

    def runtimes(self, cluster: Amounts, own: Mapping[str, OwnPods]) -> dict[str, QuotaRuntime]:
        """Return the desired events by subject; unchanged ones are the same structs as before."""
        totals = self._totals(cluster)
        found: dict[str, QuotaRuntime] = {}
        for tree_id, tree in self._trees:
            for name, quota in tree.solve(totals[tree_id], own).items():
                subject, runtime_of = self._publishers[tree_id, name]
                found[subject] = runtime_of(quota)
        return found


def _runtime(tree: str, view: ElasticQuotaView | None, duplicated: bool, quota: SolvedQuota) -> QuotaRuntime:
    return QuotaRuntime(
        tree=tree,
        quota=quota.name,
        namespace=view.namespace if view else "",
        parent=quota.parent,
        is_parent=view.is_parent if view else quota.name == ROOT,
        lends=view.lends if view else True,
        namespaces=view.namespaces if view else (),
        min=_in_order(quota.min),
        scaled_min=_in_order(quota.scaled_min),
        max=_in_order(quota.max),
        shared_weight=_in_order(view.shared_weight if view else {}),
        runtime=_in_order(quota.runtime),
        request=_in_order(quota.sums.request),
        child_request=_in_order(quota.sums.child_request),
        used=_in_order(quota.sums.used),
        non_preemptible_request=_in_order(quota.sums.non_preemptible_request),
        non_preemptible_used=_in_order(quota.sums.non_preemptible_used),
        allocated=_in_order(quota.sums.allocated),
        guaranteed=_in_order(quota.sums.guaranteed),
        overused=quota.overused,
        total=_in_order(quota.runtime if quota.name == ROOT else {}),
        reason=quota.reason or (DUPLICATE_NAME if duplicated else ""),
    )


def _in_order(amounts: Amounts) -> dict[str, int]:
    """Sort resources by name: sums have them in order of pod arrival, and equal states must encode to equal bytes."""
    return dict(sorted(amounts.items()))

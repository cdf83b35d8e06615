"""All quota trees: the trees of one set of quotas, and their totals.

In: the declared quotas by name, the default and the system quota, what the nodes offer, changes of what pods request and
hold. Out: runtimes by quota. While any quota is declared there is a root in each tree, and in the default tree the two
built-in quotas.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cotenant.domain.quota.names import DEFAULT_TREE, ROOT
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.domain.quota.trees.hierarchy import build_trees
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.totals import tree_totals
from cotenant.domain.quota.trees.tree import QuotaTree
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts

_NOTHING: dict[str, int] = {}


class Forest:
    """See the module. Empty without a declared quota."""

    def __init__(
        self,
        quotas: Mapping[str, ElasticQuotaView],
        built_in: Mapping[str, ElasticQuotaView],
        rules: QuotaRules,
        *,
        usage: bool = True,
    ) -> None:
        """`usage`: see `QuotaTree`."""
        self._declared = quotas
        self._trees: dict[str, QuotaTree] = {}
        self._tree_of: dict[str, QuotaTree] = {}
        self.tree_ids: dict[str, str] = {}
        """The tree of each quota, without the roots."""
        self.parents: dict[str, str] = {}
        """The parent of each quota that is not directly below a root."""
        self._cluster: Amounts | None = None
        for tree_id, tree in build_trees(quotas).items() if quotas else ():
            built = self._trees[tree_id] = QuotaTree(
                tree, built_in if tree_id == DEFAULT_TREE else {}, rules, usage=usage
            )
            self.parents.update((node.name, node.parent) for node in tree.nodes if node.parent != ROOT)
            for name in built.names():
                if name != ROOT:
                    self._tree_of[name] = built
                    self.tree_ids[name] = tree_id

    def offer(self, cluster: Amounts) -> None:
        """Take over what all nodes offer."""
        if self._trees and cluster != self._cluster:
            self._cluster = cluster
            for tree_id, total in tree_totals(cluster, self._declared).items():
                if tree_id in self._trees:
                    self._trees[tree_id].set_total(total)

    def ask(self, quota: str, request: Amounts, preemptible: bool, times: int) -> None:
        """Count so many pods of a quota by what each requests, reduced to the resources of its max."""
        self._tree_of[quota].ask(quota, request, preemptible, times)

    def hold(self, quota: str, request: Amounts, preemptible: bool, times: int) -> bool:
        """As `ask`, for pods that are placed; return whether that matters to what is kept."""
        return self._tree_of[quota].hold(quota, request, preemptible, times)

    def runtime(self, quota: str) -> dict[str, int]:
        """Return what a quota may use now; the same object as long as it does not change. Nothing for an unknown one."""
        tree = self._tree_of.get(quota)
        return tree.runtime(quota) if tree is not None else _NOTHING

    def solved(self, quota: str, tree: str = DEFAULT_TREE) -> SolvedQuota | None:
        """Return everything about a quota; `tree`: of which root, where its name is the root's. None for an unknown one."""
        found = self._trees.get(tree) if quota == ROOT else self._tree_of.get(quota)
        return found.solved(quota) if found is not None else None

    def changed(self) -> Iterator[tuple[str, SolvedQuota]]:
        """Walk the quotas of which anything changed since the last call, with their trees, in a stated order; all of them the
        first time."""
        for tree_id, tree in self._trees.items():
            for name in sorted(tree.changed()):
                yield tree_id, tree.solved(name)

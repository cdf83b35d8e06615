"""Resolves each quota's parent: one valid tree per tree id, whatever parents the objects name.

In: the declared quotas by name. Out: per tree id the quotas with their effective parent, and a reason for each quota whose
effective parent differs from its declared one. The rules, none of which affects other quotas of the tree:

- A quota whose parent does not exist is placed below the root until the parent appears (`ParentNotFound`).
- A quota whose parent is in another tree, or is the default or the system quota, is placed below the root of its own tree
  (`ParentInAnotherTree`, `ParentIsBuiltIn`).
- Of the quotas on a cycle, the one with the smallest name is placed below the root (`ParentCycle`); the others keep their
  parents.
- The default and the system quota exist only in the default tree and take no part in the sharing: their usage is
  subtracted from the total first, and their runtime is their max.

A parent without `is-parent` is accepted here; only admission refuses it.
"""

from collections.abc import Mapping

import msgspec

from cotenant.domain.quota.names import DEFAULT, DEFAULT_TREE, ROOT, SYSTEM
from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.view import ElasticQuotaView

PARENT_NOT_FOUND = "ParentNotFound"
PARENT_IN_ANOTHER_TREE = "ParentInAnotherTree"
PARENT_IS_BUILT_IN = "ParentIsBuiltIn"
PARENT_CYCLE = "ParentCycle"


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """The sharing quotas of one tree id, sorted by name; `reasons`: quotas that are not below their declared parent."""

    nodes: tuple[QuotaNode, ...]
    reasons: dict[str, str]


def build_trees(quotas: Mapping[str, ElasticQuotaView]) -> dict[str, Tree]:
    """The trees by tree id, sorted; the default tree always exists."""
    by_tree: dict[str, list[ElasticQuotaView]] = {DEFAULT_TREE: []}
    for name in sorted(quotas):
        if name not in (ROOT, SYSTEM, DEFAULT):
            by_tree.setdefault(quotas[name].tree, []).append(quotas[name])
    return {tree: _tree(members, quotas) for tree, members in sorted(by_tree.items())}


def _tree(members: list[ElasticQuotaView], everything: Mapping[str, ElasticQuotaView]) -> Tree:
    by_name = {quota.name: quota for quota in members}
    parents: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for quota in members:
        parents[quota.name] = quota.parent
        reason = _misplaced(quota, by_name, everything)
        if reason:
            parents[quota.name], reasons[quota.name] = ROOT, reason
    for name in _cycle_heads(parents):
        parents[name], reasons[name] = ROOT, PARENT_CYCLE
    nodes = tuple(
        QuotaNode(
            name=quota.name,
            parent=parents[quota.name],
            min=quota.min,
            max=quota.max,
            shared_weight=quota.shared_weight,
            lends=quota.lends,
        )
        for quota in members
    )
    return Tree(nodes=nodes, reasons=reasons)


def _misplaced(
    quota: ElasticQuotaView, tree: Mapping[str, ElasticQuotaView], everything: Mapping[str, ElasticQuotaView]
) -> str:
    if quota.parent == ROOT or quota.parent in tree:
        return ""
    if quota.parent in (SYSTEM, DEFAULT):
        return PARENT_IS_BUILT_IN
    return PARENT_IN_ANOTHER_TREE if quota.parent in everything else PARENT_NOT_FOUND


def _cycle_heads(parents: Mapping[str, str]) -> list[str]:
    """The smallest name of each cycle."""
    heads: list[str] = []
    settled: set[str] = {ROOT}
    for start in sorted(parents):
        path: dict[str, int] = {}
        name = start
        while name not in settled and name not in path:
            path[name] = len(path)
            name = parents[name]
        if name in path:
            heads.append(min(list(path)[path[name] :]))
        settled.update(path)
    return heads

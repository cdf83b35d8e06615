"""One tree solved: sums, scaled mins and runtimes of all its quotas, from its total and its pods.

In: the tree (quotas with effective parents), its total, per quota the sums over its own pods, and for the default tree the
default and the system quota. Out: one `SolvedQuota` per quota, including the root and the built-in quotas. It composes the
rules in `cotenant.domain.quota.sums`, `totals`, `scale_min` and `share`; the result depends on these inputs only.
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from cotenant.domain.quota.cached import Cached
from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.sums import NO_PODS, OwnPods, QuotaNode, QuotaSums, TreeSums
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, exceeding
from cotenant.model.amounts import total as sum_of
from cotenant_quota_tree.hierarchy import Tree
from cotenant_quota_tree.runtime import QuotaShare, TreeShares
from cotenant_quota_tree.terminating import Terminating
from cotenant_quota_tree.totals import available


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Configurable rules. `guarantee_usage`: capacity in use is not shared with other quotas (mins are then not scaled in
    effect).
    """

    scale_min: bool = True
    guarantee_usage: bool = False
    terminating: Terminating = Terminating.COUNT
    """Whether terminating pods count."""
    ignore_overhead: bool = False
    """What a pod's runtime class adds does not count."""


class SolvedQuota(msgspec.Struct, frozen=True, kw_only=True):
    """One quota. Amounts: cpu in milli-cores, everything else in base units; `runtime` has the resources of max."""

    name: str
    parent: str = ""
    reason: str = ""
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    scaled_min: dict[str, int] = {}
    runtime: dict[str, int] = {}
    sums: QuotaSums = QuotaSums()
    overused: tuple[str, ...] = ()
    """Resources in which used is above runtime, sorted."""


class TreeSolution:
    """Solves one tree. `built_in`: default and system quota in the default tree, empty in any other."""

    def __init__(self, tree: Tree, built_in: Mapping[str, ElasticQuotaView], rules: Rules) -> None:
        self._sums = TreeSums(tree.nodes, guarantee_usage=rules.guarantee_usage)
        self._shares = TreeShares(tree.nodes, scale_min=rules.scale_min)
        self._built_in = {name: Cached(partial(_built_in, view)) for name, view in sorted(built_in.items())}
        self._built_in_together = Cached(_together)
        self._distributable = Cached(available)
        self._root = Cached(_root)
        self._quotas = {node.name: Cached(partial(_quota, node, tree.reasons.get(node.name, ""))) for node in tree.nodes}

    def solve(self, total: Amounts, own: Mapping[str, OwnPods]) -> dict[str, SolvedQuota]:
        """Return all quotas of the tree by name; unchanged ones are the same structs as before."""
        apart = {name: built_in(own.get(name, NO_PODS)) for name, built_in in self._built_in.items()}
        at_root = self._built_in_together(tuple(quota.sums.own for quota in apart.values()))
        sums = self._sums.of({**own, ROOT: at_root})
        distributable = self._distributable(total, at_root.used)
        shares = self._shares.of(distributable, sums)
        inside = {name: quota(sums[name], shares[name]) for name, quota in self._quotas.items()}
        return {ROOT: self._root(distributable, sums[ROOT], at_root), **apart, **inside}


def inside_used(root: QuotaSums, apart: OwnPods) -> dict[str, int]:
    """Usage of the sharing quotas: the root's used without the built-in quotas'."""
    return {resource: amount - apart.used.get(resource, 0) for resource, amount in root.used.items()}


def _root(distributable: dict[str, int], sums: QuotaSums, apart: OwnPods) -> SolvedQuota:
    overused = exceeding(inside_used(sums, apart), distributable)
    return SolvedQuota(name=ROOT, runtime=distributable, sums=sums, overused=overused)


def _built_in(view: ElasticQuotaView, pods: OwnPods) -> SolvedQuota:
    sums = TreeSums([QuotaNode(name=view.name, max=view.max, min=view.min)]).of({view.name: pods})[view.name]
    return SolvedQuota(
        name=view.name,
        parent=ROOT,
        min=view.min,
        max=view.max,
        scaled_min=view.min,
        runtime=view.max,
        sums=sums,
        overused=exceeding(sums.used, view.max),
    )


def _quota(node: QuotaNode, reason: str, sums: QuotaSums, share: QuotaShare) -> SolvedQuota:
    # A resource that the parent does not list is not distributed below it.
    runtime = {resource: share.runtime.get(resource, 0) for resource in node.max}
    return SolvedQuota(
        name=node.name,
        parent=node.parent,
        reason=reason,
        min=node.min,
        max=node.max,
        scaled_min=share.scaled_min,
        runtime=runtime,
        sums=sums,
        overused=exceeding(sums.used, runtime),
    )


def _together(parts: tuple[OwnPods, ...]) -> OwnPods:
    return OwnPods(
        request=sum_of(part.request for part in parts),
        used=sum_of(part.used for part in parts),
        non_preemptible_request=sum_of(part.non_preemptible_request for part in parts),
        non_preemptible_used=sum_of(part.non_preemptible_used for part in parts),
    )

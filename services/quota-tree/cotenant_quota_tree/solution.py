"""One tree solved: sums, scaled mins and runtimes of all its quotas, from its total and its pods.

In: the tree (quotas at their effective places), its total, per quota the sums over its own pods, and for the default
tree the default and the system quota. Out: one `SolvedQuota` per quota, the root's and the built-in quotas' included.
This is the composition of the rules in `cotenant.quota.sums`, `totals`, `scale_min`, `share`; it holds no state, so
what it returns is always that of the facts given.
"""

from collections.abc import Mapping

import msgspec

from cotenant.quota.amounts import Amounts, exceeding, masked
from cotenant.quota.amounts import total as sum_of
from cotenant.quota.names import ROOT
from cotenant.quota.sums import OwnPods, QuotaNode, QuotaSums, aggregate
from cotenant.quota.view import ElasticQuotaView
from cotenant_quota_tree.hierarchy import Tree
from cotenant_quota_tree.runtime import tree_runtime
from cotenant_quota_tree.totals import available


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation chooses. `guarantee_usage`: what is used cannot be shared away (then mins are not scaled in
    effect).
    """

    scale_min: bool = True
    guarantee_usage: bool = False


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


def solve_tree(
    total: Amounts,
    tree: Tree,
    own: Mapping[str, OwnPods],
    built_in: Mapping[str, ElasticQuotaView],
    rules: Rules,
) -> dict[str, SolvedQuota]:
    """All quotas of the tree by name. `built_in`: default and system quota in the default tree, empty in any other."""
    apart = {name: _built_in_sums(built_in[name], own.get(name, OwnPods())) for name in sorted(built_in)}
    at_root = {ROOT: _together([part.own for part in apart.values()])}
    inside = {name: pods for name, pods in own.items() if name not in built_in}
    sums = aggregate(tree.nodes, {**inside, **at_root}, guarantee_usage=rules.guarantee_usage)
    distributable = available(total, sum_of(part.used for part in apart.values()))
    shares = tree_runtime(distributable, tree.nodes, sums, scale_min=rules.scale_min)
    solved = {
        ROOT: SolvedQuota(
            name=ROOT,
            runtime=distributable,
            sums=sums[ROOT],
            overused=exceeding(inside_used(sums[ROOT], at_root[ROOT]), distributable),
        )
    }
    for name, view in sorted(built_in.items()):
        solved[name] = SolvedQuota(
            name=name,
            parent=ROOT,
            min=view.min,
            max=view.max,
            scaled_min=view.min,
            runtime=view.max,
            sums=apart[name],
            overused=exceeding(apart[name].used, view.max),
        )
    for node in tree.nodes:
        share = shares[node.name]
        runtime = masked(share.runtime, node.max)
        # Below a parent that does not list a resource nothing of it was distributed.
        runtime = {resource: runtime.get(resource, 0) for resource in node.max}
        solved[node.name] = SolvedQuota(
            name=node.name,
            parent=node.parent,
            reason=tree.reasons.get(node.name, ""),
            min=node.min,
            max=node.max,
            scaled_min=share.scaled_min,
            runtime=runtime,
            sums=sums[node.name],
            overused=exceeding(sums[node.name].used, runtime),
        )
    return solved


def inside_used(root: QuotaSums, apart: OwnPods) -> dict[str, int]:
    """What the quotas that share use: the root's used without the built-in quotas'."""
    return {resource: amount - apart.used.get(resource, 0) for resource, amount in root.used.items()}


def _built_in_sums(view: ElasticQuotaView, pods: OwnPods) -> QuotaSums:
    node = QuotaNode(name=view.name, max=view.max, min=view.min, lends=True)
    return aggregate([node], {view.name: pods})[view.name]


def _together(parts: list[OwnPods]) -> OwnPods:
    return OwnPods(
        request=sum_of(part.request for part in parts),
        used=sum_of(part.used for part in parts),
        non_preemptible_request=sum_of(part.non_preemptible_request for part in parts),
        non_preemptible_used=sum_of(part.non_preemptible_used for part in parts),
    )

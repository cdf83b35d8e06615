"""A whole tree solved from scratch, formula by formula: the incremental one is held against it. Slow and plain on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.sums import OwnPods, QuotaNode, QuotaSums
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.domain.quota.trees.hierarchy import Tree
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.scale_min import MinOf, scale_mins
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import Amounts, exceeding, larger, limited, masked, minus, total, without_zeros
from tests.unit.quota_tree.plain_share import plain_share

NO_PODS = OwnPods()


def plain_sums(nodes: Sequence[QuotaNode], own: Mapping[str, OwnPods], guarantee: bool) -> dict[str, QuotaSums]:
    """The sums of every quota, and of the root, bottom-up."""
    found: dict[str, QuotaSums] = {}

    def visit(node: QuotaNode) -> QuotaSums:
        below = [visit(child) for child in nodes if child.parent == node.name]
        mine = own.get(node.name, NO_PODS)
        child_request = total([mine.request, *(part.limit_request for part in below)])
        request = child_request if node.lends and not guarantee else larger(child_request, node.min)
        allocated: Amounts = {}
        guaranteed: Amounts = {}
        if guarantee:
            used = mine.used if node.name == ROOT else masked(mine.used, {**node.max, **node.min})
            allocated = total([used, *(part.guaranteed for part in below)])
            guaranteed = larger(allocated, node.min)
        found[node.name] = QuotaSums(
            own=mine,
            child_request=without_zeros(child_request),
            request=without_zeros(dict(request)),
            limit_request=without_zeros(limited(request, node.max)),
            used=without_zeros(total([mine.used, *(part.used for part in below)])),
            non_preemptible_request=without_zeros(
                total([mine.non_preemptible_request, *(part.non_preemptible_request for part in below)])
            ),
            non_preemptible_used=without_zeros(
                total([mine.non_preemptible_used, *(part.non_preemptible_used for part in below)])
            ),
            allocated=without_zeros(dict(allocated)),
            guaranteed=without_zeros(dict(guaranteed)),
        )
        return found[node.name]

    visit(QuotaNode(name=ROOT, parent=""))
    return found


def plain_shares(
    nodes: Sequence[QuotaNode], whole: Amounts, sums: Mapping[str, QuotaSums], scale_min: bool
) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Scaled min and runtime of every quota, top-down."""
    found: dict[str, tuple[dict[str, int], dict[str, int]]] = {}

    def visit(parent: str, resources: Sequence[str], distributable: Amounts) -> None:
        children = sorted((node for node in nodes if node.parent == parent), key=lambda node: node.name)
        if not children:
            return
        mins = {
            child.name: {resource: min(amount, child.max.get(resource, amount)) for resource, amount in child.min.items()}
            for child in children
        }
        if scale_min:
            known = {**dict.fromkeys(resources, 0), **distributable}
            scaled = scale_mins(known, [MinOf(name=name, min=each) for name, each in mins.items()])
            mins = {name: each or {} for name, each in scaled.items()}
        runtimes: dict[str, dict[str, int]] = {child.name: {} for child in children}
        for resource in resources:
            shared = plain_share(
                distributable.get(resource, 0),
                [child.shared_weight.get(resource, 0) for child in children],
                [sums[child.name].limit_request.get(resource, 0) for child in children],
                [
                    max(mins[child.name].get(resource, 0), sums[child.name].guaranteed.get(resource, 0))
                    for child in children
                ],
                [child.lends for child in children],
            )
            for child, amount in zip(children, shared, strict=True):
                runtimes[child.name][resource] = amount
        for child in children:
            found[child.name] = (mins[child.name], runtimes[child.name])
            visit(child.name, sorted(child.max), runtimes[child.name])

    visit(ROOT, sorted({resource for node in nodes for resource in node.max}), whole)
    return found


def plain_tree(
    tree: Tree, built_in: Mapping[str, ElasticQuotaView], rules: QuotaRules, whole: Amounts, own: Mapping[str, OwnPods]
) -> dict[str, SolvedQuota]:
    """All quotas of a tree by name."""
    apart = [own.get(name, NO_PODS) for name in built_in]
    at_root = OwnPods(
        request=total(part.request for part in apart),
        used=total(part.used for part in apart),
        non_preemptible_request=total(part.non_preemptible_request for part in apart),
        non_preemptible_used=total(part.non_preemptible_used for part in apart),
    )
    sums = plain_sums(tree.nodes, {**own, ROOT: at_root}, rules.guarantee_usage)
    distributable = minus(whole, at_root.used)
    shares = plain_shares(tree.nodes, distributable, sums, rules.scale_min)
    inside = minus(sums[ROOT].used, at_root.used)
    found = {
        ROOT: SolvedQuota(name=ROOT, runtime=distributable, sums=sums[ROOT], overused=exceeding(inside, distributable))
    }
    for name, view in built_in.items():
        node = QuotaNode(name=name, max=view.max, min=view.min)
        found[name] = _solved(node, "", view.min, view.max, plain_sums([node], own, False)[name])
    for node in tree.nodes:
        scaled, shared = shares[node.name]
        runtime = {resource: shared.get(resource, 0) for resource in node.max}
        found[node.name] = _solved(node, tree.reasons.get(node.name, ""), scaled, runtime, sums[node.name])
    return found


def _solved(node: QuotaNode, reason: str, scaled: dict[str, int], runtime: dict[str, int], sums: QuotaSums) -> SolvedQuota:
    return SolvedQuota(
        name=node.name,
        parent=node.parent,
        reason=reason,
        min=node.min,
        max=node.max,
        scaled_min=scaled,
        runtime=runtime,
        sums=sums,
        overused=exceeding(sums.used, runtime),
    )

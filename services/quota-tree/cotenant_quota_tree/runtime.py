"""Runtime quotas of a whole tree, top-down.

In: what the root may distribute, the quotas with their place in the tree, and their sums (requests limited by max,
usage guarantees). Out: scaled min and runtime of every quota. At each parent: the children's mins are scaled against
what the parent has, then each resource of the parent is shared among them by weight; what a child receives is what its
own children share.

The resources shared below a parent are those of its max; below the root, those of any quota's max in the tree. A
resource of which the root has nothing counts as zero, so that no quota is promised what no node offers; the sum of the
children's runtimes never exceeds their parent's while mins are scaled. Source: Koordinator ElasticQuota,
refreshRuntime in its converged state (all siblings refreshed against the same total).
"""

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.quota.amounts import Amounts
from cotenant.quota.names import ROOT
from cotenant.quota.sums import QuotaNode, QuotaSums
from cotenant_quota_tree.scale_min import MinOf, scale_mins
from cotenant_quota_tree.share import Sibling, share


class QuotaShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one quota gets. Amounts: cpu in milli-cores, everything else in base units."""

    scaled_min: dict[str, int]
    runtime: dict[str, int]


def tree_runtime(
    total: Amounts, quotas: Sequence[QuotaNode], sums: Mapping[str, QuotaSums], *, scale_min: bool = True
) -> dict[str, QuotaShare]:
    """The share of every quota by name; `quotas` must form a tree below the root, `sums` is `aggregate` of them."""
    children: dict[str, list[QuotaNode]] = {}
    for quota in sorted(quotas, key=lambda quota: quota.name):
        children.setdefault(quota.parent, []).append(quota)
    every_resource = sorted({resource for quota in quotas for resource in quota.max})
    shares: dict[str, QuotaShare] = {}
    parents: list[tuple[str, Amounts, Sequence[str]]] = [(ROOT, total, every_resource)]
    while parents:
        name, distributable, resources = parents.pop()
        siblings = children.get(name, [])
        if not siblings:
            continue
        shared = _among(distributable, resources, siblings, sums, scale_min)
        shares.update(shared)
        parents += [(child.name, shared[child.name].runtime, sorted(child.max)) for child in siblings]
    return shares


def _among(
    distributable: Amounts,
    resources: Sequence[str],
    siblings: Sequence[QuotaNode],
    sums: Mapping[str, QuotaSums],
    scale_min: bool,
) -> dict[str, QuotaShare]:
    mins = {sibling.name: _min_within_max(sibling) for sibling in siblings}
    if scale_min:
        known = {**dict.fromkeys(resources, 0), **distributable}
        scaled = scale_mins(known, [MinOf(name=name, min=minimum) for name, minimum in mins.items()])
        mins = {name: minimum if minimum is not None else mins[name] for name, minimum in scaled.items()}
    runtime: dict[str, dict[str, int]] = {sibling.name: {} for sibling in siblings}
    for resource in resources:
        contenders = [
            Sibling(
                name=sibling.name,
                weight=sibling.shared_weight.get(resource, 0),
                request=sums[sibling.name].limit_request.get(resource, 0),
                floor=max(mins[sibling.name].get(resource, 0), sums[sibling.name].guaranteed.get(resource, 0)),
                lends=sibling.lends,
            )
            for sibling in siblings
        ]
        for name, amount in share(distributable.get(resource, 0), contenders).runtime.items():
            runtime[name][resource] = amount
    return {sibling.name: QuotaShare(scaled_min=mins[sibling.name], runtime=runtime[sibling.name]) for sibling in siblings}


def _min_within_max(quota: QuotaNode) -> dict[str, int]:
    # A min above max is refused at admission; one that came another way must not lift the runtime above max.
    return {resource: min(amount, quota.max.get(resource, amount)) for resource, amount in quota.min.items()}

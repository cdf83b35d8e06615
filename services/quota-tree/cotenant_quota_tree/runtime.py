"""Runtime quotas of a whole tree, top-down.

In: the root's total, the quotas with their parents, and their sums (requests limited by max, usage guarantees). Out: scaled
min and runtime of every quota. At each parent the children's mins are scaled to the parent's runtime, then each resource of
the parent is shared among them by weight; a child's runtime is the total of its own children.

The resources shared below a parent are those of its max; below the root, those of any quota's max in the tree. A resource
that the root lacks counts as zero, so that no quota has a runtime that no node offers; the sum of the children's runtimes
never exceeds their parent's while mins are scaled. Source: Koordinator ElasticQuota,
refreshRuntime in its converged state (all siblings refreshed against the same total).
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from cotenant.domain.quota.cached import Cached
from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.sums import QuotaNode, QuotaSums
from cotenant.model.amounts import Amounts
from cotenant_quota_tree.scale_min import MinOf, scale_mins
from cotenant_quota_tree.share import Sibling, share


class QuotaShare(msgspec.Struct, frozen=True, kw_only=True):
    """The shares of one quota. Amounts: cpu in milli-cores, everything else in base units."""

    scaled_min: dict[str, int]
    runtime: dict[str, int]


Wants = tuple[Amounts, Amounts]
"""The inputs of a quota's share among its sums: the request limited by max, the usage guarantee."""


class TreeShares:
    """The shares of one tree's quotas, which must form a tree below the root. A parent's runtime is shared again if it or a
    child's request changed."""

    def __init__(self, quotas: Sequence[QuotaNode], *, scale_min: bool = True) -> None:
        children: dict[str, list[QuotaNode]] = {}
        for quota in sorted(quotas, key=lambda quota: quota.name):
            children.setdefault(quota.parent, []).append(quota)
        every_resource = sorted({resource for quota in quotas for resource in quota.max})
        self._downwards: list[tuple[str, list[str], Cached[Amounts, tuple[Wants, ...], dict[str, QuotaShare]]]] = []
        parents: list[tuple[str, Sequence[str]]] = [(ROOT, every_resource)]
        while parents:
            name, resources = parents.pop()
            siblings = children.get(name, [])
            if siblings:
                among = Cached(partial(_among, resources, siblings, scale_min))
                self._downwards.append((name, [sibling.name for sibling in siblings], among))
                parents += [(child.name, sorted(child.max)) for child in siblings]

    def of(self, total: Amounts, sums: Mapping[str, QuotaSums]) -> dict[str, QuotaShare]:
        """Return the share of every quota by name; `sums` comes from `TreeSums`."""
        shares: dict[str, QuotaShare] = {}
        for parent, children, among in self._downwards:
            distributable = total if parent == ROOT else shares[parent].runtime
            shares.update(among(distributable, tuple((sums[name].limit_request, sums[name].guaranteed) for name in children)))
        return shares


def _among(
    resources: Sequence[str],
    siblings: Sequence[QuotaNode],
    scale_min: bool,
    distributable: Amounts,
    wants: tuple[Wants, ...],
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
                request=request.get(resource, 0),
                floor=max(mins[sibling.name].get(resource, 0), guaranteed.get(resource, 0)),
                lends=sibling.lends,
            )
            for sibling, (request, guaranteed) in zip(siblings, wants, strict=True)
        ]
        for name, amount in share(distributable.get(resource, 0), contenders).runtime.items():
            runtime[name][resource] = amount
    return {sibling.name: QuotaShare(scaled_min=mins[sibling.name], runtime=runtime[sibling.name]) for sibling in siblings}


def _min_within_max(quota: QuotaNode) -> dict[str, int]:
    # Admission refuses a min above max; one from another writer must not raise the runtime above max.
    return {resource: min(amount, quota.max.get(resource, amount)) for resource, amount in quota.min.items()}

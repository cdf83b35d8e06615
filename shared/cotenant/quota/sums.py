"""Request and used of every quota of one tree, from what its pods ask for and hold.

In: the quotas (with their place in the tree already resolved) and, per quota, the sums over the pods that name this
very quota. Out: `QuotaSums` per quota. The rule, bottom-up:

    child_request = own pods' requests + sum over children of min(child.request, child.max)
    request       = child_request where the quota lends, else max(child_request, min)
    limit_request = min(request, max); a dimension that max lacks is not limited
    used          = own pods' used + sum over children of used        (never limited)
    non-preemptible sums climb like used

and with the usage guarantee: allocated = own used + sum over children of guaranteed, guaranteed = max(allocated, min).
The sums are recomputed from their parts each time, so they cannot drift as running deltas do. Source: Koordinator
ElasticQuota, updateGroupDeltaRequest and updateGroupDeltaUsed.
"""

from collections.abc import Mapping, Sequence

import msgspec

from cotenant.quota.amounts import Amounts, larger, limited, masked, plus, total, without_zeros
from cotenant.quota.names import ROOT


class OwnPods(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the pods that belong to one quota itself, not to its children."""

    request: dict[str, int] = {}
    used: dict[str, int] = {}
    """The requests of those that are placed."""
    non_preemptible_request: dict[str, int] = {}
    non_preemptible_used: dict[str, int] = {}


class QuotaSums(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of one quota. Amounts: cpu in milli-cores, everything else in base units."""

    own: OwnPods = OwnPods()
    child_request: dict[str, int] = {}
    request: dict[str, int] = {}
    limit_request: dict[str, int] = {}
    used: dict[str, int] = {}
    non_preemptible_request: dict[str, int] = {}
    non_preemptible_used: dict[str, int] = {}
    allocated: dict[str, int] = {}
    guaranteed: dict[str, int] = {}


class QuotaNode(msgspec.Struct, frozen=True, kw_only=True):
    """One quota of a tree, reduced to what sharing needs. `parent` is a name of the same tree, or the root."""

    name: str
    parent: str = ROOT
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    shared_weight: dict[str, int] = {}
    lends: bool = True


def aggregate(
    quotas: Sequence[QuotaNode], own: Mapping[str, OwnPods], *, guarantee_usage: bool = False
) -> dict[str, QuotaSums]:
    """The sums of every quota, and of the root under its own name; `quotas` must form a tree below the root."""
    children: dict[str, list[QuotaNode]] = {ROOT: []}
    for quota in sorted(quotas, key=lambda quota: quota.name):
        children.setdefault(quota.parent, []).append(quota)
    sums: dict[str, QuotaSums] = {}
    for quota in _bottom_up(children):
        sums[quota.name] = _sums_of(quota, own.get(quota.name, OwnPods()), children.get(quota.name, ()), sums, guarantee_usage)
    root = _sums_of(QuotaNode(name=ROOT), own.get(ROOT, OwnPods()), children[ROOT], sums, guarantee_usage)
    sums[ROOT] = root
    return sums


def _bottom_up(children: Mapping[str, Sequence[QuotaNode]]) -> list[QuotaNode]:
    order: list[QuotaNode] = []
    level = list(children[ROOT])
    while level:
        order += level
        level = [child for quota in level for child in children.get(quota.name, ())]
    return order[::-1]


def _sums_of(
    quota: QuotaNode,
    own: OwnPods,
    children: Sequence[QuotaNode],
    sums: Mapping[str, QuotaSums],
    guarantee_usage: bool,
) -> QuotaSums:
    below = [sums[child.name] for child in children]
    child_request = total([own.request, *(part.limit_request for part in below)])
    lends = quota.lends and not guarantee_usage
    request = child_request if lends else larger(child_request, quota.min)
    allocated: Amounts = {}
    guaranteed: Amounts = {}
    if guarantee_usage:
        known = {**quota.max, **quota.min}
        own_used = own.used if quota.name == ROOT else masked(own.used, known)
        allocated = total([own_used, *(part.guaranteed for part in below)])
        guaranteed = larger(allocated, quota.min)
    return QuotaSums(
        own=own,
        child_request=child_request,
        request=request,
        limit_request=limited(request, quota.max),
        used=total([own.used, *(part.used for part in below)]),
        non_preemptible_request=total([own.non_preemptible_request, *(part.non_preemptible_request for part in below)]),
        non_preemptible_used=total([own.non_preemptible_used, *(part.non_preemptible_used for part in below)]),
        allocated=dict(allocated),
        guaranteed=dict(guaranteed),
    )


class PodDemand(msgspec.Struct, frozen=True, kw_only=True):
    """What one pod counts for in its quota. `request` is already reduced to the dimensions of the quota's max."""

    request: dict[str, int]
    assigned: bool
    preemptible: bool


def add_pod(own: OwnPods, pod: PodDemand, times: int = 1) -> OwnPods:
    """The sums with one pod more (`times` 1) or less (-1); dimensions that become zero are dropped."""
    delta = {resource: amount * times for resource, amount in pod.request.items()}
    nothing: dict[str, int] = {}
    fixed = nothing if pod.preemptible else delta
    return OwnPods(
        request=_changed(own.request, delta),
        used=_changed(own.used, delta if pod.assigned else nothing),
        non_preemptible_request=_changed(own.non_preemptible_request, fixed),
        non_preemptible_used=_changed(own.non_preemptible_used, fixed if pod.assigned else nothing),
    )


def _changed(amounts: dict[str, int], delta: dict[str, int]) -> dict[str, int]:
    if not delta:
        return amounts
    return without_zeros(plus(amounts, delta))

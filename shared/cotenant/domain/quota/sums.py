"""Request and used of every quota of one tree, from what its pods ask for and hold.

In: the quotas (with their place in the tree already resolved) and, per quota, the sums over the pods that name this
very quota. Out: `QuotaSums` per quota. The rule, bottom-up:

    child_request = own pods' requests + sum over children of min(child.request, child.max)
    request       = child_request where the quota lends, else max(child_request, min)
    limit_request = min(request, max); a dimension that max lacks is not limited
    used          = own pods' used + sum over children of used        (never limited)
    non-preemptible sums climb like used

and with the usage guarantee: allocated = own used + sum over children of guaranteed, guaranteed = max(allocated, min).
The sums are computed from their parts, so they cannot drift as running deltas do. Source: Koordinator
ElasticQuota, updateGroupDeltaRequest and updateGroupDeltaUsed.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from cotenant.domain.quota.cached import Cached
from cotenant.domain.quota.names import ROOT
from cotenant.model.amounts import Amounts, add_to, larger, limited, masked, total


class OwnPods(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the pods of one quota itself, without its children's."""

    request: dict[str, int] = {}
    used: dict[str, int] = {}
    """The requests of those that are placed."""
    non_preemptible_request: dict[str, int] = {}
    non_preemptible_used: dict[str, int] = {}


NO_PODS = OwnPods()


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


class TreeSums:
    """The sums of one tree's quotas, which must form a tree below the root. They are computed again where an own sum changed,
    and from there up as far as anything changes."""

    def __init__(self, quotas: Sequence[QuotaNode], *, guarantee_usage: bool = False) -> None:
        children: dict[str, list[QuotaNode]] = {ROOT: []}
        for quota in sorted(quotas, key=lambda quota: quota.name):
            children.setdefault(quota.parent, []).append(quota)
        self._upwards = [
            (node.name, [child.name for child in children.get(node.name, ())], Cached(partial(_sums_of, node, guarantee_usage)))
            for node in (*_bottom_up(children), QuotaNode(name=ROOT))
        ]

    def of(self, own: Mapping[str, OwnPods]) -> dict[str, QuotaSums]:
        """The sums of every quota, and of the root under its own name."""
        sums: dict[str, QuotaSums] = {}
        for name, children, sums_of in self._upwards:
            sums[name] = sums_of(own.get(name, NO_PODS), tuple(sums[child] for child in children))
        return sums


def _bottom_up(children: Mapping[str, Sequence[QuotaNode]]) -> list[QuotaNode]:
    order: list[QuotaNode] = []
    level = list(children[ROOT])
    while level:
        order += level
        level = [child for quota in level for child in children.get(quota.name, ())]
    return order[::-1]


def _sums_of(quota: QuotaNode, guarantee_usage: bool, own: OwnPods, below: tuple[QuotaSums, ...]) -> QuotaSums:
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


class PodSums:
    """Sums over the pods of one quota, kept by adding and taking away whole pods. Mutable; no amount is zero.

    A pod's request is already reduced to the dimensions of the quota's max; `times` is 1, or -1 to take it away.
    """

    def __init__(self, own: OwnPods = NO_PODS) -> None:
        self._request = dict(own.request)
        self._used = dict(own.used)
        self._non_preemptible_request = dict(own.non_preemptible_request)
        self._non_preemptible_used = dict(own.non_preemptible_used)
        self._own: OwnPods | None = own

    def ask(self, request: Amounts, preemptible: bool, times: int = 1) -> None:
        """Count a pod that requests so much."""
        add_to(self._request, request, times)
        if not preemptible:
            add_to(self._non_preemptible_request, request, times)
        self._own = None

    def hold(self, request: Amounts, preemptible: bool, times: int = 1) -> None:
        """Count an assigned pod by what it uses."""
        add_to(self._used, request, times)
        if not preemptible:
            add_to(self._non_preemptible_used, request, times)
        self._own = None

    @property
    def own(self) -> OwnPods:
        """The sums as they are now; the same struct until the next change."""
        if self._own is None:
            self._own = OwnPods(
                request=dict(self._request),
                used=dict(self._used),
                non_preemptible_request=dict(self._non_preemptible_request),
                non_preemptible_used=dict(self._non_preemptible_used),
            )
        return self._own

"""The sums of one quota: requests and usage of its own pods, and of those below it.

The rule, bottom-up (`trees.tree` keeps these sums current):

    child_request = own pods' requests + sum over children of min(child.request, child.max)
    request       = child_request where the quota lends, else max(child_request, min)
    limit_request = min(request, max); a dimension that max lacks is not limited
    used          = own pods' used + sum over children of used        (never limited)
    non-preemptible sums climb like used

and with the usage guarantee: allocated = own used + sum over children of guaranteed, guaranteed = max(allocated, min).
Source: Koordinator ElasticQuota, updateGroupDeltaRequest and updateGroupDeltaUsed.
"""

import msgspec

from cotenant.domain.quota.names import ROOT


class OwnPods(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the pods of one quota itself, without its children's."""

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

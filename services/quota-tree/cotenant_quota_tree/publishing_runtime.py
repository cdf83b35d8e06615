"""Quotas in published form: one QuotaRuntime per quota.

In: a solved quota with its tree and its object. Out: the event.
"""

from cotenant.domain.quota.names import ROOT
from cotenant.domain.quota.trees.counted_quota import SolvedQuota
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.events.quotas import QuotaRuntime
from cotenant.model.amounts import Amounts

DUPLICATE_NAME = "DuplicateName"


def runtime_event(tree: str, view: ElasticQuotaView | None, duplicated: bool, quota: SolvedQuota) -> QuotaRuntime:
    """Return the event of a quota. `view`: None for the root; `duplicated`: several quotas have its name."""
    return QuotaRuntime(
        tree=tree,
        quota=quota.name,
        namespace=view.namespace if view else "",
        parent=quota.parent,
        is_parent=view.is_parent if view else quota.name == ROOT,
        lends=view.lends if view else True,
        namespaces=view.namespaces if view else (),
        min=_in_order(quota.min),
        scaled_min=_in_order(quota.scaled_min),
        max=_in_order(quota.max),
        shared_weight=_in_order(view.shared_weight if view else {}),
        runtime=_in_order(quota.runtime),
        request=_in_order(quota.sums.request),
        child_request=_in_order(quota.sums.child_request),
        used=_in_order(quota.sums.used),
        non_preemptible_request=_in_order(quota.sums.non_preemptible_request),
        non_preemptible_used=_in_order(quota.sums.non_preemptible_used),
        allocated=_in_order(quota.sums.allocated),
        guaranteed=_in_order(quota.sums.guaranteed),
        overused=quota.overused,
        total=_in_order(quota.runtime if quota.name == ROOT else {}),
        reason=quota.reason or (DUPLICATE_NAME if duplicated else ""),
    )


def _in_order(amounts: Amounts) -> dict[str, int]:
    """Sort resources by name: sums have them in order of pod arrival, and equal states must encode to equal bytes."""
    return dict(sorted(amounts.items()))

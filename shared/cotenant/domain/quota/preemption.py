"""Which pods may be preempted within a quota, and by how much a quota is short.

In: priorities, quotas and labels of two pods; or a pod's request and its quota with the ancestors. Out: whether the one may
preempt the other; or the headroom per limit, from which follows how much pods of the quota have to release. The rule:

    a pod preempts pods of its own quota that have a lower priority and are preemptible, never pods of another quota;
    pods of the default quota are not preempted for it, unless a setting lets them be
    headroom: limit - used - request, of the quota in every resource that its limit and either of both have, of an ancestor in
    those of the request; a non-preemptible pod that min has no room for cannot preempt, as preemptible pods do not use min

Source: Koordinator ElasticQuota PostFilter. There a pod may preempt even if its quota would still have no room.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.domain.quota.admission import QuotaLevel
from cotenant.domain.quota.names import DEFAULT
from cotenant.model.amounts import Amounts, fits, masked

Headroom = list[tuple[str, int]]
"""Resource and what is left of one limit; below 0 it is exceeded."""


def may_preempt(
    quota: str,
    priority: int,
    victim_quota: str,
    victim_priority: int,
    *,
    victim_preemptible: bool,
    protect_default: bool = True,
) -> bool:
    """Return whether a pod may preempt another within its quota."""
    if not victim_preemptible or (protect_default and victim_quota == DEFAULT):
        return False
    return victim_quota == quota and victim_priority < priority


def headroom(
    request: Amounts, chain: Sequence[QuotaLevel], *, preemptible: bool, runtime_limits: bool, check_ancestors: bool
) -> Headroom | None:
    """Return what is left of each limit with the pod in its quota; None where no pod that ends would help."""
    own = chain[0]
    request = masked(request, own.max)
    if not preemptible and not fits(own.non_preemptible_used, request, own.min):
        return None
    found: Headroom = []
    for level in chain if check_ancestors else chain[:1]:
        limit = level.runtime if runtime_limits else level.max
        for resource, bound in sorted(limit.items()):
            if resource in request or (level is own and resource in level.used):
                found.append((resource, bound - level.used.get(resource, 0) - request.get(resource, 0)))
    return found

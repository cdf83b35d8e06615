"""Quota admission: before any node is evaluated.

Inputs: the quotas as published, with `used` from the placements; the pod's requests, quota and whether it is preemptible.
Rule: used + request must fit the quota's runtime (by configuration: its max), for non-preemptible pods min, and every
ancestor's runtime; `cotenant.domain.quota.admission` has the formula. A refusal names the quota, the ancestor and the
dimension. Source: Koordinator ElasticQuota PreFilter.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.domain.quota.admission import QuotaLevel, QuotaRefusal, admit
from cotenant.domain.quota.equal_pods import EqualPods
from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.preemption import Headroom, headroom
from cotenant.events.placements import Waiting, WaitingReason
from cotenant.model.amounts import Amounts
from cotenant.model.quantities import format_amount
from cotenant.model.subjects import quota_subject
from cotenant_scheduler.state.pod_records import Charge
from cotenant_scheduler.state.reading.shapes import Shape


class QuotaAdmission:
    """Checks the ledger. `runtime_limits` False: a quota is limited by its max. `check_ancestors`: its ancestors are checked
    too."""

    def __init__(self, ledger: QuotaLedger, *, runtime_limits: bool, check_ancestors: bool) -> None:
        self._ledger = ledger
        self._runtime_limits = runtime_limits
        self._check_ancestors = check_ancestors

    def check(self, shape: Shape, membership: Membership, preemptible: bool, *, reserves: bool = False) -> Waiting | None:
        """Return None, or why pods of this shape and quota wait. `reserves`: it is a reservation; it requests nothing of its
        quota, so that the runtime knows nothing of it, and the max is its limit."""
        refusal = self._refusal(shape.requests, self._ledger.chain(membership), preemptible, reserves=reserves)
        return None if refusal is None else _waiting(refusal, membership)

    def admits(self, requests: Amounts, membership: Membership, preemptible: bool) -> bool:
        """Return whether the quota has room for pods with this total request."""
        chain = self._ledger.chain(membership)
        return self._refusal(requests, chain, preemptible) is None

    def headroom(self, shape: Shape, membership: Membership, preemptible: bool) -> Headroom | None:
        """Return what is left of each limit with a pod of this shape in the quota, in resources of the quota's max alone; None
        where no pod of the quota that ends would help."""
        chain = self._ledger.chain(membership)
        if not chain:
            return None
        return headroom(
            shape.requests,
            chain,
            preemptible=preemptible,
            runtime_limits=self._runtime_limits,
            check_ancestors=self._check_ancestors,
        )

    def one_after_the_other(self, shape: Shape) -> AdmittedRun:
        """Return what admits pods of this shape one after the other, whatever their quotas; good until anything is charged."""
        return AdmittedRun(
            self._ledger,
            EqualPods(shape.requests, runtime_limits=self._runtime_limits, check_ancestors=self._check_ancestors),
        )

    def _refusal(
        self, requests: Amounts, chain: Sequence[QuotaLevel], preemptible: bool, *, reserves: bool = False
    ) -> QuotaRefusal | None:
        return admit(
            requests,
            chain,
            preemptible=preemptible,
            runtime_limits=self._runtime_limits and not reserves,
            check_ancestors=self._check_ancestors,
        )


class AdmittedRun:
    """Pods of one shape that are admitted one after the other, as if each before had been charged."""

    def __init__(self, ledger: QuotaLedger, pods: EqualPods) -> None:
        self._chain = ledger.chains()
        self._pods = pods

    def admits(self, charge: Charge) -> bool:
        """Return whether the next pod is admitted, and count it if so; False also where only `check` can say."""
        membership = charge.membership
        if membership is None:
            return True
        return self._pods.admit(self._chain(membership), preemptible=charge.preemptible)

    def count(self, charge: Charge, most: int) -> int:
        """Return how many of the next pods, at most so many of one charge, are admitted one after the other, and count them."""
        membership = charge.membership
        if membership is None:
            return most
        return self._pods.admit_several(self._chain(membership), most, preemptible=charge.preemptible)


def _waiting(refusal: QuotaRefusal, membership: Membership) -> Waiting:
    name = refusal.dimension
    ancestor = f" (its ancestor {refusal.ancestor})" if refusal.ancestor else ""
    detail = (
        f"quota {refusal.quota}{ancestor}: {name} {format_amount(name, refusal.need)} needed, {refusal.limited_by} is "
        f"{format_amount(name, refusal.limit)}"
    )
    subjects = {quota_subject(membership.tree, quota) for quota in (refusal.quota, refusal.ancestor) if quota}
    return Waiting(
        namespace="",
        name="",
        uid="",
        reasons=(WaitingReason(code="quota", count=0, resource=name, detail=detail),),
        wakes_on=(*sorted(subjects), "node.*.placement.>", "node.*.run.>"),
        message=refusal.message,
    )

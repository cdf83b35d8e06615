"""Quota admission: before any node is evaluated.

Inputs: the quotas as published, with `used` from the placements; the pod's requests, quota and whether it is preemptible.
Rule: used + request must fit the quota's runtime (by configuration: its max), for non-preemptible pods min, and every
ancestor's runtime; `cotenant.domain.quota.admission` has the formula. A refusal names the quota, the ancestor and the
dimension. Hooks of the operator are asked between the quota and its ancestors (`cotenant.domain.quota.hooks`). Source:
Koordinator ElasticQuota PreFilter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.domain.quota.admission import QuotaLevel, QuotaRefusal, admit
from cotenant.domain.quota.equal_pods import EqualPods
from cotenant.domain.quota.hooks import AskingPod, QuotaHook, hooks_refusal
from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.preemption import Headroom, headroom
from cotenant.events.placements import Waiting, WaitingReason
from cotenant.model.amounts import Amounts
from cotenant.model.quantities import format_amount
from cotenant.model.subjects import quota_subject
from cotenant_scheduler.state.pod_records import Charge
from cotenant_scheduler.state.reading.shapes import Shape

WAKES_ON = ("node.*.placement.>", "node.*.run.>", "objects.scheduling%2Esigs%2Ek8s%2Eio.elasticquotas.>")
"""What can change a refusal beside the runtimes: a pod that leaves its quota, and max, min and parents of quotas."""
NO_HOOKS: Mapping[str, QuotaHook] = {}


class QuotaAdmission:
    """Checks the ledger. `runtime_limits` False: a quota is limited by its max. `check_ancestors`: its ancestors are checked
    too. `hooks`: by key, in their order."""

    def __init__(
        self,
        ledger: QuotaLedger,
        *,
        runtime_limits: bool,
        check_ancestors: bool,
        hooks: Mapping[str, QuotaHook] = NO_HOOKS,
    ) -> None:
        self._ledger = ledger
        self._hooks = hooks
        self._runtime_limits = runtime_limits
        self._check_ancestors = check_ancestors

    def check(self, shape: Shape, membership: Membership, preemptible: bool, *, reserves: bool = False) -> Waiting | None:
        """Return None, or why pods of this shape and quota wait. `reserves`: it is a reservation; it requests nothing of its
        quota, so that the runtime knows nothing of it, and the max is its limit."""
        chain = self._ledger.chain(membership)
        refusal = self._refusal(shape.requests, chain, preemptible, reserves=reserves)
        return None if refusal is None else _waiting(refusal, chain, membership)

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
            alone=bool(self._hooks),
        )

    def _refusal(
        self, requests: Amounts, chain: Sequence[QuotaLevel], preemptible: bool, *, reserves: bool = False
    ) -> QuotaRefusal | str | None:
        """Return why a pod is refused, by a rule or in a hook's words."""
        limits = self._runtime_limits and not reserves
        if self._hooks and chain:
            refusal = admit(requests, chain, preemptible=preemptible, runtime_limits=limits)
            text = hooks_refusal(self._hooks, AskingPod(requests, preemptible, chain)) if refusal is None else ""
            if refusal is not None or text:
                return refusal or text
        return admit(
            requests,
            chain,
            preemptible=preemptible,
            runtime_limits=limits,
            check_ancestors=self._check_ancestors,
        )


class AdmittedRun:
    """Pods of one shape that are admitted one after the other, as if each before had been charged. `alone`: each has to be
    checked by itself, after those before it were charged."""

    def __init__(self, ledger: QuotaLedger, pods: EqualPods, *, alone: bool = False) -> None:
        self._chain = ledger.chains()
        self._pods = pods
        self._alone = alone

    def admits(self, charge: Charge) -> bool:
        """Return whether the next pod is admitted, and count it if so; False also where only `check` can say."""
        membership = charge.membership
        if membership is None:
            return True
        return not self._alone and self._pods.admit(self._chain(membership), preemptible=charge.preemptible)

    def count(self, charge: Charge, most: int) -> int:
        """Return how many of the next pods, at most so many of one charge, are admitted one after the other, and count them."""
        membership = charge.membership
        if membership is None:
            return most
        return 0 if self._alone else self._pods.admit_several(self._chain(membership), most, preemptible=charge.preemptible)


def _waiting(refusal: QuotaRefusal | str, chain: Sequence[QuotaLevel], membership: Membership) -> Waiting:
    if isinstance(refusal, str):
        # A hook may have looked at any level.
        name, levels, message = "", [level.name for level in chain], refusal
        detail = f"quota {chain[0].name}: {refusal}"
    else:
        name, message = refusal.dimension, refusal.message
        levels = [quota for quota in (refusal.quota, refusal.ancestor) if quota]
        ancestor = f" (its ancestor {refusal.ancestor})" if refusal.ancestor else ""
        detail = (
            f"quota {refusal.quota}{ancestor}: {name} {format_amount(name, refusal.need)} needed, {refusal.limited_by} is "
            f"{format_amount(name, refusal.limit)}"
        )
    runtimes = sorted({quota_subject(membership.tree, level) for level in levels})
    return Waiting(
        namespace="",
        name="",
        uid="",
        reasons=(WaitingReason(code="quota", count=0, resource=name, detail=detail),),
        wakes_on=(*runtimes, *WAKES_ON),
        message=message,
    )

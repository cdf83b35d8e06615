"""Revocation of over-use: which pods of a quota are evicted when it has used more than its runtime for too long.

In: a quota's desired event, its last event, its pods, the time. Out: the quota with its streak: since when it is over its
runtime, and the pods of its last wave of evictions. The rule:

    streak   begins with the first decision with used above runtime in some resource, ends when there is none
    wave     when the streak is longer than the delay; the streak then starts again, so there is one wave a delay at most
    victims  the quota's own assigned pods, least important first (lower priority, then bound later, then by name), until used
             fits the runtime; non-preemptible pods never. Then, from the last one taken on, each that fits beside the others
             stays. If all of them are not enough all are taken
    counted  pods that are ending already count as gone

The root and the system quota are exempt. At most MAX_VICTIMS pods a wave. Source: Koordinator's overuse revoke controller.
There a pod without some resource hides over-use in that resource; here it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec

from cotenant.domain.quota.names import ROOT, SYSTEM
from cotenant.events.quotas import QuotaRuntime, RevokedPod
from cotenant.model.amounts import Amounts, exceeding, minus, plus
from cotenant.model.times import EPOCH, NEVER

MAX_VICTIMS = 500
"""Pods of one wave, which the event names. The next wave takes the rest."""


class HeldPod(msgspec.Struct, frozen=True, kw_only=True):
    """An assigned pod of a quota. `request` is in the resources of the quota's max."""

    namespace: str
    name: str
    uid: str
    priority: int = 0
    bound_at: datetime | None = None
    request: dict[str, int] = {}
    preemptible: bool = True
    ending: bool = False


class Revocation(msgspec.Struct, frozen=True):
    """Whether over-use is revoked, and after how long."""

    enabled: bool = False
    delay: timedelta = timedelta(seconds=120)

    def watches(self, quota: QuotaRuntime) -> bool:
        """Return whether the quota is over its runtime, and is not exempt."""
        return self.enabled and bool(quota.overused) and quota.quota not in (ROOT, SYSTEM)

    def due_at(self, quota: QuotaRuntime, before: QuotaRuntime | None) -> datetime:
        """Return when the next wave is due, or the streak begins; NEVER while nothing is over-used."""
        if not self.watches(quota):
            return NEVER
        if before is None or before.overused_since is None:
            return EPOCH
        # Strictly longer than the delay.
        return before.overused_since + self.delay + timedelta(microseconds=1)

    def continued(
        self,
        quota: QuotaRuntime,
        before: QuotaRuntime | None,
        outstanding: tuple[RevokedPod, ...],
        pods: Callable[[], Iterable[HeldPod]],
        now: datetime,
    ) -> QuotaRuntime:
        """Return the quota with its streak and its last wave. `outstanding`: the pods of that wave without an answer; `pods`
        returns the quota's own assigned pods."""
        if not self.watches(quota):
            return quota
        since = before.overused_since if before is not None else None
        if before is None or since is None:
            return msgspec.structs.replace(quota, overused_since=now)
        if now < self.due_at(quota, before):
            revoked_at = before.revoked_at if outstanding else None
            return msgspec.structs.replace(quota, overused_since=since, revoked_at=revoked_at, revoke=outstanding)
        victims = tuple(
            RevokedPod(namespace=pod.namespace, name=pod.name, uid=pod.uid, priority=pod.priority)
            for pod in victims_of(quota.runtime, quota.used, pods())[:MAX_VICTIMS]
        )
        return msgspec.structs.replace(quota, overused_since=now, revoked_at=now if victims else None, revoke=victims)


def victims_of(runtime: Amounts, used: Amounts, pods: Iterable[HeldPod]) -> list[HeldPod]:
    """Return the pods that end, in the order in which they are evicted."""
    order = sorted(pods, key=lambda pod: (pod.priority, -_since(pod), pod.namespace, pod.name))
    left: Amounts = used
    for pod in order:
        if pod.ending:
            left = minus(left, pod.request)
    taken: list[HeldPod] = []
    for pod in order:
        if not exceeding(left, runtime):
            break
        if pod.preemptible and not pod.ending:
            left = minus(left, pod.request)
            taken.append(pod)
    if exceeding(left, runtime):
        return taken
    victims: list[HeldPod] = []
    for pod in reversed(taken):
        with_it = plus(left, pod.request)
        if exceeding(with_it, runtime):
            victims.append(pod)
        else:
            left = with_it
    return victims


def _since(pod: HeldPod) -> float:
    return (pod.bound_at - EPOCH).total_seconds() if pod.bound_at is not None else 0.0

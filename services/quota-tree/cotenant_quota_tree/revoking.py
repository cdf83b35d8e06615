"""The evictions of over-use as requests to the gateway: each pod of a wave is requested once.

In: the quotas' last events, the pods, the gateway's answers. Out: one request per pod of a wave that still runs and has no
answer since that event; the next event of the quota no longer names those. The gateway checks disruption budgets; a
pod that it refuses stays until the next wave, which is a delay later. Source: Koordinator's overuse revoke controller (policy
Eviction API; refusals are skipped).

Bound: an answer is kept while its subject is on LOG.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from cotenant.engine.core import Request
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome, EvictionRequest, evict_subject
from cotenant.events.quotas import QuotaRuntime, RevokedPod
from cotenant.model.amounts import format_amounts, masked
from cotenant_quota_tree.pods import PodDemands, PodKey

ASK = evict_subject("quota-tree")
TRIGGER = "QuotaOveruse"


class Revoking:
    """A mutable fold over the waves and the answers."""

    def __init__(self) -> None:
        self._waves: dict[str, tuple[QuotaRuntime, int]] = {}
        """By subject, quotas with a wave, and the sequences of their events."""
        self._answers: dict[PodKey, tuple[str, int]] = {}
        """By pod, the uid and the sequence of the last answer."""

    def publish(self, subject: str, quota: QuotaRuntime | None, sequence: int) -> None:
        """Fold a quota's last event; None once it is gone."""
        if quota is not None and quota.revoke:
            self._waves[subject] = (quota, sequence)
        else:
            self._waves.pop(subject, None)

    def answer(self, event: Event) -> list[str]:
        """Fold an answer of the gateway, or its end; return the subjects of the quotas with a wave."""
        outcome = event.data
        if isinstance(outcome, EvictionOutcome):
            key = (outcome.namespace, outcome.name)
            if event.tombstone:
                self._answers.pop(key, None)
            else:
                self._answers[key] = (outcome.uid, event.sequence)
        return list(self._waves)

    def outstanding(self, subject: str, pods: PodDemands) -> tuple[RevokedPod, ...]:
        """Return the pods of a quota's wave that still run and have no answer since its last event."""
        if subject not in self._waves:
            return ()
        quota, sequence = self._waves[subject]
        return tuple(pod for pod in quota.revoke if self._waits(pod, sequence, pods))

    def _waits(self, pod: RevokedPod, sequence: int, pods: PodDemands) -> bool:
        key = (pod.namespace, pod.name)
        uid, answered = self._answers.get(key, ("", 0))
        return pods.is_live(key, pod.uid) and not (uid == pod.uid and answered > sequence)

    def requests(self, pods: PodDemands) -> Iterator[Request]:
        """Walk the outstanding requests, by quota and in the order of its wave."""
        for subject in sorted(self._waves):
            quota, _ = self._waves[subject]
            for pod in self.outstanding(subject, pods):
                body = EvictionRequest(
                    namespace=pod.namespace, name=pod.name, uid=pod.uid, trigger=TRIGGER, reason=_reason(quota)
                )
                assert quota.revoked_at is not None
                yield Request(
                    key=f"revoke/{pod.namespace}/{pod.name}/{pod.uid}/{quota.revoked_at.isoformat()}",
                    subject=ASK,
                    body=msgspec.json.encode(body),
                )


def _reason(quota: QuotaRuntime) -> str:
    over: Mapping[str, int] = masked(quota.used, quota.overused)
    return (
        f"quota {quota.quota} uses more than its runtime: {format_amounts(over)} of "
        f"{format_amounts(masked(quota.runtime, quota.overused))}"
    )

"""Promise 28: a pod that is not preemptible is evicted neither for another pod nor because its quota is over its runtime.

Read from nominations, revocations, the gateway's answers and the pods' labels. `quota.scheduling.koordinator.sh/preemptible:
"false"` protects a pod from both, `scheduling.koordinator.sh/disable-preemptible: "true"` from preemption.
Taints, users and the descheduler's plugins may evict such a pod, as in Koordinator.
"""

from __future__ import annotations

from collections.abc import Collection

from cotenant.domain.quota.names import LABEL_PREEMPTIBLE
from cotenant.events.envelope import Event
from cotenant.events.migrations import PREEMPTION, EvictionOutcome
from cotenant.events.placements import Waiting
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.reservations import ReservationStatus
from cotenant.model.subjects import migration_subject
from cotenant_scheduler.state.reading.pod_traits import LABEL_DISABLE_PREEMPTIBLE
from cotenant_verification.checks.invariants import Wrong
from cotenant_verification.checks.log_view import LogView

KEPT_BY_QUOTA = (LABEL_PREEMPTIBLE, "false")
KEPT_ALWAYS = (LABEL_DISABLE_PREEMPTIBLE, "true")


def protected_pods_are_chosen_by_nobody(view: LogView, event: Event) -> Wrong:
    """No nomination names a protected pod as a victim, and no quota one to be revoked."""
    data = event.data
    if event.tombstone:
        return
    if isinstance(data, Waiting | ReservationStatus) and data.nomination is not None:
        for victim in data.nomination.victims:
            if _is_protected(view, victim.namespace, victim.name, victim.uid, (KEPT_BY_QUOTA, KEPT_ALWAYS)):
                who = f"{victim.namespace}/{victim.name}"
                yield event.subject, f"{event.ref} nominates the victim {who}, which must not be preempted"
    elif isinstance(data, QuotaRuntime):
        for pod in data.revoke:
            if _is_protected(view, pod.namespace, pod.name, pod.uid, (KEPT_BY_QUOTA,)):
                yield event.subject, f"{event.ref} revokes {pod.namespace}/{pod.name} of {data.quota}, which is not preemptible"
        if data.revoke and not data.overused_since:
            yield event.subject, f"{event.ref} revokes pods of {data.quota}, which does not use more than its runtime"


def protected_pods_stay(view: LogView, event: Event) -> Wrong:
    """The gateway evicts no protected pod for a nomination, and none for a quota (the requests of quota-tree name no job)."""
    data = event.data
    if not isinstance(data, EvictionOutcome) or event.tombstone or data.reason != "Evicted":
        return
    job = view.moves.get(migration_subject(data.job)) if data.job else None
    if data.job and (job is None or job.trigger != PREEMPTION):
        return
    labels = (KEPT_BY_QUOTA, KEPT_ALWAYS) if data.job else (KEPT_BY_QUOTA,)
    if _is_protected(view, data.namespace, data.name, data.uid, labels):
        why = f"job {data.job}" if data.job else "its quota"
        yield event.subject, f"{event.ref} evicts {data.namespace}/{data.name} for {why}, which is not preemptible"


def _is_protected(view: LogView, namespace: str, name: str, uid: str, labels: Collection[tuple[str, str]]) -> bool:
    head = view.pods.get((namespace, name))
    if head is None or head.metadata.uid != uid:
        return False
    return any(head.metadata.labels.get(key) == value for key, value in labels)

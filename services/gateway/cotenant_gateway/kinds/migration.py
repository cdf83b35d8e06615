"""PodMigrationJob = document + migration; a job that descheduler-arbiter made itself has no document.

In: the `migrations.<job>` event. Out: the job's status, and its spec where it has no document.
"""

from __future__ import annotations

import msgspec

from cotenant.api.overlay import Overlay, head_of
from cotenant.api.splices import raw
from cotenant.events.migrations import JobCondition, Migration
from cotenant_gateway.kinds.times import derived_uid, go_duration, rfc3339
from cotenant_gateway.read_model.snapshots import Snapshot

_API_VERSION = "scheduling.koordinator.sh/v1alpha1"


def _condition(condition: JobCondition) -> dict[str, str]:
    shown = {"type": condition.type, "status": condition.status}
    if condition.reason:
        shown["reason"] = condition.reason
    if condition.message:
        shown["message"] = condition.message
    if condition.last_transition_time is not None:
        shown["lastTransitionTime"] = rfc3339(condition.last_transition_time)
    return shown


def compose_migration(snapshot: Snapshot) -> Overlay:
    """Return what the arbiter says of the job."""
    for event in snapshot.parts.values():
        if event.tombstone or not isinstance(event.data, Migration):
            continue
        job = event.data
        status: dict[str, msgspec.Raw] = {"phase": raw(job.phase)}
        for name, text in (("status", job.status), ("reason", job.reason), ("message", job.message)):
            if text:
                status[name] = raw(text)
        conditions = tuple(_condition(condition) for condition in job.conditions)
        if snapshot.stored is not None:
            return Overlay(status=status, conditions=conditions)
        uid = derived_uid("PodMigrationJob", job.job, job.uid)
        spec: dict[str, object] = {
            "mode": job.mode,
            "paused": job.paused,
            "podRef": {"apiVersion": "v1", "kind": "Pod", "namespace": job.namespace, "name": job.pod, "uid": job.uid},
        }
        if job.ttl_seconds:
            spec["ttl"] = go_duration(job.ttl_seconds)
        metadata: dict[str, str | int] = {"name": job.job, "uid": uid}
        if job.created_at is not None:
            metadata["creationTimestamp"] = rfc3339(job.created_at)
        return Overlay(
            head=head_of(_API_VERSION, "PodMigrationJob", spec),
            metadata=metadata,
            annotations={"cotenant.io/trigger": job.trigger} if job.trigger else {},
            status=status,
            conditions=conditions,
            uid=uid,
        )
    return Overlay()

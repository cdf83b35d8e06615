"""scheduling.koordinator.sh/v1alpha1 PodMigrationJob = document + migration.

A job that descheduler-arbiter made itself has no document. A user's job is gone with its document: what the arbiter still
keeps of it (a reservation to give back, a move that the limits count) is no object, and says nothing of a later job.

In: the `migrations.<job>` event. Out: the job's status, and its spec where it has no document. Source of the
modes: Koordinator's custom resource.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout, wide
from cotenant.api.definitions import KindDefinition, name_of_subject
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.objects.policies import PodMigrationJob
from cotenant.api.overlay import Overlay, head_of
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import DocumentError, member_object, members, raw
from cotenant.api.times import derived_uid, go_duration, rfc3339
from cotenant.api.validation.fields import FieldError, invalid, not_supported, required
from cotenant.events.migrations import JobCondition, Migration
from cotenant.model.durations import DurationError, parse_duration
from cotenant.model.names import ANNOTATION_EVICT_REASON, ANNOTATION_EVICT_TRIGGER

MIGRATION_JOBS = Kind("scheduling.koordinator.sh", "v1alpha1", "podmigrationjobs", "PodMigrationJob", False, ("pmj",), True)
MIGRATION_MODES = ("ReservationFirst", "EvictDirectly")


def made_by_arbiter(job: Migration) -> bool:
    """Whether the job is one of the arbiter's own, which has no document."""
    return not job.object_uid


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
    """Return what the arbiter publishes of the job."""
    for event in snapshot.parts.values():
        if event.tombstone or not isinstance(event.data, Migration):
            continue
        job = event.data
        if snapshot.stored is not None and job.object_uid not in ("", snapshot.stored.meta.uid):
            continue
        status: dict[str, msgspec.Raw] = {"phase": raw(job.phase)}
        for name, text in (("status", job.status), ("reason", job.reason), ("message", job.message)):
            if text:
                status[name] = raw(text)
        if job.reservation_node:
            status["nodeName"] = raw(job.reservation_node)
        if job.bound is not None:
            bound = {"namespace": job.bound.namespace, "name": job.bound.name, "uid": job.bound.uid}
            status["podRef"] = raw({"apiVersion": "v1", "kind": "Pod", **bound})
        conditions = tuple(_condition(condition) for condition in job.conditions)
        if snapshot.stored is not None:
            spec_of_object = {"reservationOptions": _options(snapshot, job)} if job.reservation_uid else {}
            return Overlay(spec=spec_of_object, status=status, conditions=conditions)
        uid = derived_uid("PodMigrationJob", job.job, job.uid)
        spec: dict[str, object] = {
            "mode": job.mode,
            "paused": job.paused,
            "podRef": {"apiVersion": "v1", "kind": "Pod", "namespace": job.namespace, "name": job.pod, "uid": job.uid},
        }
        if job.reservation_uid:
            spec["reservationOptions"] = {"reservationRef": _reference(job)}
        if job.ttl_seconds:
            spec["ttl"] = go_duration(job.ttl_seconds)
        metadata: dict[str, str | int] = {"name": job.job, "uid": uid}
        if job.created_at is not None:
            metadata["creationTimestamp"] = rfc3339(job.created_at)
        if job.grace_period_seconds is not None:
            spec["deleteOptions"] = {"gracePeriodSeconds": job.grace_period_seconds}
        annotations = {"cotenant.io/trigger": job.trigger} if job.trigger else {}
        for name, text in ((ANNOTATION_EVICT_TRIGGER, job.trigger), (ANNOTATION_EVICT_REASON, job.evict_reason)):
            if text:
                annotations[name] = text
        return Overlay(
            head=head_of(MIGRATION_JOBS.api_version, "PodMigrationJob", spec),
            metadata=metadata,
            labels=job.labels,
            annotations={**annotations, **job.annotations},
            status=status,
            conditions=conditions,
            uid=uid,
        )
    return Overlay()


def _reference(job: Migration) -> dict[str, str]:
    """The reservation of the job."""
    made = {"apiVersion": MIGRATION_JOBS.api_version, "kind": "Reservation"}
    return {**made, "name": job.reservation, "uid": job.reservation_uid}


def _options(snapshot: Snapshot, job: Migration) -> msgspec.Raw:
    """The object's reservationOptions, with the reservation that was made."""
    assert snapshot.stored is not None
    try:
        options = member_object(member_object(members(snapshot.stored.raw), "spec"), "reservationOptions")
    except DocumentError:
        options = {}
    return raw({**options, "reservationRef": raw(_reference(job))})


def migration_job_errors(job: PodMigrationJob) -> list[FieldError]:
    """A job names a pod, and one of the modes."""
    found: list[FieldError] = []
    if not job.spec.pod_ref.name:
        found.append(required("spec.podRef.name"))
    if not job.spec.pod_ref.namespace:
        found.append(required("spec.podRef.namespace"))
    if job.spec.mode and job.spec.mode not in MIGRATION_MODES:
        found.append(not_supported("spec.mode", job.spec.mode, MIGRATION_MODES))
    if job.spec.ttl:
        try:
            if parse_duration(job.spec.ttl) < timedelta(0):
                found.append(invalid("spec.ttl", job.spec.ttl, "must not be negative; 0s: it never times out"))
        except DurationError as error:
            found.append(invalid("spec.ttl", job.spec.ttl, str(error)))
    return found


class _PodRef(View, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""


class _ReservationOptions(View, frozen=True, kw_only=True):
    reservation_ref: _PodRef = _PodRef()


class _Spec(View, frozen=True, kw_only=True):
    pod_ref: _PodRef = _PodRef()
    ttl: str = ""
    reservation_options: _ReservationOptions = _ReservationOptions()


class _Status(View, frozen=True, kw_only=True):
    phase: str = ""
    status: str = ""
    reason: str = ""
    node_name: str = ""
    pod_ref: _PodRef = _PodRef()


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    return (
        snapshot.address.name,
        shown.status.phase or "Pending",
        shown.status.status,
        age(shown.metadata.creation_timestamp, now),
        shown.status.node_name,
        shown.spec.reservation_options.reservation_ref.name,
        shown.spec.pod_ref.namespace,
        shown.spec.pod_ref.name,
        shown.status.pod_ref.name,
        shown.spec.ttl,
        shown.status.reason,
    )


DEFINITION = KindDefinition(
    MIGRATION_JOBS,
    decode=msgspec.json.Decoder(PodMigrationJob).decode,
    compose=compose_migration,
    parts={Migration: name_of_subject},
    makes=made_by_arbiter,
    errors=lambda job, _: migration_job_errors(job),
    layout=Layout(
        (
            NAME,
            Column("Phase"),
            Column("Status"),
            AGE,
            Column("Node"),
            Column("Reservation"),
            Column("PodNamespace"),
            Column("Pod"),
            Column("NewPod"),
            Column("TTL"),
            *wide("Reason"),
        ),
        _cells,
    ),
    has_status=True,
)

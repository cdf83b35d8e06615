"""Users' jobs: creates the Migration for a PodMigrationJob object.

In: the object, its pod, the policy. Out: a pending Migration, or a failed one whose reason names the field.
Source: koord-descheduler migration controller (defaults of mode and ttl).
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from cotenant.api.objects.policies import PodMigrationJob
from cotenant.events.migrations import Migration
from cotenant.model.durations import DurationError, parse_duration
from cotenant.model.names import ANNOTATION_EVICT_REASON, ANNOTATION_EVICT_TRIGGER
from cotenant_descheduler_arbiter.config.delete_options import grace_period
from cotenant_descheduler_arbiter.config.policy import MODES, DeschedulerPolicy
from cotenant_descheduler_arbiter.eviction.order import creation_seconds
from cotenant_descheduler_arbiter.migration.conditions import fail
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters

LONGEST_TTL = timedelta(days=3650)
USER = "User"


def job_of_object(
    name: str, declared: PodMigrationJob, filters: JobFilters, policy: DeschedulerPolicy, now: datetime
) -> Migration:
    """Return the job of a user's object; failed if the object is invalid."""
    ref, annotations = declared.spec.pod_ref, declared.metadata.annotations
    pod = filters.pod(f"{ref.namespace}/{ref.name}")
    created = creation_seconds(declared.metadata.creation_timestamp)
    job = Migration(
        job=name,
        namespace=ref.namespace,
        pod=ref.name,
        uid=ref.uid or (pod.uid if pod is not None else ""),
        node=pod.node if pod is not None else "",
        workload=pod.workload if pod is not None else "",
        object_uid=declared.metadata.uid,
        mode=declared.spec.mode or policy.job_defaults.mode,
        paused=declared.spec.paused,
        reservation=declared.spec.reservation_options.reservation_ref.name,
        reservation_given=bool(declared.spec.reservation_options.reservation_ref.name),
        trigger=annotations.get(ANNOTATION_EVICT_TRIGGER, USER),
        evict_reason=annotations.get(ANNOTATION_EVICT_REASON, ""),
        grace_period_seconds=policy.job_defaults.grace_period_seconds,
        created_at=datetime.fromtimestamp(created, now.tzinfo) if created else now,
        updated_at=now,
    )
    if job.mode not in MODES:
        return fail(job, "InvalidMode", f"spec.mode {job.mode!r} is none of {', '.join(MODES)}", now)
    try:
        ttl = parse_duration(declared.spec.ttl) if declared.spec.ttl else policy.job_defaults.ttl
    except DurationError as error:
        return fail(job, "InvalidTTL", f"spec.ttl: {error}", now)
    if ttl < timedelta(0):
        return fail(job, "InvalidTTL", f"spec.ttl: {declared.spec.ttl} is below 0", now)
    job = msgspec.structs.replace(job, ttl_seconds=int(min(ttl, LONGEST_TTL).total_seconds()))
    try:
        seconds = grace_period(declared.spec.delete_options)
    except ValueError as error:
        return fail(job, "InvalidDeleteOptions", f"spec.deleteOptions: {error}", now)
    return job if seconds is None else msgspec.structs.replace(job, grace_period_seconds=seconds)

"""The state machine of a migration job, one step at a time: pending, running, evicting, done.

In: the job, the facts of its pod and its reservation, the gateway's answer, the time. Out: the job after the step; the same job
if nothing changed.

    ttl passed                      -> Failed, Timeout              (also while the job waits for arbitration)
    pending: no pod reference       -> Failed, InvalidPodRef
             pod missing            -> Failed, MissingPod
             passed arbitration     -> Running
    running: mode ReservationFirst  -> first the pod's next place is held (`reservation_first`)
             pod gone               -> before its eviction was granted: Failed, MissingPod; after: it has been evicted
             limiter, rate          -> not yet
             else                   -> the eviction is ordered, once
    answer: granted                 -> condition Eviction False, reason Evicting; then wait until the pod is gone
            refused                 -> asked again after 3, 6, 12, ... at most 60 s, until the ttl passes
    evicted                         -> Succeeded; in mode ReservationFirst once the place is taken by a ready pod
    eviction by taint               -> Succeeded when granted: of a lost node no executor is left to report the pod's end

A pod is gone when its name is unused or belongs to another uid. A `paused` job takes no step.

Source: koord-descheduler migration controller; here requests and their answers are asynchronous.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from cotenant.events.migrations import TAINT_EVICTION, JobCondition, Migration
from cotenant_descheduler_arbiter.config.policy import RESERVATION_FIRST
from cotenant_descheduler_arbiter.migration.conditions import condition_of, fail, succeed, with_condition
from cotenant_descheduler_arbiter.migration.jobs.view import Answer, JobView, back_off
from cotenant_descheduler_arbiter.migration.reservation_first import (
    follow_pending_pod,
    follow_successor,
    hold_place,
    ready_to_evict,
)

EVICTION = "Eviction"
EVICTING = "Evicting"
EVICT_COMPLETE = "EvictComplete"
EVICTION_REFUSED = "EvictionRefused"


def timed_out(job: Migration, now: datetime) -> bool:
    """Whether the job is older than its ttl."""
    return (
        job.ttl_seconds > 0
        and job.created_at is not None
        and now - job.created_at >= timedelta(seconds=job.ttl_seconds)
    )


def pod_is_gone(job: Migration, view: JobView) -> bool:
    """Whether the job's pod does not exist any more."""
    return view.pod is None or bool(job.uid and view.pod.uid != job.uid)


def reconcile(job: Migration, view: JobView, now: datetime) -> Migration:
    """Return the job after one step."""
    if job.finished or job.paused:
        return job
    if timed_out(job, now):
        return fail(job, "Timeout", "Abort job caused by timeout", now)
    if job.phase != "Running":
        return _start(job, view, now)
    if job.mode == RESERVATION_FIRST:
        return with_place(job, view, now)
    return evict(job, view, now)


def _start(job: Migration, view: JobView, now: datetime) -> Migration:
    if not job.namespace or not job.pod:
        return fail(job, "InvalidPodRef", "Abort job caused by invalid PodRef", now)
    if view.pod is None or pod_is_gone(job, view):
        return fail(job, "MissingPod", f'Abort job caused by missing Pod "{job.namespace}/{job.pod}"', now)
    if not job.passed_arbitration:
        return job
    return msgspec.structs.replace(
        job,
        phase="Running",
        uid=view.pod.uid,
        node=view.pod.node or job.node,
        workload=view.pod.workload,
        reason="",
        message="",
    )


def with_place(job: Migration, view: JobView, now: datetime) -> Migration:
    """Return a running job of mode ReservationFirst after one step."""
    evicting = condition_of(job, EVICTION)
    if evicting is not None and evicting.status == "True":
        return follow_successor(job, view, now)
    if evicting is None and not _granted(job, view):
        if pod_is_gone(job, view):
            return _missing_pod(job, now)
        held = hold_place(job, view, now)
        if held != job:
            return held
        assert view.pod is not None
        if view.reservation is not None and view.reservation.of_pod:
            return follow_pending_pod(job, view.pod, view.reservation, now)
        if not ready_to_evict(job, view.reservation):
            return job
    return evict(job, view, now)


def _granted(job: Migration, view: JobView) -> bool:
    return view.answer is not None and view.answer.allowed and job.evict_ordered


def _missing_pod(job: Migration, now: datetime) -> Migration:
    return fail(job, "MissingPod", f'Abort job caused by missing Pod "{job.namespace}/{job.pod}"', now)


def evict(job: Migration, view: JobView, now: datetime) -> Migration:
    """Return a running job after one step, given that its pod may leave."""
    condition = condition_of(job, EVICTION)
    if condition is not None and condition.status == "True":
        return succeed(job, _evicted(job), now)
    if pod_is_gone(job, view):
        if condition is None and not _granted(job, view):
            return _missing_pod(job, now)
        complete = JobCondition(type=EVICTION, status="True", reason=EVICT_COMPLETE)
        ended = with_condition(job, complete, now)
        if ended.evicted_at is None:
            ended = msgspec.structs.replace(ended, evicted_at=now)
        return ended if job.mode == RESERVATION_FIRST else succeed(ended, _evicted(job), now)
    if condition is not None and condition.reason == EVICTING:
        return job
    if not job.evict_ordered:
        if view.hold is not None:
            return job
        return msgspec.structs.replace(job, evict_ordered=True, ordered_at=now)
    if view.answer is None or view.answer.ref == job.answer:
        return job
    return _answered(job, view.answer, now)


def _evicted(job: Migration) -> str:
    return f'Pod "{job.namespace}/{job.pod}" has been evicted'


def _answered(job: Migration, answer: Answer, now: datetime) -> Migration:
    if not answer.allowed:
        refused = msgspec.structs.replace(job, reason=EVICTION_REFUSED, message=answer.reason)
        return back_off(refused, answer, now)
    name = f"{job.namespace}/{job.pod}"
    why = job.evict_reason or job.trigger or "NotSet"
    evicting = JobCondition(
        type=EVICTION,
        status="False",
        reason=EVICTING,
        message=f'Pod "{name}" evicted from node "{job.node}" by the reason "{why}"',
    )
    granted = msgspec.structs.replace(with_condition(job, evicting, now), answer=answer.ref, evicted_at=now, retry_at=None)
    if job.trigger == TAINT_EVICTION:
        return succeed(granted, f'Pod "{name}" of node "{job.node}" is terminating', now)
    return granted

"""The state machine of a migration job, one step at a time: pending, running, evicting, done.

In: the job, the facts of its pod, the gateway's answer to its eviction, the time. Out: the job after the step; the same job if
nothing changed.

    ttl passed                      -> Failed, Timeout              (also while the job waits for arbitration)
    pending: no pod reference       -> Failed, InvalidPodRef
             pod missing            -> Failed, MissingPod
             passed arbitration     -> Running
    mode ReservationFirst           -> Failed, ReservationUnavailable: there are no reservations yet
    running: pod gone               -> before its eviction was granted: Failed, MissingPod; after: Succeeded
             limiter, rate          -> not yet
             else                   -> the eviction is ordered, once
    answer: granted                 -> condition Eviction False, reason Evicting; then wait until the pod is gone
            refused                 -> asked again after 3, 6, 12, ... at most 60 s, until the ttl passes
    eviction by taint               -> Succeeded when granted: of a lost node no executor is left to report the pod's end

A pod is gone when its name is unused or belongs to another uid. A `paused` job takes no step.

Source: koord-descheduler migration controller, evict-directly mode; here the eviction request and its answer are
asynchronous.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from cotenant.events.migrations import JobCondition, Migration
from cotenant_descheduler_arbiter.state.facts import PodFacts

EVICTION = "Eviction"
EVICTING = "Evicting"
EVICT_COMPLETE = "EvictComplete"
EVICTION_REFUSED = "EvictionRefused"
COMPLETE = "Complete"
TAINT_EVICTION = "TaintEviction"
"""Trigger of the jobs of pods that a NoExecute taint evicts: their node is lost, or a user has tainted it."""
REQUEUE = timedelta(seconds=3)
_MAX_RETRY = timedelta(seconds=60)


class Answer(msgspec.Struct, frozen=True):
    """The gateway's answer to an eviction request."""

    ref: str
    allowed: bool
    reason: str = ""


class JobView(msgspec.Struct, frozen=True):
    """A job's inputs. `pod`: the pod that has the name now; `hold`: why no eviction may be ordered at the moment."""

    pod: PodFacts | None
    answer: Answer | None = None
    hold: str | None = None


def condition_of(job: Migration, kind: str) -> JobCondition | None:
    """Return the job's condition of a type."""
    return next((each for each in job.conditions if each.type == kind), None)


def with_condition(job: Migration, condition: JobCondition, now: datetime) -> Migration:
    """Return the job with the condition replaced or appended; its transition time changes only with its status."""
    known = condition_of(job, condition.type)
    if known is not None and (known.status, known.reason, known.message) == (
        condition.status,
        condition.reason,
        condition.message,
    ):
        return job
    since = known.last_transition_time if known is not None and known.status == condition.status else now
    stored = msgspec.structs.replace(condition, last_transition_time=since)
    others = tuple(stored if each.type == condition.type else each for each in job.conditions)
    return msgspec.structs.replace(
        job,
        conditions=others if known is not None else (*job.conditions, stored),
        status=condition.type,
        reason=condition.reason,
        message=condition.message,
    )


def fail(job: Migration, reason: str, message: str, now: datetime) -> Migration:
    """Return the failed job."""
    return msgspec.structs.replace(job, phase="Failed", reason=reason, message=message, finished_at=now)


def succeed(job: Migration, message: str, now: datetime) -> Migration:
    """Return the succeeded job."""
    return msgspec.structs.replace(
        job, phase="Succeeded", status=COMPLETE, reason="", message=message, finished_at=now
    )


def timed_out(job: Migration, now: datetime) -> bool:
    """Whether the job is older than its ttl."""
    return (
        job.ttl_seconds > 0
        and job.created_at is not None
        and now - job.created_at >= timedelta(seconds=job.ttl_seconds)
    )


def reconcile(job: Migration, view: JobView, now: datetime) -> Migration:
    """Return the job after one step."""
    if job.finished or job.paused:
        return job
    if timed_out(job, now):
        return fail(job, "Timeout", "Abort job caused by timeout", now)
    if job.phase != "Running":
        return _start(job, view, now)
    return _evict(job, view, now)


def _start(job: Migration, view: JobView, now: datetime) -> Migration:
    if not job.namespace or not job.pod:
        return fail(job, "InvalidPodRef", "Abort job caused by invalid PodRef", now)
    if view.pod is None or (job.uid and view.pod.uid != job.uid):
        return fail(job, "MissingPod", f'Abort job caused by missing Pod "{job.namespace}/{job.pod}"', now)
    if job.mode == "ReservationFirst":
        return fail(
            job,
            "ReservationUnavailable",
            "mode ReservationFirst needs reservations, which are not available; use EvictDirectly",
            now,
        )
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


def _evict(job: Migration, view: JobView, now: datetime) -> Migration:
    condition = condition_of(job, EVICTION)
    name = f"{job.namespace}/{job.pod}"
    done = f'Pod "{name}" has been evicted'
    if condition is not None and condition.status == "True":
        return succeed(job, done, now)
    if view.pod is None or (job.uid and view.pod.uid != job.uid):
        granted = view.answer is not None and view.answer.allowed and job.evict_ordered
        if condition is None and not granted:
            return fail(job, "MissingPod", f'Abort job caused by missing Pod "{name}"', now)
        complete = JobCondition(type=EVICTION, status="True", reason=EVICT_COMPLETE)
        ended = with_condition(job, complete, now)
        if ended.evicted_at is None:
            ended = msgspec.structs.replace(ended, evicted_at=now)
        return succeed(ended, done, now)
    if condition is not None and condition.reason == EVICTING:
        return job
    if not job.evict_ordered:
        if view.hold is not None:
            return job
        return msgspec.structs.replace(job, evict_ordered=True, ordered_at=now)
    if view.answer is None or view.answer.ref == job.answer:
        return job
    return _answered(job, view.answer, now)


def _answered(job: Migration, answer: Answer, now: datetime) -> Migration:
    if not answer.allowed:
        return msgspec.structs.replace(
            job,
            answer=answer.ref,
            attempts=job.attempts + 1,
            retry_at=now + min(REQUEUE * 2 ** min(job.attempts, 10), _MAX_RETRY),
            reason=EVICTION_REFUSED,
            message=answer.reason,
        )
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

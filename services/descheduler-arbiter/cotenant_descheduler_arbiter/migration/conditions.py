"""A job's conditions, and its end.

A condition is replaced or appended by type; its transition time changes only with its status. Whenever one changes, the job's
status, reason and message are the condition's type, reason and message.

Source: koord-descheduler migration controller (UpdateCondition).
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.events.migrations import JobCondition, Migration

COMPLETE = "Complete"


def condition_of(job: Migration, kind: str) -> JobCondition | None:
    """Return the job's condition of a type."""
    return next((each for each in job.conditions if each.type == kind), None)


def holds(job: Migration, kind: str) -> bool:
    """Whether the job's condition of a type is True."""
    condition = condition_of(job, kind)
    return condition is not None and condition.status == "True"


def with_condition(job: Migration, condition: JobCondition, now: datetime) -> Migration:
    """Return the job with the condition replaced or appended."""
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

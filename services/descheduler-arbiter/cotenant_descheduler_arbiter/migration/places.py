"""Reservations of jobs in mode ReservationFirst: outstanding requests to the gateway, and reservations to be deleted.

In: the state, the policy, the time. Out: requests. A job requests its reservation until the object exists; the reservation
of a job that did not succeed, or whose object is deleted, is deleted.

Source: koord-descheduler migration controller (createReservation, deleteReservation).
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from cotenant.engine.core import Request
from cotenant.events.migrations import Migration, ReservationRequest, reserve_subject
from cotenant.model.times import EPOCH
from cotenant_descheduler_arbiter.config.policy import DeschedulerPolicy
from cotenant_descheduler_arbiter.migration.evictions import answer_to
from cotenant_descheduler_arbiter.state.fold import ClusterFold

ASK = reserve_subject("descheduler-arbiter")
_USED = "Succeeded"


def holds_reservation(fold: ClusterFold, job: Migration) -> bool:
    """Whether a Reservation that was made for this job exists."""
    if not job.reservation or job.reservation_given:
        return False
    found = fold.reservations.facts(job.reservation)
    return found is not None and found.job == job.job and job.reservation_uid in ("", found.uid)


def has_to_release(fold: ClusterFold, job: Migration, *, orphaned: bool) -> bool:
    """Whether the job's Reservation has to be deleted. `orphaned`: the job's object is deleted."""
    if not job.finished or not holds_reservation(fold, job):
        return False
    found = fold.reservations.facts(job.reservation)
    assert found is not None
    return orphaned or (job.phase != "Succeeded" and found.phase != _USED)


def outstanding_places(fold: ClusterFold, policy: DeschedulerPolicy, now: datetime) -> list[Request]:
    """Return the reservations to be created or deleted, by job name."""
    requests: list[Request] = []
    if policy.dry_run:
        return requests
    for _, known in sorted(fold.jobs.items()):
        job = known.value
        if not job.reservation or job.reservation_given:
            continue
        if has_to_release(fold, job, orphaned=bool(job.object_uid) and job.job not in fold.job_objects):
            requests.append(_request(job, policy, f"release/{job.reservation}/{job.reservation_uid}", release=True))
        elif _wanted(fold, job, now):
            requests.append(_request(job, policy, f"reserve/{job.reservation}/{job.attempts}", release=False))
    return requests


def _wanted(fold: ClusterFold, job: Migration, now: datetime) -> bool:
    if job.finished or job.paused or job.reservation_uid or (job.retry_at is not None and now < job.retry_at):
        return False
    if fold.reservations.facts(job.reservation) is not None and holds_reservation(fold, job):
        return False
    answer = answer_to(fold, job)
    return answer is None or answer.ref == job.answer


def _request(job: Migration, policy: DeschedulerPolicy, key: str, *, release: bool) -> Request:
    ordered = job.reserve_ordered_at or EPOCH
    body = ReservationRequest(
        job=job.job,
        name=job.reservation,
        namespace=job.namespace,
        pod=job.pod,
        uid=job.uid,
        ttl_seconds=job.ttl_seconds,
        order_ms=(ordered - EPOCH) // timedelta(milliseconds=1),
        without_claims=policy.without_claims,
        release=release,
    )
    return Request(key=key, subject=ASK, body=msgspec.json.encode(body))

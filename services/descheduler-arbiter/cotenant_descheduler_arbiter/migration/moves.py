"""The moves that limiters and back-off count, also those by jobs whose objects their users have deleted.

A deleted job stays on record until its move counts no longer. If a job of the same name is created meanwhile, its record
takes the move over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from cotenant.events.migrations import FormerMove, Migration
from cotenant_descheduler_arbiter.config.policy import DeschedulerPolicy
from cotenant_descheduler_arbiter.eviction.backoff import Move, needed_until
from cotenant_descheduler_arbiter.eviction.object_limiter import FORGET_FACTOR

MOST_FORMER_MOVES = 16
"""More on one name are counted no longer, the oldest first."""
JOB_DELETED = "JobDeleted"
"""The reason of a job that was deleted while it held a place, or while its eviction was ordered."""


def moves_of(jobs: Iterable[Migration]) -> Iterator[Move]:
    """Yield the jobs and the moves that they have taken over."""
    for job in jobs:
        yield job
        yield from job.former_moves


def moved_at(move: Move) -> datetime | None:
    """Return when the pod's eviction was granted, or ordered if the answer is not known; None if the pod was not evicted."""
    if isinstance(move, Migration) and move.evicted_at is None:
        return move.ordered_at if not move.finished or move.reason == JOB_DELETED else None
    return move.evicted_at


def counts_until(move: Move, policy: DeschedulerPolicy) -> datetime | None:
    """Return until when a limiter or the back-off counts the move; None if none does."""
    at = moved_at(move)
    window = max((limiter.duration for limiter in policy.limiters.values()), default=timedelta(0))
    times = [] if at is None else [at + window * FORGET_FACTOR + timedelta.resolution]
    until = needed_until(move, policy.back_off_base, policy.back_off_maximum)
    return max(times if until is None else [*times, until], default=None)


def taken_over(job: Migration, policy: DeschedulerPolicy, now: datetime) -> tuple[FormerMove, ...]:
    """Return what a new job of the same name takes over from the record of a deleted one, at most `MOST_FORMER_MOVES`."""
    moves: list[FormerMove] = []
    for move in moves_of((job,)):
        at, until = moved_at(move), counts_until(move, policy)
        if at is None or until is None or until <= now:
            continue
        former = FormerMove(
            job=move.job,
            namespace=move.namespace,
            pod=move.pod,
            workload=move.workload,
            evicted_at=at,
            workload_moves=move.workload_moves,
            workload_retry_at=move.workload_retry_at,
        )
        moves.append(former)
    return tuple(sorted(moves, key=lambda former: former.evicted_at)[-MOST_FORMER_MOVES:])

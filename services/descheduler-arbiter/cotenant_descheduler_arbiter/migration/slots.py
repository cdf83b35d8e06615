"""Descheduling cycles as slots of the interval since 1970: slot n lasts from n * interval to (n + 1) * interval.

A cycle's evictions are the jobs that plugins created in its slot.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cotenant.events.migrations import PREEMPTION, TAINT_EVICTION, Migration
from cotenant_descheduler_arbiter.state.fold import ClusterFold

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def slot_of(at: datetime, interval: timedelta) -> int:
    """Return the number of the cycle at a time."""
    return (at - _EPOCH) // interval


def start_of_slot(slot: int, interval: timedelta) -> datetime:
    """Return when a cycle begins."""
    return _EPOCH + slot * interval


def by_plugin(job: Migration) -> bool:
    """Whether a plugin created the job."""
    return not job.object_uid and job.trigger not in (TAINT_EVICTION, PREEMPTION)


def evicted_in_slot(fold: ClusterFold, slot: int, interval: timedelta) -> list[tuple[str, str]]:
    """Return (node, namespace) of the cycle's evictions so far, by job."""
    return [
        (known.value.node, known.value.namespace)
        for _, known in sorted(fold.jobs.items())
        if by_plugin(known.value)
        and known.value.created_at is not None
        and slot_of(known.value.created_at, interval) == slot
    ]

"""Pods that the scheduler has left in its queue for too long, and gangs that wait: figures for metrics.

In: the queue, at most every LOOK of log time. Out: numbers, on which no decision depends. A pod is overdue that needs a node
and has neither a node nor a reason to wait, `schedulingTimeoutSeconds` after its object was stored: the scheduler has not
tried it yet. This only counts; nothing is ended or retried for it. Source: Koordinator's SchedulerMonitor (`--scheduling-
timeout`, `--scheduler-monitor-period`), where a pod is overdue that its scheduling cycle has held for that time.

Bounds: the queued pods.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass
from cotenant_scheduler.state.pod_records import PodRecord

LOOK = timedelta(seconds=10)


class SchedulerMonitor:
    """The results of the last check of the queue."""

    def __init__(self, timeout_seconds: float) -> None:
        """`timeout_seconds`: 0: no pod is ever overdue."""
        self._timeout = timedelta(seconds=timeout_seconds)
        self._next: datetime | None = None
        self.overdue = 0
        self.waiting_groups = 0
        """Gang groups in the queue."""

    def look(self, classes: Iterable[EquivalenceClass], now: datetime) -> None:
        """Check the queue, if due."""
        if self._next is not None and now < self._next:
            return
        self._next = now + LOOK
        overdue = groups = 0
        for alike in classes:
            groups += isinstance(alike, GroupClass)
            if self._timeout:
                overdue += sum(self._is_overdue(record, now) for _, record in alike.pods())
        self.overdue, self.waiting_groups = overdue, groups

    def _is_overdue(self, record: PodRecord, now: datetime) -> bool:
        facts, waiting = record.facts, record.waiting
        if facts is None or record.object_at is None or (waiting is not None and waiting.uid == facts.uid):
            return False
        return now - record.object_at > self._timeout

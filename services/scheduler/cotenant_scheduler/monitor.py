"""Pods that the scheduler has left in its queue for too long, and gangs that wait.

In: the queue. Out: for metrics, at most every LOOK of log time, numbers on which no decision depends; and the waiting events of
overdue pods. A pod is overdue that needs a node and has neither a node nor a reason to wait, `schedulingTimeoutSeconds` after
its object was stored: the scheduler has not tried it yet, or not come to store the reason. That can only be while decisions end
before they have tried the whole queue; then the first pod of each class that the decision did not come to gets the class's
reason, or the reason `overdue`. Nothing is ended or retried for it. Source: Koordinator's SchedulerMonitor (`--scheduling-
timeout`, `--scheduler-monitor-period`), which logs and counts pods that their scheduling cycle has held for that time.

Bounds: the queued pods; of a decision's events one in EVENTS_A_REPORT, and one a class; a pod is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta

from cotenant.events.envelope import Event
from cotenant.events.placements import Waiting
from cotenant_scheduler.cycle.endings.blocked import blocked_by, blocked_event
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.state.counting import PodKey, is_reserve
from cotenant_scheduler.state.pod_records import PodRecord

LOOK = timedelta(seconds=10)
EVENTS_A_REPORT = 100
"""Of so many events of a decision one may report an overdue pod."""
OVERDUE = "overdue"
"""The reason code of a pod that was not tried."""


class SchedulerMonitor:
    """The results of the last check of the queue."""

    def __init__(self, timeout_seconds: float) -> None:
        """`timeout_seconds`: 0: no pod is ever overdue."""
        self._timeout = timedelta(seconds=timeout_seconds)
        self._next: datetime | None = None
        self.overdue = 0
        self.waiting_groups = 0
        """Gang groups in the queue."""
        self._since: datetime | None = None
        """No pod in the queue without a reason to wait is older; None while that is not known."""

    def look(self, classes: Iterable[EquivalenceClass], now: datetime) -> None:
        """Check the queue, if due."""
        if self._next is not None and now < self._next:
            return
        self._next = now + LOOK
        self._since = now
        overdue = groups = 0
        for alike in classes:
            groups += isinstance(alike, GroupClass)
            for _, record in alike.pods() if self._timeout else ():
                overdue += self._is_overdue(record, now)
                self.note(record)
        self.overdue, self.waiting_groups = overdue, groups

    def note(self, record: PodRecord) -> None:
        """A pod in the queue changed."""
        at = record.object_at
        if record.waiting is None and at is not None and self._since is not None and at < self._since:
            self._since = at

    def _is_overdue(self, record: PodRecord, now: datetime) -> bool:
        facts, waiting = record.facts, record.waiting
        if facts is None or record.object_at is None:
            return False
        if waiting is not None and waiting.uid == facts.uid and not is_overdue(waiting):
            return False
        return now - record.object_at > self._timeout

    def reports(
        self,
        classes: Iterable[EquivalenceClass],
        waiting: WaitingPods,
        placed: Callable[[PodKey], bool],
        now: datetime,
        limit: int,
    ) -> list[Event]:
        """Return at most `limit` waiting events of overdue pods after a decision that did not try the whole queue, those of the
        oldest."""
        found = [
            (record.object_at, record.key, record, alike)
            for record, alike in self._heads(classes, now)
            if record.object_at is not None and not placed(record.key)
        ]
        found.sort(key=lambda entry: entry[:2])
        del found[limit:]
        waiting.note_missing(alike for _, _, _, alike in found)
        return [self._report(record, alike, waiting, now) for _, _, record, alike in found]

    def has_overdue(self, classes: Iterable[EquivalenceClass], now: datetime) -> bool:
        """Return whether the first pod of any class is overdue and has not been reported."""
        if self._since is not None and now - self._since <= self._timeout:
            return False
        return next(self._heads(classes, now), None) is not None

    def _heads(self, classes: Iterable[EquivalenceClass], now: datetime) -> Iterator[tuple[PodRecord, EquivalenceClass]]:
        """Walk the overdue first pods of classes."""
        for alike in classes if self._timeout else ():
            head = next(alike.pods(), None)
            if head is None or head[1].waiting is not None or is_reserve(head[1].key):
                continue
            if self._is_overdue(head[1], now):
                yield head[1], alike

    def _report(self, record: PodRecord, alike: EquivalenceClass, waiting: WaitingPods, now: datetime) -> Event:
        if alike.template is not None:
            return waiting.event(record, alike.template, None)
        assert record.object_at is not None
        seconds = int((now - record.object_at).total_seconds())
        detail = f"the scheduler has not come to it for {seconds} s: it is behind other pods in the queue"
        return blocked_event(record, blocked_by(OVERDUE, detail))


def is_overdue(waiting: Waiting) -> bool:
    """Return whether a pod waits for no other reason than that it was not tried."""
    return len(waiting.reasons) == 1 and waiting.reasons[0].code == OVERDUE


def warnings(events: Iterable[Event]) -> list[str]:
    """Return a line for each pod that events report as overdue."""
    return [
        f"pod {data.namespace}/{data.name}: {data.message}"
        for event in events
        if isinstance(data := event.data, Waiting) and not event.tombstone and is_overdue(data)
    ]

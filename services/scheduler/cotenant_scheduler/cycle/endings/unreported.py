"""Pods that have to end and whose executors have not said that they have: they are looked at again when their time is over.

In: pods whose terminating placement nothing follows from at present. Out: the records of those that count as gone without a
report. A pod whose record changes, by a report for example, is inspected anyway.

Bound: the pods with a terminating placement. Those that are due are searched for once the earliest time is reached, not in
every decision.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.pod_records import PlacementRecord, PodRecord

LAST_WORD = timedelta(seconds=60)
"""How long a silent node may take to report the end of a pod that it has to end."""


def counts_as_gone_at(placed: PlacementRecord, *, declared: bool, reported: bool) -> datetime | None:
    """Return when a terminating pod counts as gone although its executor has not said so; None: never, as its node exists
    (`declared`) and has reported on the pod."""
    since = placed.data.terminating_at
    if since is None or (declared and reported):
        return None
    return since + timedelta(seconds=placed.data.grace_period_seconds) + LAST_WORD


class UnreportedEnds:
    """The pods that are waited for. Mutable."""

    def __init__(self) -> None:
        self._until: dict[PodKey, tuple[datetime, PodRecord]] = {}
        self._earliest: datetime | None = None
        """No pod is due before."""

    def __len__(self) -> int:
        return len(self._until)

    def wait(self, record: PodRecord, until: datetime) -> None:
        """Wait for a pod; where two of its placements end, for the first."""
        known = self._until.get(record.key)
        if known is not None and known[0] <= until:
            return
        self._until[record.key] = until, record
        if self._earliest is None or until < self._earliest:
            self._earliest = until

    def forget(self, record: PodRecord) -> None:
        """A pod is inspected, or has no placement any more."""
        if self._until:
            self._until.pop(record.key, None)

    def due(self, now: datetime) -> list[PodRecord]:
        """Return the pods whose time is over; they are no longer waited for."""
        if self._earliest is None or now < self._earliest:
            return []
        due = [record for until, record in self._until.values() if until <= now]
        for record in due:
            del self._until[record.key]
        self._earliest = min((until for until, _ in self._until.values()), default=None)
        return due

"""When to store the reason of a pod that waits whatever state the nodes are in.

In: the pod's record, the reason, the time. Out: when its waiting event is due. A reason in the pod's object alone is stored at
once, as nothing else can change it.
"""

from __future__ import annotations

from datetime import datetime

from cotenant.events.placements import WaitingReason
from cotenant_scheduler.cycle.waiting import WAITING_PAUSE, first_due
from cotenant_scheduler.state.pod_records import PodRecord

OF_OBJECT = frozenset({"malformed", "gated"})
"""Reasons to wait that only the pod's own object can change."""


def blocked_due(record: PodRecord, reason: WaitingReason, now: datetime) -> datetime | None:
    """Return when to store the reason; None: it is stored already."""
    assert record.facts is not None
    last = record.waiting if record.waiting is not None and record.waiting.uid == record.facts.uid else None
    if last is not None and last.reasons == (reason,):
        return None
    if reason.code in OF_OBJECT:
        return now
    if last is None:
        return first_due(record, now)
    if last.codes == {(reason.code, reason.resource)} and record.waiting_at is not None:
        return record.waiting_at + WAITING_PAUSE
    return now

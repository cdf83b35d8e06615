"""Waiting events of pods that wait whatever state the nodes are in: for a reason of their own.

In: the pod's record, the reason, the time. Out: the event, and when it is due. A reason in the pod's object alone is stored at
once, as nothing else can change it.
"""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Event
from cotenant.events.placements import Waiting, WaitingReason
from cotenant.model.subjects import node_subject, pod_subject, waiting_subject
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


def blocked_event(record: PodRecord, reason: WaitingReason) -> Event:
    """Return the waiting event of a pod with a reason of its own."""
    facts = record.facts
    assert facts is not None
    namespace, name = record.key
    wakes = {
        "predecessor": (f"node.*.run.{namespace}.{name}", f"node.*.placement.{namespace}.{name}"),
        "node-missing": (node_subject(facts.node_name),) if facts.node_name else (),
    }.get(reason.code, (pod_subject(namespace, name),))
    return Event(
        subject=waiting_subject(namespace, name),
        data=Waiting(
            namespace=namespace,
            name=name,
            uid=facts.uid,
            reasons=(reason,),
            wakes_on=wakes,
            message=reason.detail,
        ),
        causes=(f"LOG:{record.object_sequence}", *(f"LOG:{p.sequence}" for p in record.placements.values())),
    )


def blocked_by(code: str, detail: str) -> WaitingReason:
    """Return a reason that concerns the pod and no node."""
    return WaitingReason(code=code, count=0, detail=detail)

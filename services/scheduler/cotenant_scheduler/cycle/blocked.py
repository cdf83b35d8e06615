"""What a pod is told that waits whatever state the nodes are in: its own object, or its predecessor, holds it back.

In: the pod's record and the reason. Out: its waiting event, with the subjects that can change that.
"""

from __future__ import annotations

from cotenant.events.envelope import Event
from cotenant.events.placements import Waiting, WaitingReason
from cotenant.model.subjects import node_subject, pod_subject, waiting_subject
from cotenant_scheduler.state.pod_records import PodRecord


def blocked_event(record: PodRecord, reason: WaitingReason) -> Event:
    """Return the waiting event of a pod that a reason of its own holds back."""
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
    """Return a reason that is about the pod and no node."""
    return WaitingReason(code=code, count=0, detail=detail)

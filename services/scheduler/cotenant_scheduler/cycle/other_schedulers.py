"""Pods of other schedulers, as far as this one decides about them.

In: the record of a pod. Out: where another scheduler has nominated it, and whether a placement came too late. The rules:

    a pod's scheduler is the one that its label `scheduling.koordinator.sh/scheduler-name` names, else `spec.schedulerName`
    a pod of another scheduler whose `status.nominatedNodeName` names a node is kept its room there, as one of this scheduler
    is, from pods of the same or a lower priority, until it has a node or ends
    a placement that was decided without knowing that its pod belongs to another scheduler by now, and was stored after that,
    is undone as long as its node has not begun to run the pod

Source: Koordinator's multi-scheduler label, CrossSchedulerNomination, DynamicSchedulerCheck (which looks before it binds; here
the placement is on the log first, and no report of its executor is).
"""

from __future__ import annotations

from datetime import UTC, datetime

from cotenant.events.placements import Nomination
from cotenant.model.names import SCHEDULER_NAMES
from cotenant_scheduler.state.pod_records import PlacementRecord, PodRecord

BELONGS_ELSEWHERE = "the pod has belonged to another scheduler since before it was placed"
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def nomination_elsewhere(record: PodRecord) -> Nomination | None:
    """Return the node that another scheduler has nominated a pod to."""
    facts = record.facts
    if facts is None or not facts.nominated or facts.shape is None or facts.scheduler_name in SCHEDULER_NAMES:
        return None
    if record.placements or facts.node_name or facts.deleting or record.finished:
        return None
    return Nomination(node=facts.nominated, at=record.object_at or _LONG_AGO)


def came_too_late(record: PodRecord, node: str, placed: PlacementRecord) -> bool:
    """Return whether a placement was decided before, and stored after, the pod was given to another scheduler."""
    facts = record.facts
    return (
        facts is not None
        and facts.scheduler_name not in SCHEDULER_NAMES
        and not facts.node_name
        and placed.data.object_sequence < record.object_sequence < placed.sequence
        and record.run_of(node, facts.uid) is None
    )

"""What facts say of objects, in the words of the core/v1 Events that Kubernetes and Koordinator write.

In: a fact about a pod, a node, a reservation, a migration job, or rejected sections of the node configuration. Out:
`Narration`s: the object, the reason, the message. A fact of a type without a narrator is no news.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cotenant.api.times import derived_uid
from cotenant.domain.reservations.diagnosis import reservation_message
from cotenant.events.configurations import ConfigurationRejected
from cotenant.events.migrations import PREEMPTION, TAINT_EVICTION, EvictionOutcome, Migration
from cotenant.events.node.conditions import NodeCondition, disruption_text
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase, Waiting, condition_message
from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant.model.values import Value

JOB = "PodMigrationJob"
_ARBITER = "descheduler-arbiter"


class Narration(Value, frozen=True):
    """What happened to which object, as in a core/v1 Event."""

    kind: str
    namespace: str
    name: str
    uid: str
    normal: bool
    reason: str
    message: str
    component: str
    about: str = ""
    """The part of the object that it is about, where one reason stands for several."""


_OF_RUNS = {
    RunPhase.RUNNING: (True, "Started", "Started on"),
    RunPhase.SUCCEEDED: (True, "Completed", "Completed on"),
    RunPhase.FAILED: (False, "Failed", "Failed on"),
    RunPhase.EVICTED: (False, "Evicted", "Evicted by"),
    RunPhase.STOPPED: (True, "Killed", "Stopped on"),
}


def _narrate_placement(placed: Placement) -> Narration:
    if placed.phase is PlacementPhase.TERMINATING:
        message = f"Stopping pod {placed.name}" + (f": {placed.reason}" if placed.reason else "")
        return Narration("Pod", placed.namespace, placed.name, placed.uid, True, "Killing", message, "scheduler")
    message = f"Successfully assigned {placed.namespace}/{placed.name} to {placed.node}"
    return Narration("Pod", placed.namespace, placed.name, placed.uid, True, "Scheduled", message, "scheduler")


def _narrate_waiting(waiting: Waiting) -> Narration:
    message = condition_message(waiting)
    return Narration("Pod", waiting.namespace, waiting.name, waiting.uid, False, "FailedScheduling", message, "scheduler")


def _narrate_eviction(outcome: EvictionOutcome) -> Narration:
    reason = "Evicted" if outcome.allowed else "EvictionRefused"
    message = outcome.message or ("eviction allowed" if outcome.allowed else "eviction refused")
    return Narration("Pod", outcome.namespace, outcome.name, outcome.uid, outcome.allowed, reason, message, "gateway")


def _narrate_run(run: RunStatus) -> Narration | None:
    """What became of a pod on its node; an eviction is told when it begins, before the pod's grace period is over."""
    begun = run.eviction
    if begun is not None and not run.phase.terminal:
        message = f"Evicted by {begun.strategy} of {run.node}, {begun.grace_seconds} s until SIGKILL: {begun.why}"
        return Narration("Pod", run.namespace, run.name, run.uid, False, "Evicted", message, "node-executor")
    narration = _OF_RUNS.get(run.phase)
    if narration is None:
        return None
    normal, reason, begin = narration
    detail = run.message or run.reason
    message = f"{begin} {run.node}: {detail}" if detail else f"{begin} {run.node}"
    return Narration("Pod", run.namespace, run.name, run.uid, normal, reason, message, "node-executor")


def _narrate_migration(job: Migration) -> Sequence[Narration]:
    """A migration job and its pod. An eviction by taint that was cancelled is told in the words of Kubernetes' taint eviction
    controller; jobs that end victims of preemption say nothing, as the pods do."""
    if job.trigger == TAINT_EVICTION or job.taint:
        if job.phase != "Aborted" or not job.taint:
            return ()
        message = f"Cancelling deletion of Pod {job.namespace}/{job.pod}: {job.message}"
        return (Narration("Pod", job.namespace, job.pod, job.uid, True, "TaintManagerEviction", message, _ARBITER),)
    if job.trigger == PREEMPTION:
        return ()
    found = list(narrated_job(job))
    if job.evicted_at is not None:
        message = f'Pod evicted from node "{job.node}" by the reason "{job.evict_reason or job.trigger}"'
        found.append(Narration("Pod", job.namespace, job.pod, job.uid, True, "Descheduled", message, _ARBITER))
    return found


def narrated_job(job: Migration) -> Iterator[Narration]:
    """What happened to a PodMigrationJob so far, in the words of Koordinator's controller."""
    uid = job.object_uid or derived_uid("PodMigrationJob", job.job, job.uid)
    pod, place = f'Pod "{job.namespace}/{job.pod}"', f'Reservation "{job.reservation}"'
    bound = f"{job.bound.namespace}/{job.bound.name}" if job.bound is not None else ""
    texts = {
        ("ReservationCreated", "True"): f"Successfully create {place}",
        ("ReservationScheduled", "True"): f'Assigned {place} to node "{job.reservation_node}"',
        ("Eviction", "True"): f"{pod} has been evicted",
        ("PodBoundReservation", "False"): "Waiting for Pod bind Reservation",
        ("ReservationBound", "True"): f'Reservation bound by pod "{bound}"',
        ("BoundPodReady", "False"): f"Waiting for Bound Pod {bound} Ready",
        ("BoundPodReady", "True"): f'Bind pod "{bound}" is ready',
    }
    reasons = {"Eviction": "EvictComplete", "ReservationBound": "PodBoundReservation"}
    for condition in job.conditions:
        message = condition.message or texts.get((condition.type, condition.status), "")
        if not message:
            continue
        reason = condition.reason or reasons.get(condition.type, condition.type)
        normal = (condition.type, condition.status) in texts or condition.type == "Eviction"
        yield Narration(JOB, "", job.job, uid, normal, reason, message, _ARBITER)
    if job.finished:
        reason = "Complete" if job.phase == "Succeeded" else job.reason or job.phase
        message = job.message or job.phase
        yield Narration(JOB, "", job.job, uid, job.phase == "Succeeded", reason, message, _ARBITER)


def _narrate_condition(condition: NodeCondition) -> Narration:
    if condition.ready and condition.no_execute:
        taints = ", ".join(taint.key for taint in condition.no_execute)
        message = f"pods that do not tolerate {taints} are evicted"
        return Narration("Node", "", condition.node, "", True, "NodeTainted", message, _ARBITER)
    reason = "NodeReady" if condition.ready else "NodeNotReady"
    message = condition.message or f"Node {condition.node} status is now: {reason}"
    if condition.disruption is not None:
        message = f"{message}; {disruption_text(condition.disruption)}"
    return Narration("Node", "", condition.node, "", condition.ready, reason, message, _ARBITER)


def _narrate_share(share: ReservationShare) -> Narration:
    message = f"Successfully assigned reservation {share.name} to {share.node}"
    return Narration("Reservation", "", share.name, share.uid, True, "Scheduled", message, "scheduler")


def _narrate_reservation(status: ReservationStatus) -> Narration:
    if status.phase is ReservationPhase.PENDING:
        message = status.full_message
        return Narration("Reservation", "", status.name, status.uid, False, "FailedScheduling", message, "scheduler")
    normal = status.phase is ReservationPhase.SUCCEEDED
    return Narration("Reservation", "", status.name, status.uid, normal, status.reason, status.message, "scheduler")


def _narrate_reservations(waiting: Waiting) -> Narration | None:
    """A waiting pod's diagnosis of reservations, computed independently, in Koordinator's words."""
    message = reservation_message(waiting.message)
    if not message:
        return None
    return Narration("Pod", waiting.namespace, waiting.name, waiting.uid, False, "FailedReservation", message, "scheduler")


def _narrate_rejections(rejected: ConfigurationRejected) -> Sequence[Narration]:
    """Rejected sections of the node configuration, each with Koordinator's reason."""
    return [
        Narration(
            "ConfigMap",
            rejected.namespace,
            rejected.name,
            rejected.uid,
            False,
            section.reason,
            f"{section.message}; the previous value of {section.key} stays in force",
            "batch-resource-calculator",
            section.key,
        )
        for section in rejected.sections
    ]


def _each(*narrators: Callable[[Any], Narration | None]) -> Callable[[Any], Sequence[Narration | None]]:
    """What several functions make of one fact."""
    return lambda data: [narrator(data) for narrator in narrators]


NARRATORS: dict[type, Callable[[Any], Sequence[Narration | None]]] = {
    Placement: _each(_narrate_placement),
    Waiting: _each(_narrate_waiting, _narrate_reservations),
    EvictionOutcome: _each(_narrate_eviction),
    RunStatus: _each(_narrate_run),
    NodeCondition: _each(_narrate_condition),
    Migration: _narrate_migration,
    ReservationShare: _each(_narrate_share),
    ReservationStatus: _each(_narrate_reservation),
    ConfigurationRejected: _narrate_rejections,
}
"""Each function takes the payload type that it is listed with; None stands for no Event."""

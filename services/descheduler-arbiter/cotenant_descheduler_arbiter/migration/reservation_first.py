"""Mode ReservationFirst: the steps of a running job before its pod is evicted, and after.

In: the job, its pod, its reservation, the gateway's answer, the time. Out: the job after the step; the same job if nothing
changed.

    before   no reservation asked for         -> it is asked for, unless the job's object names one
             refused by the gateway           -> condition ReservationCreated False; asked again after 3, 6, ... at most 60 s
             object there                     -> ReservationCreated True; gone again: Failed, MissingReservation
             no node takes it                 -> ReservationScheduled False, with the scheduler's words; wait
             ended: expired                   -> Failed, ReservationExpired
                    taken by another pod      -> Failed, ForbiddenMigratePod
                    otherwise                 -> Failed, Unschedulable without a node, else ReservationLost
             a place on the pod's own node    -> Failed, ForbiddenMigratePod
             a place elsewhere                -> ReservationScheduled True, status.nodeName; the eviction may be ordered
    after    nobody has taken the place       -> PodBoundReservation False; wait
             a pod has                        -> ReservationBound True, status.podRef; not ready: BoundPodReady False; wait
             ready, or gone again             -> BoundPodReady and PodBoundReservation True: Succeeded

A reservation for a pod that has no node yet (its owner is that pod) evicts nobody: the job waits until the pod is placed.

Source: koord-descheduler migration controller (steps 5 to 18 of its reconciliation). ReservationLost is cotenant's own: there
a reservation that ended after it had a node is not looked at.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.events.migrations import JobCondition, Migration
from cotenant_descheduler_arbiter.migration.conditions import fail, holds, succeed, with_condition
from cotenant_descheduler_arbiter.migration.jobs.view import JobView, back_off
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.reservations import ReservationFacts

RESERVATION_CREATED = "ReservationCreated"
RESERVATION_SCHEDULED = "ReservationScheduled"
RESERVATION_BOUND = "ReservationBound"
POD_BOUND_RESERVATION = "PodBoundReservation"
BOUND_POD_READY = "BoundPodReady"
POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
FORBIDDEN = "ForbiddenMigratePod"
TAKEN = "Reservation is already bound by another Pod"


def reservation_name(job: Migration, named: str = "") -> str:
    """Return the name of the reservation of a job that makes one. `named`: by the job's template."""
    return named or job.object_uid or job.job


def hold_place(job: Migration, view: JobView, now: datetime) -> Migration:
    """Return the job after a step before its eviction: `ready_to_evict` holds once the pod may leave."""
    found = view.reservation
    if not job.reservation:
        name = reservation_name(job, view.template_name)
        return msgspec.structs.replace(job, reservation=name, reserve_ordered_at=now)
    if found is None:
        return _without_object(job, view, now)
    if not job.reservation_uid:
        job = msgspec.structs.replace(job, reservation_uid=found.uid, retry_at=None)
    elif job.reservation_uid != found.uid:
        return _missing(job, now)
    job = _put(job, RESERVATION_CREATED, now)
    if found.ended:
        return _ended(job, found, now)
    if not found.available:
        if found.reason == UNSCHEDULABLE and not holds(job, RESERVATION_SCHEDULED):
            refused = JobCondition(
                type=RESERVATION_SCHEDULED, status="False", reason=UNSCHEDULABLE, message=found.message
            )
            return with_condition(job, refused, now)
        return job
    if view.pod is not None and view.pod.node == found.node and not found.of_pod:
        return fail(job, FORBIDDEN, f'the place of Reservation "{found.name}" is on the Pod\'s own node {found.node}', now)
    job = msgspec.structs.replace(job, reservation_node=found.node)
    return _put(job, RESERVATION_SCHEDULED, now)


def ready_to_evict(job: Migration, found: ReservationFacts | None) -> bool:
    """Whether the pod's next place is held."""
    if found is None or not found.available or not holds(job, RESERVATION_SCHEDULED):
        return False
    return job.reservation_given or not found.owners


def follow_successor(job: Migration, view: JobView, now: datetime) -> Migration:
    """Return the job after a step that follows its eviction."""
    found = view.reservation
    if found is None or found.uid != job.reservation_uid:
        return job if holds(job, RESERVATION_BOUND) else _missing(job, now)
    bound = job.bound
    if bound is None:
        bound = next((owner for owner in found.owners if owner.uid != job.uid or not owner.uid), None)
    if bound is None:
        if found.ended:
            return _ended(job, found, now)
        waiting = JobCondition(type=POD_BOUND_RESERVATION, status="False", reason="WaitForPodBindReservation")
        return with_condition(job, waiting, now)
    job = _put(msgspec.structs.replace(job, bound=bound), RESERVATION_BOUND, now)
    pod = view.bound_pod
    if pod is not None and not pod.ready and (not bound.uid or pod.uid == bound.uid):
        unready = JobCondition(type=BOUND_POD_READY, status="False", reason="WaitForBoundPodReady")
        return with_condition(job, unready, now)
    job = _put(job, BOUND_POD_READY, now)
    job = _put(job, POD_BOUND_RESERVATION, now)
    return succeed(job, f'Pod "{bound.namespace}/{bound.name}" has taken the place on node "{job.reservation_node}"', now)


def follow_pending_pod(job: Migration, pod: PodFacts, found: ReservationFacts, now: datetime) -> Migration:
    """Return the job of a pod that had no node, after a step."""
    if pod.node:
        job = _put(job, POD_SCHEDULED, now)
        return succeed(job, f'Pod "{pod.key}" is placed on node "{pod.node}"', now)
    if found.phase == "Succeeded" and all(owner.uid != pod.uid for owner in found.owners):
        return fail(job, FORBIDDEN, TAKEN, now)
    waiting = JobCondition(type=POD_SCHEDULED, status="False", reason=UNSCHEDULABLE, message="the Pod has no node yet")
    return with_condition(job, waiting, now)


def _without_object(job: Migration, view: JobView, now: datetime) -> Migration:
    if job.reservation_uid or job.reservation_given:
        return _missing(job, now)
    answer = view.answer
    if answer is None or answer.allowed or answer.ref == job.answer:
        return job
    why = f"Failed to create Reservation caused by {answer.reason}"
    refused = JobCondition(type=RESERVATION_CREATED, status="False", reason="FailedCreateReservation", message=why)
    return back_off(with_condition(job, refused, now), answer, now)


def _missing(job: Migration, now: datetime) -> Migration:
    return fail(job, "MissingReservation", f'Abort job caused by missing Reservation "{job.reservation}"', now)


def _ended(job: Migration, found: ReservationFacts, now: datetime) -> Migration:
    if found.expired:
        return fail(job, "ReservationExpired", "Reservation expired", now)
    if found.phase == "Succeeded":
        return fail(job, FORBIDDEN, TAKEN, now)
    if not found.node:
        refused = JobCondition(type=RESERVATION_SCHEDULED, status="False", reason=UNSCHEDULABLE, message=found.message)
        return fail(with_condition(job, refused, now), UNSCHEDULABLE, found.message, now)
    return fail(job, "ReservationLost", found.message or f"Reservation {found.name} has ended: {found.reason}", now)


def _put(job: Migration, kind: str, now: datetime) -> Migration:
    return with_condition(job, JobCondition(type=kind, status="True"), now)

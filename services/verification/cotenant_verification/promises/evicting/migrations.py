"""Promise 23: a pod of a ReservationFirst job is evicted only once room is reserved, and unneeded reservations are deleted.

Read from the log alone: the outcome of an eviction names the share of the node as a cause.
"""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta

from cotenant.api.objects.reservation import decode_reservation
from cotenant.domain.reservations.of_migrations import job_of
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.objects import ObjectStored
from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.model.subjects import migration_subject, reservation_status_subject, tokens
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView

KNOWN_LATE = timedelta(seconds=30)
"""How much later, at most, a disconnected gateway learns of the end of a share."""


def a_place_is_held_first(view: LogView, event: Event) -> Wrong:
    """The pod of a job in mode ReservationFirst is evicted because a share of another node is held for it, by the reservation
    of this job, and that had not ended long before.
    """
    data = event.data
    if not isinstance(data, EvictionOutcome) or data.reason != "Evicted" or event.tombstone or not data.job:
        return
    job = view.moves.get(migration_subject(data.job))
    if job is None or job.mode != "ReservationFirst":
        return
    causes = (view.by_reference(cause) for cause in event.causes)
    held = next((cause for cause in causes if cause is not None and isinstance(cause.data, ReservationShare)), None)
    pod = f"{data.namespace}/{data.name}"
    if held is None or not isinstance(held.data, ReservationShare):
        yield event.subject, f"job {job.job} evicts {pod} from node {job.node}, and no share of another node is held for it"
        return
    share = held.data
    if share.name != job.reservation or share.node == job.node:
        yield event.subject, (
            f"{pod} is evicted from node {job.node} for {share.name} on {share.node}, but its job's reservation is "
            f"{job.reservation}"
        )
    ended = _end_of(view, held, event)
    if ended is not None and ended.time is not None and event.time is not None and event.time - ended.time > KNOWN_LATE:
        yield event.subject, f"{pod} is evicted from node {job.node} although {share.name} ended at {ended.ref}"


def _end_of(view: LogView, held: Event, until: Event) -> Event | None:
    """The end of a share between two events."""
    first = bisect_left(view.log, held.sequence, key=lambda event: event.sequence)
    between = (each for each in view.log[first + 1 :] if each.sequence < until.sequence)
    return next((each for each in between if each.subject == held.subject and each.tombstone), None)


def places_are_given_back(moment: Moment) -> Wrong:
    """When idle, a job's Reservation exists only while the job is unfinished, or if its pod uses it."""
    for subject, event in sorted(moment.view.last.items()):
        parts = tokens(subject)
        if parts[:3] != ("objects", RESERVATIONS.group, RESERVATIONS.plural) or not isinstance(event.data, ObjectStored):
            continue
        name = job_of(decode_reservation(event.data.object).metadata.annotations)
        job = moment.view.moves.get(migration_subject(name)) if name else None
        if job is not None and job.finished and job.phase != "Succeeded" and not _used(moment.view, parts[4]):
            yield subject, f"job {name} is {job.phase} and its reservation still exists"


def _used(view: LogView, name: str) -> bool:
    status = view.last.get(reservation_status_subject(name))
    found = status.data if status is not None else None
    return isinstance(found, ReservationStatus) and found.phase is ReservationPhase.SUCCEEDED

"""Promise 14: an acknowledged write is stored."""

from __future__ import annotations

from cotenant.domain.reservations.lifecycle import KEPT
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.reservations import ReservationStatus
from cotenant.model.subjects import node_subject, pod_subject, reservation_status_subject, tokens
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import LogView
from cotenant_verification.checks.records import revisions_of


def an_acknowledged_revision_stays(view: LogView, event: Event) -> Wrong:
    """No later version of a pod lacks a revision that was acknowledged."""
    data = event.data
    parts = tokens(event.subject)
    if not isinstance(data, ObjectStored) or event.tombstone or parts[1:3] != ("core", "pods"):
        return
    head = view.pods[(parts[3], parts[4])].metadata
    shown = revisions_of(head.annotations)
    for name, acknowledged in view.revisions.get(head.uid, {}).items():
        if shown.get(name, 0) < acknowledged:
            text = f"{event.ref} shows {name} {shown.get(name, 0)} of {parts[4]}; {acknowledged} was acknowledged"
            yield event.subject, text


def an_acknowledged_object_stays(view: LogView, event: Event) -> Wrong:
    """An acknowledged object ends only if its deletion, or that of its namespace, was requested; or if it is a pod that has
    finished on a node that was removed, or a reservation that has ended and is no longer kept, and its tombstone says so."""
    data = event.data
    if not isinstance(data, ObjectDeleted):
        return
    acknowledged = view.acknowledged.get(event.subject)
    if acknowledged is not None and acknowledged == data.uid and data.uid not in view.may_end and not _may_end(view, event):
        yield event.subject, f"{event.ref} ends an acknowledged object that nobody asked to delete"


def _may_end(view: LogView, event: Event) -> bool:
    """Whether the object was being deleted, or its namespace was: an unanswered request may have done that."""
    before, namespace = view.before(event), tokens(event.subject)[3]
    asked = (before is not None and view.ends(before)) or (namespace != "_" and view.namespace_ends(namespace))
    return asked or _was_collected(view, event) or _no_longer_kept(view, event)


def _was_collected(view: LogView, event: Event) -> bool:
    """Whether the pod had run to its end, on a node without an object, and its tombstone says that this is why."""
    data = event.data
    assert isinstance(data, ObjectDeleted)
    if not data.reason or data.uid not in view.ended_at:
        return False
    nodes = [node for node, uid in view.ended_runs if uid == data.uid]
    return any(node_subject(node) not in view.last for node in nodes)


def _no_longer_kept(view: LogView, event: Event) -> bool:
    """Whether it was a reservation that had ended a day ago, or whose node has no object, and its tombstone says why."""
    data, parts = event.data, tokens(event.subject)
    assert isinstance(data, ObjectDeleted)
    stated = view.last.get(reservation_status_subject(parts[4])) if parts[2] == "reservations" and data.reason else None
    if stated is None or not isinstance(stated.data, ReservationStatus) or not stated.data.ended:
        return False
    alone = stated.data.node != "" and node_subject(stated.data.node) not in view.last
    old = event.time is not None and stated.time is not None and event.time - stated.time > KEPT
    return stated.data.uid == data.uid and (alone or old)


def stale_writes_are_refused(moment: Moment) -> Wrong:
    """A write on the condition of an old version is never acknowledged."""
    for subject in moment.view.stale_accepted:
        yield subject, f"a write from an old version of {subject} was acknowledged"


def acknowledged_pods_are_there(moment: Moment) -> Wrong:
    """Every pod whose creation was acknowledged, and whose deletion was not requested, is on the log with that uid."""
    for subject, uid in sorted(moment.view.acknowledged.items()):
        parts = tokens(subject)
        if parts[1:3] != ("core", "pods") or uid in moment.view.may_end:
            continue
        pod = moment.view.pods.get((parts[3], parts[4]))
        if (pod is None or pod.metadata.uid != uid) and subject not in moment.view.ended:
            yield pod_subject(parts[3], parts[4]), f"{parts[3]}/{parts[4]} ({uid}) was acknowledged and is missing"

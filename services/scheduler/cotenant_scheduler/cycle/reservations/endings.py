"""The consequences of a changed reservation, besides finding it a node.

In: the records of reservations that changed, or whose time is over; the state of the nodes; who uses them. Out: events. The
rules:

    a share ends when its reservation's object is deleted or of another uid, when its time is over, when its node's object is
    deleted (both: Failed, reason Expired), or when it is allocated once and its owner has gone or is found there without it
    having ended. (The placement of its owner ends it in the same batch: `cycle.binding`.)
    a share is stored again when its owners changed, at most once in SHARE_PAUSE
    a status ends with its object, and a waiting one where a node was found
    a reservation without a node fails when its time is over; one that cannot be placed as it is written waits, with the reason
Owners stay where they are, whatever happens to the reservation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from cotenant.domain.reservations.lifecycle import allocates_once, following
from cotenant.events.envelope import Event
from cotenant.events.placements import UsedBy, Waiting, WaitingReason
from cotenant.events.reservations import ReservationOwner, ReservationShare
from cotenant.model.names import SCHEDULER_NAMES
from cotenant_scheduler.cycle.reservations.events import (
    ended,
    expires,
    share_changes,
    share_ends,
    state_of,
    status_ends,
    waits,
)
from cotenant_scheduler.plugins.reservation.fitting import allocated_of
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.held_rooms import Use
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reservations.cache import ReservationCache
from cotenant_scheduler.state.reservations.records import ReserveRecord

SHARE_PAUSE = timedelta(seconds=1)

_NOBODY = Use("", "")


class ReservationEndings:
    """Decides on one record at a time."""

    def __init__(
        self,
        cache: ReservationCache,
        nodes: NodeTable,
        records: Mapping[PodKey, PodRecord],
        uid_of: Callable[[PodKey], str],
    ) -> None:
        """`uid_of`: of a placed pod."""
        self._cache = cache
        self._nodes = nodes
        self._records = records
        self._uid_of = uid_of

    def due(self, now: datetime) -> list[PodRecord]:
        """Return the records to look at beside those that changed: their time is over, or their owners changed. Of a pod that
        acts as a reservation it is the pod's own."""
        found: list[PodRecord] = [*self._cache.expire(now)]
        unreported = self._nodes.held.unreported
        if unreported:
            for name in sorted(unreported):
                namespace, slash, pod = name.partition("/")
                record = self._records.get((namespace, pod)) if slash else self._cache.by_name.get(name)
                if record is not None:
                    found.append(record)
            unreported.clear()
        return found

    def used_by(self, key: PodKey, node: str, uid: str) -> UsedBy | None:
        """Return the users of a pod that acts as a reservation; None for none."""
        row = self._nodes.rows.get(node)
        use = self._nodes.held.on(row).get(uid) if row is not None else None
        if use is None or use.reserve_key != key or not use.owners:
            return None
        owner = min(use.owners)
        return UsedBy(namespace=owner[0], name=owner[1], uid=self._uid_of(owner))

    def look(self, record: ReserveRecord, now: datetime) -> tuple[list[Event], bool]:
        """Return what follows from a record, and whether that depends on nothing but its changes."""
        events: list[Event] = []
        settled = True
        over = record.name in self._cache.over
        for node in sorted(record.shares):
            share = record.shares[node]
            if record.reservation is None or share.uid != record.uid:
                events.append(share_ends(record, share, "the reservation was deleted"))
                continue
            found, idle = self._of_share(record, share, over, now)
            events += found
            settled &= idle
        events += self._of_status(record, over, now) if not any(_is_status(event) for event in events) else []
        return events, settled

    def _of_share(
        self, record: ReserveRecord, share: ReservationShare, over: bool, now: datetime
    ) -> tuple[list[Event], bool]:
        assert record.reservation is not None
        exists = self._nodes.is_declared(share.node)
        if over or not exists:
            why = "its time is over" if over else f"its node {share.node} was deleted"
            return expires(record, share, now, why), True
        row = self._nodes.rows.get(share.node)
        use = self._nodes.held.on(row).get(share.uid, _NOBODY) if row is not None else _NOBODY
        owners = sorted(
            (ReservationOwner(namespace=key[0], name=key[1], uid=self._uid_of(key)) for key in use.owners),
            key=lambda owner: (owner.uid, owner.namespace, owner.name),
        )
        once = allocates_once(record.reservation.spec)
        before = state_of(share)
        state = following(
            before,
            now,
            expires=None,
            once=once,
            node_exists=exists,
            owners=owners[: len(share.owners)] if len(owners) == share.owner_count else owners,
            allocated=allocated_of((pod.shape.requests for pod in use.owners.values()), tuple(share.allocatable)),
        )
        if state is before:
            return [], True
        if state.succeeded:
            why = "its owner has gone" if not owners else f"pod {owners[0].namespace}/{owners[0].name} has taken it"
            return [share_ends(record, share, why), ended(record, state, now, why, len(owners))], True
        if share.updated_at is not None and share.owner_count and now < share.updated_at + SHARE_PAUSE:
            return [], False
        return [share_changes(record, share, state, len(owners), now)], True

    def _of_status(self, record: ReserveRecord, over: bool, now: datetime) -> list[Event]:
        status, reservation = record.status, record.reservation
        if reservation is None or (status is not None and status.uid != record.uid):
            return [status_ends(record)] if status is not None else []
        if record.share() is not None:
            return [status_ends(record)] if status is not None and not status.ended else []
        if status is not None and status.ended:
            return []
        if over:
            return expires(record, None, now, "its time is over before a node was found")
        ours = record.facts is None or record.facts.scheduler_name in SCHEDULER_NAMES
        if not record.problem or not ours:
            return [status_ends(record)] if status is not None and not ours else []
        template = _malformed(record)
        known = status is not None and status.uid == record.uid and status.message == template.message
        return [] if known else [waits(record, template, (), now)]


def _is_status(event: Event) -> bool:
    """Whether an event is the reservation's status."""
    return event.subject.startswith("reservations.")


def _malformed(record: ReserveRecord) -> Waiting:
    reason = WaitingReason(code="malformed", count=0, detail=record.problem)
    return Waiting(namespace="", name="", uid="", reasons=(reason,), message=record.problem)

"""The events of reservations: a share of a node begins and ends; a status states why one waits or how it ended.

In: the record of a reservation, the decision. Out: events with their causes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.domain.reservations.lifecycle import (
    EXPIRED,
    SUCCEEDED,
    UNSCHEDULABLE,
    State,
    failed_by_expiry,
    unschedulable,
    used_up,
)
from cotenant.domain.reservations.options import resized
from cotenant.domain.reservations.reserve_pod import reserve_pod_document, template_requests
from cotenant.events.envelope import Event
from cotenant.events.placements import Waiting
from cotenant.events.reservations import (
    OWNERS_SHOWN,
    ReservationOwner,
    ReservationPhase,
    ReservationShare,
    ReservationStatus,
    available_conditions,
)
from cotenant.log.contract import ending
from cotenant.model.bounds import saturated
from cotenant.model.subjects import reservation_status_subject, reservation_subject
from cotenant_scheduler.state.reservations.records import ReserveRecord


def share_of(record: ReserveRecord, node: str, now: datetime) -> ReservationShare:
    """Return the share of a reservation that is placed now: it holds what its template requests, overlaid by the annotation
    that resizes it."""
    reservation, source = record.reservation, record.source
    assert reservation is not None
    assert source is not None
    requested = template_requests(reservation)
    other = resized(reservation.metadata.annotations)
    held = {**requested, **other}
    return ReservationShare(
        node=node,
        name=record.name,
        uid=record.uid,
        allocatable={name: max(saturated(amount), 0) for name, amount in held.items()},
        bound_at=now,
        updated_at=now,
        object_sequence=record.object_sequence,
        pod=reserve_pod_document(source, reservation, node, held if other else None),
    )


def state_of(share: ReservationShare) -> State:
    """Return a share as the state of its reservation."""
    return State(
        phase=share.phase,
        node=share.node,
        allocatable=share.allocatable,
        allocated=share.allocated,
        owners=share.owners,
        conditions=available_conditions(share.bound_at),
    )


def pending_state(record: ReserveRecord) -> State:
    """Return the state of a reservation without a share."""
    status = record.status
    if status is None or status.uid != record.uid:
        return State()
    return State(conditions=status.conditions)


def share_ends(record: ReserveRecord, share: ReservationShare, reason: str, causes: tuple[str, ...] = ()) -> Event:
    """Return the tombstone of a share."""
    data = ReservationShare(
        node=share.node,
        name=share.name,
        uid=share.uid,
        phase=share.phase,
        bound_at=share.bound_at,
        object_sequence=share.object_sequence,
        reason=reason,
    )
    sequence = record.placements[share.node].sequence
    refs = (f"LOG:{record.object_sequence}",) if record.object_sequence else ()
    return ending(reservation_subject(share.node, share.name), data, (*refs, f"LOG:{sequence}", *causes))


def share_changes(record: ReserveRecord, share: ReservationShare, state: State, owners: int, now: datetime) -> Event:
    """Return a share with its present owners."""
    data = msgspec.structs.replace(
        share,
        allocated=_bounded(state.allocated),
        owners=tuple(state.owners[:OWNERS_SHOWN]),
        owner_count=owners,
        updated_at=now,
    )
    causes = (f"LOG:{record.object_sequence}", f"LOG:{record.placements[share.node].sequence}")
    return Event(subject=reservation_subject(share.node, share.name), data=data, causes=causes)


def ended(
    record: ReserveRecord, state: State, now: datetime, message: str, owners: int = 0, causes: tuple[str, ...] = ()
) -> Event:
    """Return the status of a reservation that has succeeded or failed."""
    data = ReservationStatus(
        name=record.name,
        uid=record.uid,
        phase=state.phase,
        node=state.node,
        allocatable=dict(state.allocatable),
        allocated=_bounded(state.allocated),
        owners=tuple(state.owners[:OWNERS_SHOWN]),
        owner_count=owners,
        conditions=state.conditions,
        reason=SUCCEEDED if state.succeeded else EXPIRED,
        message=message,
        at=now,
    )
    subject = reservation_status_subject(record.name)
    return Event(subject=subject, data=data, causes=(f"LOG:{record.object_sequence}", *causes))


def status_ends(record: ReserveRecord) -> Event:
    """Return the tombstone of a status."""
    status = record.status
    assert status is not None
    data = ReservationStatus(name=status.name, uid=status.uid, phase=status.phase)
    causes = (f"LOG:{record.object_sequence}",) if record.object_sequence else ()
    return ending(reservation_status_subject(record.name), data, causes)


def waits(record: ReserveRecord, template: Waiting, causes: Sequence[str], now: datetime) -> Event:
    """Return the status of a reservation that no node takes."""
    data = ReservationStatus(
        name=record.name,
        uid=record.uid,
        phase=ReservationPhase.PENDING,
        conditions=unschedulable(pending_state(record).conditions, template.message, now),
        reason=UNSCHEDULABLE,
        message=template.message,
        nodes=template.nodes,
        reasons=template.reasons,
        wakes_on=template.wakes_on,
        priority=template.priority,
        nomination=template.nomination,
        member=template.member,
        members=template.members,
        members_not_tried=template.members_not_tried,
        at=now,
    )
    subject = reservation_status_subject(record.name)
    return Event(subject=subject, data=data, causes=(f"LOG:{record.object_sequence}", *causes))


def used_up_by(
    record: ReserveRecord,
    share: ReservationShare,
    owner: ReservationOwner,
    allocated: Mapping[str, int],
    now: datetime,
) -> tuple[Event, Event]:
    """Return the end of a share that is allocated once, by the placement of its owner, and the status that follows."""
    state = msgspec.structs.replace(state_of(share), allocated=allocated, owners=(owner,))
    message = f"pod {owner.namespace}/{owner.name} has taken it"
    return share_ends(record, share, message), ended(record, used_up(state, now), now, message, 1)


def expires(record: ReserveRecord, share: ReservationShare | None, now: datetime, message: str) -> list[Event]:
    """Return the events of a reservation whose time is over."""
    if share is None:
        return [ended(record, failed_by_expiry(pending_state(record), now), now, message)]
    state = failed_by_expiry(state_of(share), now)
    return [share_ends(record, share, message), ended(record, state, now, message, share.owner_count)]


def _bounded(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: saturated(amount) for name, amount in amounts.items()}

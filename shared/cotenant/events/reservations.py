"""Reservations: a reservation's share of its node, and the status of one that has no share. Written by the scheduler.

A Reservation has one of the two, never both at the end of a batch: the share from the moment that a node is found until it
succeeds, fails or is deleted; the status before (why no node takes it) and after (how it ended). Neither: it was just created.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from cotenant.events.envelope import Part, Payload, null_document
from cotenant.events.placements import Nomination, RefusedMembers, WaitingReason, with_members
from cotenant.model.bounds import Amount, Count, Int32

OWNERS_SHOWN = 500
"""Owners that an event lists; `owner_count` counts all."""


class ReservationPhase(StrEnum):
    """As in Koordinator. Waiting is never stored; it is read of objects that another scheduler has written."""

    PENDING = "Pending"
    AVAILABLE = "Available"
    SUCCEEDED = "Succeeded"
    WAITING = "Waiting"
    FAILED = "Failed"


class ReservationOwner(Part, frozen=True, kw_only=True):
    """A pod that uses the reservation."""

    namespace: str
    name: str
    uid: str = ""


class ReservationCondition(Part, frozen=True, kw_only=True):
    """A condition: types `Scheduled` (reasons Scheduled, Unschedulable) and `Ready` (reasons Available, Succeeded, Expired)."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_probe_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReservationShare(Payload, frozen=True, kw_only=True):
    """Subject `node.<node>.reservation.<name>`: the room that an available reservation holds on this node.

    `allocatable` is its total, `allocated` the part taken by the `owners` (a sum over placements whose
    allocation names the reservation; as a figure here it follows within a second), both in milli-cores of cpu and in units.
    Reserved from all others is max(0, allocatable - allocated). `pod` is the reserve pod: the manifest by which ports, labels
    and affinity of the reservation count on the node. `owners` are sorted by uid, at most 500 of `owner_count`. It ends (a
    tombstone) when the reservation has succeeded, failed or been deleted; owners stay where they are.
    """

    TYPE = "cotenant.reservation.v1"
    SUBJECT = "node.{node}.reservation.{name}"

    node: str
    name: str
    uid: str
    phase: ReservationPhase = ReservationPhase.AVAILABLE
    allocatable: dict[str, Amount] = {}
    allocated: dict[str, Amount] = {}
    owners: tuple[ReservationOwner, ...] = ()
    owner_count: Count = 0
    bound_at: datetime | None = None
    updated_at: datetime | None = None
    object_sequence: Count = 0
    quota: str = ""
    quota_tree: str = ""
    reason: str = ""
    """Why it ended, in a tombstone."""
    pod: msgspec.Raw = msgspec.field(default_factory=null_document)


class ReservationStatus(Payload, frozen=True, kw_only=True):
    """Subject `reservations.<name>`: a reservation without a share of a node.

    `phase` Pending: `reasons`, `nodes`, `wakes_on` and `message` give the reason and what would change it, as for a
    waiting pod (`waiting.<namespace>.<pod>`), `nomination` where room is being made, and `member`, `members` and
    `members_not_tried` who of its gang does not fit. Succeeded or Failed: `node`,
    `allocatable`, `allocated` and `owners` are those of the share at its end. `reason`: Unschedulable, Succeeded, Expired.
    """

    TYPE = "cotenant.reservationstatus.v1"
    SUBJECT = "reservations.{name}"

    name: str
    uid: str
    phase: ReservationPhase = ReservationPhase.PENDING
    node: str = ""
    allocatable: dict[str, Amount] = {}
    allocated: dict[str, Amount] = {}
    owners: tuple[ReservationOwner, ...] = ()
    owner_count: Count = 0
    conditions: tuple[ReservationCondition, ...] = ()
    reason: str = ""
    message: str = ""
    nodes: Count = 0
    reasons: tuple[WaitingReason, ...] = ()
    wakes_on: tuple[str, ...] = ()
    priority: Int32 = 0
    nomination: Nomination | None = None
    member: str = ""
    members: tuple[RefusedMembers, ...] = ()
    members_not_tried: Count = 0
    at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether it has succeeded or failed: it never gets a share again."""
        return self.phase in (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)

    @property
    def full_message(self) -> str:
        """The message, with the members of its gang that do not fit."""
        return with_members(self.message, self.member, self.members, self.members_not_tried)


def available_conditions(bound_at: datetime | None) -> tuple[ReservationCondition, ...]:
    """Return the conditions of a reservation with a share: they are rebuilt when it is bound, so earlier ones are gone."""
    return tuple(
        ReservationCondition(
            type=of, status="True", reason=reason, last_probe_time=bound_at, last_transition_time=bound_at
        )
        for of, reason in (("Scheduled", "Scheduled"), ("Ready", "Available"))
    )

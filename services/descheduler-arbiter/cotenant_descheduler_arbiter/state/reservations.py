"""Reservations, combined from their objects, the scheduler's shares of nodes and statuses.

In: the last event of each of these. Out: a ReservationFacts by name, built on demand. A share or status of another uid belongs
to an earlier Reservation of that name and does not count. Bound: one entry per existing message.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from cotenant.api.objects.reservation import Reservation, decode_reservation
from cotenant.domain.reservations.of_migrations import job_of
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.reservations import ReservationOwner, ReservationPhase, ReservationShare, ReservationStatus
from cotenant_descheduler_arbiter.state.known import Known, keep

EXPIRED = "Expired"


class ReservationFacts(msgspec.Struct, frozen=True):
    """A Reservation. `node`: the one that holds its place, empty until there is one; `ended`: it no longer holds a place."""

    name: str
    uid: str
    ref: str = ""
    """Its last message, as STREAM:sequence."""
    job: str = ""
    """The migration job that it was made for."""
    phase: str = "Pending"
    node: str = ""
    expired: bool = False
    reason: str = ""
    message: str = ""
    owners: tuple[ReservationOwner, ...] = ()
    of_pod: bool = False
    """Whether it is for one pod that has no node yet."""

    @property
    def ended(self) -> bool:
        return self.phase in (ReservationPhase.FAILED, ReservationPhase.SUCCEEDED)

    @property
    def available(self) -> bool:
        """Whether it holds a place."""
        return self.phase == ReservationPhase.AVAILABLE and bool(self.node)


class Reservations:
    """The mutable part of the fold for reservations."""

    def __init__(self) -> None:
        self.objects: dict[str, Known[Reservation]] = {}
        self._shares: defaultdict[str, dict[str, Known[ReservationShare]]] = defaultdict(dict)
        """By name and node."""
        self._statuses: dict[str, Known[ReservationStatus]] = {}

    def object_stored(self, event: Event, name: str) -> None:
        """Fold an object or its tombstone. Raises msgspec.DecodeError."""
        self.objects.pop(name, None)
        if not event.tombstone and isinstance(event.data, ObjectStored):
            self.objects[name] = Known(decode_reservation(event.data.object), event.sequence)

    def share(self, event: Event, name: str, node: str) -> None:
        """Fold a share or its tombstone."""
        keep(self._shares[name], node, event.data if isinstance(event.data, ReservationShare) else None, event)
        if not self._shares[name]:
            del self._shares[name]

    def status(self, event: Event, name: str) -> None:
        """Fold a status or its tombstone."""
        keep(self._statuses, name, event.data if isinstance(event.data, ReservationStatus) else None, event)

    def facts(self, name: str) -> ReservationFacts | None:
        """Return a reservation, None if it has no object."""
        known = self.objects.get(name)
        if known is None:
            return None
        declared = known.value
        uid = declared.metadata.uid
        owners = declared.spec.owners
        facts = ReservationFacts(
            name,
            uid,
            known.ref,
            job_of(declared.metadata.annotations),
            of_pod=any(rule.object is not None and bool(rule.object.uid) for rule in owners),
        )
        for _, share in sorted(self._shares.get(name, {}).items()):
            if share.value.uid == uid:
                held = share.value
                return msgspec.structs.replace(
                    facts, ref=share.ref, phase=str(held.phase), node=held.node, owners=held.owners
                )
        status = self._statuses.get(name)
        if status is None or status.value.uid != uid:
            return facts
        reported = status.value
        return msgspec.structs.replace(
            facts,
            ref=status.ref,
            phase=str(reported.phase),
            node=reported.node,
            expired=reported.reason == EXPIRED or any(each.reason == EXPIRED for each in reported.conditions),
            reason=reported.reason,
            message=reported.message,
            owners=reported.owners,
        )

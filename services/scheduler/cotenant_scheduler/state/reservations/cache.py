"""All reservations by name: a fold over their objects, shares and statuses.

In: events of Reservation objects, `node.<node>.reservation.<name>` and `reservations.<name>`, in any order. Out: a
`ReserveRecord` per name, whose reserve pod is queued while it needs a node and counted where it has one (through `PodCache`);
the reservations that pods can be matched with, by the number of their list of owners; when reservations expire.

Bounds: one record a reservation; a record is kept as long as one of its parts exists.
"""

from __future__ import annotations

import heapq
from datetime import datetime

import msgspec

from cotenant.api.objects.reservation import Reservation, decode_reservation
from cotenant.api.splices import DocumentError
from cotenant.api.times import parse_rfc3339
from cotenant.domain.reservations.lifecycle import expires_at
from cotenant.domain.reservations.options import OptionsError, reserved_inside, resized, restricted_options
from cotenant.domain.reservations.order import order_of
from cotenant.domain.reservations.reserve_pod import ReservePodError, check_placeable, reserve_pod_document
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.placements import Placement, Waiting
from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant_scheduler.state.pod_records import Charge, PlacementRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.reservations.records import ReserveRecord, reserve_key
from cotenant_scheduler.state.reservations.rules import OwnerIndex

NAMES_KEPT = 16_384
"""Changed names that are kept; a reader further behind inspects all."""


class ChangedNames:
    """Names of reservations that changed, in order; positions count from the first change ever."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._start = 0

    @property
    def position(self) -> int:
        """The position behind the last change."""
        return self._start + len(self._names)

    def add(self, name: str) -> None:
        """Record that a reservation changed."""
        if len(self._names) >= NAMES_KEPT:
            self._start += len(self._names)
            self._names = []
        self._names.append(name)

    def since(self, position: int) -> list[str] | None:
        """Return the names that changed after a position; None: too many, inspect all."""
        return None if position < self._start else self._names[position - self._start :]


class ReservationCache:
    """See the module."""

    def __init__(self, pods: PodCache) -> None:
        self._pods = pods
        self.by_name: dict[str, ReserveRecord] = {}
        self.index = OwnerIndex()
        self.by_owners: dict[int, dict[str, ReserveRecord]] = {}
        """Reservations with a share, by the number of their list of owners, then by name."""
        self.changed = ChangedNames()
        """Of which object or share changed."""
        self.over: set[str] = set()
        """Names of expired ones: they are no longer matched and placed."""
        self._expiries: list[tuple[datetime, str]] = []

    # -- folding -------------------------------------------------------------------------------------------------

    def store_object(self, name: str, document: msgspec.Raw, sequence: int) -> None:
        """Take over a Reservation. Raises DecodeError where it cannot be read: it then counts as absent."""
        record = self._record(name)
        self._forget_object(record)
        try:
            reservation = decode_reservation(document)
            if reservation.metadata.name != name:
                raise msgspec.DecodeError(f"it is that of reservation {reservation.metadata.name[:253]}")
        except msgspec.DecodeError:
            self._finish(record)
            raise
        record.reservation, record.source, record.object_sequence = reservation, document.copy(), sequence
        record.order = order_of(reservation.metadata.labels)
        record.expires = expires_at(reservation.spec, parse_rfc3339(reservation.metadata.creation_timestamp))
        if record.expires is not None:
            heapq.heappush(self._expiries, (record.expires, name))
        self._describe(record, reservation, document)
        record.owners = 0 if record.problem else self.index.hold(reservation.spec.owners)
        self._matchable_changed(record)
        self._pods.record_changed(record)

    def _describe(self, record: ReserveRecord, reservation: Reservation, document: msgspec.Raw) -> None:
        annotations = reservation.metadata.annotations
        try:
            check_placeable(reservation)
            record.restricted, record.inside = restricted_options(annotations), reserved_inside(annotations)
            resized(annotations)
            pod = reserve_pod_document(document, reservation)
            self._pods.describe(record, pod)
            assert record.facts is not None
            record.problem = record.facts.error
        except (ReservePodError, OptionsError, DocumentError, msgspec.DecodeError) as error:
            record.problem = str(error)

    def drop_object(self, name: str) -> None:
        """The object has ended."""
        record = self.by_name.get(name)
        if record is not None:
            self._forget_object(record)
            self._finish(record)

    def store_share(self, data: ReservationShare, sequence: int, charge: Charge | None = None) -> PlacementRecord:
        """Take over a share of a node; return the record of its reserve pod's placement."""
        record = self._record(data.name)
        record.shares[data.node] = data
        placed = self._pods.store_placement(record.key, placement_of(data), sequence, charge)
        self._matchable_changed(record)
        return placed

    def drop_share(self, node: str, name: str) -> None:
        """A share has ended."""
        record = self.by_name.get(name)
        if record is not None and record.shares.pop(node, None) is not None:
            self._pods.drop_placement(node, record.key)
            self._matchable_changed(record)
            self._finish(record)

    def store_status(self, data: ReservationStatus, at: datetime | None) -> None:
        """Take over a status. Its waiting reason becomes the reserve pod's waiting event."""
        record = self._record(data.name)
        record.status, record.status_at = data, at
        record.waiting, record.waiting_at = waiting_of(data), at
        self._pods.record_changed(record)

    def drop_status(self, name: str) -> None:
        """A status has ended."""
        record = self.by_name.get(name)
        if record is not None and record.status is not None:
            record.status = record.status_at = record.waiting = record.waiting_at = None
            self._finish(record)

    # -- reading -------------------------------------------------------------------------------------------------

    def expire(self, now: datetime) -> list[ReserveRecord]:
        """Return the reservations that expired since the last call, by time and name."""
        found: list[ReserveRecord] = []
        while self._expiries and self._expiries[0][0] < now:
            moment, name = heapq.heappop(self._expiries)
            record = self.by_name.get(name)
            if record is not None and record.expires == moment and name not in self.over:
                self.over.add(name)
                self.changed.add(name)
                found.append(record)
        return found

    # -- pods that act as reservations ---------------------------------------------------------------------------

    def act(self, record: ReserveRecord) -> None:
        """Have pods matched with a pod that acts as a reservation (`state.reservations.operating`); it replaces the one of its
        name."""
        self.end_acting(record.name)
        assert record.reservation is not None
        self.by_name[record.name] = record
        record.owners = self.index.hold(record.reservation.spec.owners)
        self._matchable_changed(record)

    def end_acting(self, name: str) -> None:
        """The pod of that name acts as one no longer; it may never have."""
        record = self.by_name.pop(name, None)
        if record is not None:
            self.index.let_go(record.owners)
            self._unlist(record)
            self.changed.add(name)

    # -- records -------------------------------------------------------------------------------------------------

    def _record(self, name: str) -> ReserveRecord:
        record = self.by_name.get(name)
        if record is None:
            record = self.by_name[name] = ReserveRecord(name)
        self._pods.records[record.key] = record
        return record

    def _forget_object(self, record: ReserveRecord) -> None:
        self.over.discard(record.name)
        self.index.let_go(record.owners)
        self._unlist(record)
        record.reservation = record.source = record.expires = None
        record.owners = record.order = record.object_sequence = 0
        record.problem = ""
        record.restricted, record.inside = (), {}
        self._pods.describe(record, None)

    def _unlist(self, record: ReserveRecord) -> None:
        known = self.by_owners.get(record.owners)
        if known is not None and known.pop(record.name, None) is not None and not known:
            del self.by_owners[record.owners]

    def _matchable_changed(self, record: ReserveRecord) -> None:
        if record.owners and record.share() is not None:
            self.by_owners.setdefault(record.owners, {})[record.name] = record
        else:
            self._unlist(record)
        self.changed.add(record.name)

    def _finish(self, record: ReserveRecord) -> None:
        self.changed.add(record.name)
        self._pods.record_changed(record)
        if record.empty:
            self.by_name.pop(record.name, None)
            self._pods.records.pop(record.key, None)


def placement_of(share: ReservationShare) -> Placement:
    """Return a share as the placement of its reserve pod."""
    return Placement(
        node=share.node,
        namespace=reserve_key(share.name)[0],
        name=share.name,
        uid=share.uid,
        pod=share.pod,
        requests=share.allocatable,
        bound_at=share.bound_at,
        object_sequence=share.object_sequence,
        allocation=Allocation(reservation=ReservationUsed(name=share.name, uid=share.uid)),
    )


def waiting_of(status: ReservationStatus) -> Waiting | None:
    """Return why a reserve pod waits; None once the reservation has ended."""
    if status.phase is not ReservationPhase.PENDING:
        return None
    namespace, name = reserve_key(status.name)
    return Waiting(
        namespace=namespace,
        name=name,
        uid=status.uid,
        nodes=status.nodes,
        reasons=status.reasons,
        wakes_on=status.wakes_on,
        message=status.message,
        priority=status.priority,
        nomination=status.nomination,
    )

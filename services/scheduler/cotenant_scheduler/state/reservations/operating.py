"""Pods that act as reservations (operating mode `Reservation`), as records that other pods are matched with.

In: the records of pods with that mode, as they change. Out: for each that has its node, runs there and is ready, a record in
the cache of reservations, under a name that no Reservation can have. What it holds and who uses it is counted with the pod
itself (`state.held_rooms`); its record is never queued and has no share of its own on the log.

Bounds: one record a pod of that mode.
"""

from __future__ import annotations

from cotenant.api.objects.metadata import ObjectMeta
from cotenant.domain.reservations.operating import acting_name, is_available, names_itself, reservation_of
from cotenant.domain.reservations.options import OptionsError, reserved_inside
from cotenant.events.placements import PlacementPhase
from cotenant.events.reservations import ReservationShare
from cotenant_scheduler.state.pod_records import PlacementRecord, PodRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.reservations.cache import ReservationCache
from cotenant_scheduler.state.reservations.records import ReserveRecord

_BOUND = PlacementPhase.BOUND


class ActingRecord(ReserveRecord):
    """A pod that acts as a reservation. `of` is the record of the pod; its placements are the pod's."""

    __slots__ = ("of",)

    def __init__(self, record: PodRecord) -> None:
        super().__init__(acting_name(*record.key))
        self.of = record


class OperatingPods:
    """Keeps the cache of reservations up to date with them."""

    def __init__(self, pods: PodCache, cache: ReservationCache) -> None:
        self._pods = pods
        self._cache = cache

    def note(self, record: PodRecord) -> None:
        """Take over a change of a pod that has that mode, or had it."""
        facts = record.facts
        if facts is None or not facts.traits.acts:
            self._pods.acting.pop(record.key, None)
            self._cache.end_acting(acting_name(*record.key))
            return
        self._pods.acting[record.key] = None
        found = self._acting(record)
        known = self._cache.by_name.get(acting_name(*record.key))
        if found is None:
            self._cache.end_acting(acting_name(*record.key))
        elif known is None or not _same(known, found):
            self._cache.act(found)
        else:
            known.placements = found.placements  # another message says the same

    def _acting(self, record: PodRecord) -> ActingRecord | None:
        """Return what others may use of a pod; None while that is nothing."""
        facts, placed = record.facts, _place_of(record)
        if facts is None or facts.shape is None or facts.deleting or placed is None:
            return None
        node, data = placed.data.node, placed.data
        run = record.run_of(node, facts.uid)
        if not is_available(node, run[0] if run is not None else None):
            return None
        metadata = ObjectMeta(
            name=facts.name,
            namespace=facts.namespace,
            uid=facts.uid,
            creation_timestamp=facts.created,
            labels=facts.traits.labels,
            annotations=facts.traits.annotations,
        )
        found = ActingRecord(record)
        try:
            found.reservation, found.inside = reservation_of(metadata), reserved_inside(facts.traits.annotations)
        except OptionsError:
            return None
        found.placements = {node: placed}
        share = ReservationShare(
            node=node, name=found.name, uid=facts.uid, allocatable=facts.shape.requests, bound_at=data.bound_at
        )
        found.shares = {node: share}
        return found


def _place_of(record: PodRecord) -> PlacementRecord | None:
    """The placement on which the present pod is counted as a reservation."""
    facts = record.facts
    for placed in record.placements.values():
        data = placed.data
        used = data.allocation.reservation if data.allocation is not None else None
        if (
            facts is not None
            and used is not None
            and data.uid == facts.uid
            and data.phase is _BOUND
            and placed.charge is not None
            and names_itself(used, record.key)
        ):
            return placed
    return None


def _same(known: ReserveRecord, found: ReserveRecord) -> bool:
    return (known.reservation, known.inside, known.shares) == (found.reservation, found.inside, found.shares)

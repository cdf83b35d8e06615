"""Reservations of a row that match a pod: as rooms, and off their row for a moment.

In: records of reservations with what they hold and their users. Out: rooms, as filters and scores see them; and a row on which
what is left of each of them is free (Koordinator's restore).
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.domain.reservations.lifecycle import allocates_once
from cotenant.domain.reservations.names import POLICY_RESTRICTED
from cotenant.domain.reservations.options import restricted_resources
from cotenant.model.names import CPU, MEMORY, RESOURCE_PODS
from cotenant_scheduler.plugins.reservation.fitting import ReservationCapacity
from cotenant_scheduler.state.counting import PodCounter
from cotenant_scheduler.state.held_rooms import Use
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reservations.records import ReserveRecord

Matched = list[tuple[ReserveRecord, Use]]
"""Reservations of a row that match the pods."""


def lift(nodes: NodeTable, row: int, uses: Sequence[Use], sign: int) -> None:
    """Take matched reservations off a row (-1), or put them back (1): exactly, and without a trace."""
    versions: list[tuple[PodCounter, int]] = []
    for use in uses:
        assert use.reserve is not None
        shape = use.reserve.shape
        nodes.add_requests(row, shape, sign)
        # What its users take of it stays counted, and so do pods that it holds.
        for name, amount in use.covered.items():
            if name in nodes.dims:
                nodes.requested[nodes.dims[name], row] -= sign * amount
        if use.covered:
            nodes.nonzero[0, row] -= sign * use.covered.get(CPU, 0)
            nodes.nonzero[1, row] -= sign * use.covered.get(MEMORY, 0)
        if RESOURCE_PODS in shape.requests:
            nodes.requested[nodes.dims[RESOURCE_PODS], row] -= sign * shape.requests[RESOURCE_PODS]
        for counter in nodes.counters_of(shape):
            versions.append((counter, counter.version))
            (counter.count if sign > 0 else counter.uncount)(row, use.reserve_key, use.reserve)
    for counter, version in reversed(versions):
        counter.version = version


def room_of(record: ReserveRecord, use: Use) -> ReservationCapacity:
    """Return a reservation as filters and scores see it."""
    share, reservation = record.share(), record.reservation
    assert share is not None
    assert reservation is not None
    spec = reservation.spec
    return ReservationCapacity(
        name=reservation.metadata.name,
        uid=record.uid,
        policy=spec.allocate_policy,
        names=restricted_resources(share.allocatable, record.restricted if spec.allocate_policy == POLICY_RESTRICTED else ()),
        allocatable=share.allocatable,
        allocated=use.allocated,
        reserved=record.inside,
        pods=use.users,
        allocate_once=allocates_once(spec),
        order=record.order,
        created=reservation.metadata.creation_timestamp or "",
    )

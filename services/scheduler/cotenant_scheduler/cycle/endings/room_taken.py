"""The room that a decision takes before it finds pods a node: what is placed in the same decision must leave it alone.

In: the events that follow from changed pods (`cycle.endings.endings`), the records of those pods. Out: placements to count
while others are placed (`Assumed.counted`):

    of a pod that names its node, its placement
    of a pod that is resized and grows, also while it ends: its placement with the larger of what it had and what it asks for
    of a pod that no longer acts as a reservation: its placement beside its user, with whom it shared its room
The room that a decision gives back (a resize that the node has finished, a placement that is gone, a reservation that is over)
is free in the next decision: a node may read the end after the placements that would use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.api.objects.pod import decode_pod
from cotenant.domain.resizing import Stated, larger, stated
from cotenant.events.allocations import ReservationUsed
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement
from cotenant.events.resizes import PlacementResize
from cotenant.model.quantities import QuantityError
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.pod_records import PodRecord


def taking_room(events: Iterable[Event], records: Mapping[PodKey, PodRecord]) -> Sequence[Event]:
    """Return the placements that count more on their node than the state does, as they are to be counted."""
    found: list[Event] = []
    for event in events:
        data = event.data
        if event.tombstone or not isinstance(data, Placement):
            continue
        placed = records[data.namespace, data.name].placements.get(data.node)
        if placed is None:
            found.append(event)
        elif _takes_more(placed.data, data):
            found.append(msgspec.structs.replace(event, data=_nothing_given_back(placed.data, data)))
    return found


def _takes_more(stood: Placement, data: Placement) -> bool:
    grows = any(amount > stood.requests.get(name, 0) for name, amount in data.requests.items())
    return grows or _shared(stood) not in (None, _shared(data))


def _shared(data: Placement) -> ReservationUsed | None:
    return data.allocation.reservation if data.allocation is not None else None


def _nothing_given_back(stood: Placement, data: Placement) -> Placement:
    """Return a placement in the phase that it has, with no less of any resource than it has."""
    data = msgspec.structs.replace(data, phase=stood.phase, terminating_at=stood.terminating_at)
    if all(amount <= data.requests.get(name, 0) for name, amount in stood.requests.items()):
        return data
    had, asked = stood.requests, data.requests
    requests = {name: max(had.get(name, 0), asked.get(name, 0)) for name in {**had, **asked}}
    try:
        resize = PlacementResize(sequence=data.object_sequence, counted=larger(_counted(data), _counted(stood)))
    except (msgspec.DecodeError, QuantityError):
        return data
    return msgspec.structs.replace(data, requests=requests, resize=resize)


def _counted(data: Placement) -> Stated:
    return data.resize.counted if data.resize is not None else stated(decode_pod(data.pod).spec)

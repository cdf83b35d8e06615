"""Room on nodes that is held for pods not placed there: by reservations, and by nominated pods.

In: the view. Out: by node, what holds the room, as a placement and what it requires, for the filters of the independent check.
A reservation counts as its reserve pod, placed and acting as a reservation, so that it shares the room with its users; it adds
no load, which is measured. A nominated pod counts as if it had been placed when it was nominated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.placements import Hold, Nomination, Placement
from cotenant.events.reservations import ReservationShare
from cotenant_verification.bench.audit.acting import counted_twice, used_by
from cotenant_verification.bench.audit.rooms import PodRequirements, need_of
from cotenant_verification.checks.log_view import LogView

Held = tuple[PodRequirements, Placement]


def held_by_reservations(view: LogView) -> Iterator[Held]:
    """What the reservations hold that are on a node."""
    for shares in view.shares.values():
        for event in shares.values():
            share = event.data
            assert isinstance(share, ReservationShare)
            need = need_of(decode_pod(share.pod), "")
            yield (
                msgspec.structs.replace(need, estimate=dict.fromkeys(need.estimate, 0)),
                Placement(
                    node=share.node,
                    namespace=need.pod.metadata.namespace,
                    name=need.pod.metadata.name,
                    uid=share.uid,
                    pod=share.pod,
                    requests=share.allocatable,
                    bound_at=share.bound_at,
                    allocation=Allocation(reservation=ReservationUsed(name=share.name, uid=share.uid)),
                ),
            )


def held_by_nominated(view: LogView, priority: int) -> Iterator[Held]:
    """The rooms of the nominated pods of a priority and above."""
    for waiting in view.kept_rooms.values():
        if waiting.nomination is None or waiting.priority < priority:
            continue
        head = view.pods.get((waiting.namespace, waiting.name))
        if head is None or head.metadata.uid != waiting.uid or view.places[waiting.uid]:
            continue
        pod = view.pod(waiting.namespace, waiting.name)
        yield need_of(pod, ""), room_of(pod, waiting.nomination)


def room_of(pod: Pod, room: Nomination | Hold) -> Placement:
    """The room that is kept for a waiting pod, as if it were placed there."""
    metadata = pod.metadata
    return Placement(
        node=room.node,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        requests=pod_requests(pod),
        bound_at=room.at,
        allocation=Allocation(reservation=room.reservation) if room.reservation is not None else None,
    )


def taken_on(view: LogView, node: str, folded: int, more: Iterable[Placement] = ()) -> Counter[str]:
    """What placements request on a node, by resource, and what reservations hold there beyond their users. Pods that had ended
    there by the sequence `folded` request nothing. `more`: with these placements."""
    placements = [*view.held(node, folded), *more]
    taken: Counter[str] = Counter()
    for placed in placements:
        taken.update(placed.requests)
    taken.subtract(counted_twice(placements))
    for event in view.shares[node].values():
        share = event.data
        assert isinstance(share, ReservationShare)
        owned: Counter[str] = Counter()
        for placed in placements:
            if used_by(placed) == share.uid:
                owned.update(placed.requests)
        for resource, held in share.allocatable.items():
            taken[resource] += max(0, held - owned[resource])
    return taken

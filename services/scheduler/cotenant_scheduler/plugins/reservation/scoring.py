"""Which reservation of a node a pod gets, and which node.

In: the pod's requests and the rooms that take it. Out: the nominated room, raw scores of nodes, scores normalised. The rules:

    room    the smallest order that is not 0; else the highest score; else the oldest, then the name
    score   mean over the resources that the room holds of 100 * (requested + allocated) // allocatable; 0 where that exceeds it
    node    1000 where the smallest order among all feasible nodes is; else the score of the nominated room; 0 without one
    0..100  100 * raw // highest
Source: Koordinator's reservation nominator and scoring (MostAllocated).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant_scheduler.plugins.reservation.fitting import Room

PREFERRED = 1000
WEIGHT = 5000
MAX_SCORE = 100


def room_score(requests: Mapping[str, int], room: Room) -> int:
    """Return 0..100: how full the reservation is with the pod."""
    total = count = 0
    for name, capacity in room.allocatable.items():
        if capacity <= 0:
            continue
        count += 1
        used = requests.get(name, 0) + room.allocated.get(name, 0)
        if used <= capacity:
            total += MAX_SCORE * used // capacity
    return total // count if count else 0


def nominated(requests: Mapping[str, int], rooms: Sequence[Room]) -> Room | None:
    """Return the room that a pod gets of those that take it; None if there are none."""
    if len(rooms) < 2:
        return rooms[0] if rooms else None
    ordered = [room for room in rooms if room.order]
    if ordered:
        return min(ordered, key=lambda room: (room.order, room.created, room.name))
    return min(rooms, key=lambda room: (-room_score(requests, room), room.created, room.name))


def node_scores(requests: Mapping[str, int], rooms: Sequence[Room | None]) -> list[int]:
    """Return the raw score of each node, given the room that is nominated there."""
    orders = [room.order for room in rooms if room is not None and room.order]
    first = min(orders, default=0)
    scores = [0 if room is None else room_score(requests, room) for room in rooms]
    if first:
        preferred = next(index for index, room in enumerate(rooms) if room is not None and room.order == first)
        scores[preferred] = PREFERRED
    return scores


def normalised(scores: Sequence[int]) -> list[int]:
    """Return raw scores as 0..100 of the highest."""
    highest = max(scores, default=0)
    return [MAX_SCORE * score // highest if highest else 0 for score in scores]

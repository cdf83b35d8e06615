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

from cotenant_scheduler.plugins.reservation.fitting import ReservationCapacity
from cotenant_scheduler.state.columns import IntArray

PREFERRED = 1000
WEIGHT = 5000
MAX_SCORE = 100


def room_score(requests: Mapping[str, int], room: ReservationCapacity) -> int:
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


def nominated(requests: Mapping[str, int], rooms: Sequence[ReservationCapacity]) -> ReservationCapacity | None:
    """Return the room that a pod gets of those that take it; None if there are none."""
    if len(rooms) < 2:
        return rooms[0] if rooms else None
    ordered = [room for room in rooms if room.order]
    if ordered:
        return min(ordered, key=lambda room: (room.order, room.created, room.name))
    return min(rooms, key=lambda room: (-room_score(requests, room), room.created, room.name))


def preferring(scores: IntArray, preferred: int) -> IntArray:
    """Return raw scores of nodes, by the scores of the rooms that are nominated there; `preferred`: the index of the node with
    the smallest order, -1 for none."""
    if preferred < 0:
        return scores
    raw = scores.copy()
    raw[preferred] = PREFERRED
    return raw


def normalised(raw: IntArray) -> IntArray:
    """Return raw scores (int64, a row each) as 0..100 of the highest; 0 where that is 0."""
    scores: IntArray = MAX_SCORE * raw // raw.max(initial=1)
    return scores

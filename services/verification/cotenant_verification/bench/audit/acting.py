"""Pods that act as reservations, and the room that they share with their users, by plain rules.

In: placements on one node. Out: the amounts that they request twice. Part of the independent check.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from cotenant.events.placements import Placement


def counted_twice(held: Iterable[Placement]) -> Counter[str]:
    """The amounts that pods that act as reservations, and their users, request of the same room."""
    pods = list(held)
    found: Counter[str] = Counter()
    for acting in pods:
        if used_by(acting) != acting.uid:
            continue
        users: Counter[str] = Counter()
        for user in pods:
            if user is not acting and used_by(user) == acting.uid:
                users.update(user.requests)
        found.update({name: min(amount, users[name]) for name, amount in acting.requests.items()})
    return found


def used_by(placed: Placement) -> str:
    """The uid of the reservation that a placement uses; empty for none. A pod that acts as one names itself."""
    used = placed.allocation.reservation if placed.allocation is not None else None
    return used.uid if used is not None else ""

"""What reservations hold on the rows of the node table, and what their owners have allocated.

In: reserve pods, pods that act as reservations, owners (pods whose allocation names a reservation) and pods that are nominated
to be owners, counted on rows and uncounted, in any order. Out: per row the reservations with their owners and sums; and the
part of `requested` that would count twice: a reserve pod counts whole, an owner counts whole, so min(allocatable, allocated) is
subtracted. What is left of a reservation is max(0, allocatable - allocated).

There are no counters: everything is a sum over the pods on the rows. Bounds: one entry a reservation that holds or is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.domain.reservations.operating import names_itself
from cotenant.model.names import CPU, MEMORY, RESOURCE_PODS
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.counting import CountedPod, PodKey, is_held, is_reserve

_NONZERO = (CPU, MEMORY)


class Use:
    """One reservation on a row."""

    __slots__ = ("allocated", "covered", "name", "nominated", "owners", "reserve", "reserve_key", "uid")

    def __init__(self, name: str, uid: str) -> None:
        self.name = name
        self.uid = uid
        self.reserve: CountedPod | None = None
        """The reserve pod, or the pod that acts as the reservation; None if the reservation holds nothing (any more)."""
        self.reserve_key: PodKey = ("", "")
        self.owners: dict[PodKey, CountedPod] = {}
        self.nominated: dict[PodKey, CountedPod] = {}
        """Pods whose room in it is counted until its present users have left."""
        self.allocated: dict[str, int] = {}
        """What the owners and the nominated pods request."""
        self.covered: dict[str, int] = {}
        """The amounts subtracted from the row's requests."""

    @property
    def held(self) -> Mapping[str, int]:
        """What the reservation holds in all."""
        return self.reserve.shape.requests if self.reserve is not None else {}

    @property
    def users(self) -> int:
        """How many pods use it, or are nominated to."""
        return len(self.owners) + len(self.nominated)

    def left(self) -> dict[str, int]:
        """Return what is left for owners, and unavailable to others."""
        return {name: max(0, amount - self.allocated.get(name, 0)) for name, amount in self.held.items()}


class HeldRooms:
    """All reservations on all rows."""

    def __init__(self) -> None:
        self.by_row: dict[int, dict[str, Use]] = {}
        """By row and uid."""
        self.unreported: dict[str, None] = {}
        """Names of the reservations whose owners changed since their share was last inspected."""

    def count(
        self, row: int, key: PodKey, pod: CountedPod, sign: int, dims: Mapping[str, int], requested: IntArray, nonzero: IntArray
    ) -> None:
        """Count or uncount a reserve pod or an owner."""
        assert pod.allocation is not None
        named = pod.allocation.reservation
        assert named is not None
        uses = self.by_row.setdefault(row, {})
        use = uses.get(named.uid)
        if use is None:
            use = uses[named.uid] = Use(named.name, named.uid)
        if is_reserve(key) or names_itself(named, key):
            use.reserve, use.reserve_key = (pod, key) if sign > 0 else (None, ("", ""))
        else:
            users = use.nominated if is_held(key) else use.owners
            if sign > 0:
                users[key] = pod
            else:
                del users[key]
            for name, amount in pod.shape.requests.items():
                left = use.allocated.get(name, 0) + sign * amount
                if left:
                    use.allocated[name] = left
                else:
                    use.allocated.pop(name, None)
            if users is use.owners:
                self.unreported[use.name] = None
        self._cover(row, use, dims, requested, nonzero)
        if use.reserve is None and not use.users:
            del uses[named.uid]
            if not uses:
                del self.by_row[row]

    def _cover(self, row: int, use: Use, dims: Mapping[str, int], requested: IntArray, nonzero: IntArray) -> None:
        before = use.covered
        use.covered = covered = {
            name: taken
            for name, amount in use.held.items()
            if name != RESOURCE_PODS and (taken := min(amount, use.allocated.get(name, 0)))
        }
        for name in before.keys() | covered.keys():
            change = covered.get(name, 0) - before.get(name, 0)
            dim = dims.get(name, -1)
            if change and dim >= 0:
                requested[dim, row] -= change
            if change and name in _NONZERO:
                nonzero[_NONZERO.index(name), row] -= change

    def covered_of(self, name: str) -> dict[int, int]:
        """Return by row the amount subtracted from the requests of one resource."""
        return {
            row: sum(use.covered.get(name, 0) for use in uses.values()) for row, uses in self.by_row.items()
        }

    def on(self, row: int) -> Mapping[str, Use]:
        """Return the reservations on a row by uid."""
        return self.by_row.get(row, {})

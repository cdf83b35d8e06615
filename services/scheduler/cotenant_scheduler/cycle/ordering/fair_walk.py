"""A pass over the queue that is fair between tenants: the next entry is always that of the tenant with the smallest share.

A class belongs to one tenant, the quota of its pods (a group: of its first pod). Within a pass shares only grow, as pods are
placed; rolled back attempts do not change them. So a place that was computed earlier can only be too good, and is
computed again when it comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from cotenant_scheduler.cycle.ordering.cursor import behind_first
from cotenant_scheduler.cycle.ordering.shares import Shares
from cotenant_scheduler.cycle.ordering.walk import States, Walk
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, PodQueue, QueueEntry, QueueKey
from cotenant_scheduler.state.pod_records import PodRecord


class FairWalk(Walk):
    """Places in its heap are those of `Shares.place`."""

    def __init__(self, queue: PodQueue, states: Callable[[], States] | None, shares: Shares) -> None:
        self._shares = shares
        super().__init__(queue, states)

    def _open(self, alike: EquivalenceClass, behind: QueueKey | None = None) -> None:
        head = alike.first()
        if head is None:
            return
        place = self._shares.place(head.order, alike.charge)
        if behind is None or place > behind:
            self._heap.append((place, head, alike, None))

    def top(self) -> tuple[QueueEntry, EquivalenceClass] | None:
        heap = self._heap
        while heap:
            known, entry, alike, cursor = heap[0]
            place = self._shares.place(entry.order, alike.charge)
            if place == known:
                return entry, alike
            heapq.heapreplace(heap, (place, entry, alike, cursor))
        return None

    def is_mixed(self, *, owners: bool = False) -> bool:  # noqa: ARG002
        """Never: the next tenant depends on what is placed until then."""
        return False

    def groups(self) -> Iterator[tuple[QueueEntry, GroupClass]]:
        """None, for the same reason."""
        return iter(())

    def run(self, most: int) -> list[PodRecord]:
        heap = self._heap
        _, entry, alike, known = heap[0]
        cursor = known or behind_first(alike)
        until = min(heap[1:3])[0] if len(heap) > 1 else None
        found = [entry.records[0]]
        for entry in cursor.entries(most - 1):
            if until is not None and self._shares.place(entry.order, alike.charge, len(found)) > until:
                break
            found.append(entry.records[0])
        return found

    def advance(self, count: int = 1) -> None:
        heap = self._heap
        _, _, alike, known = heap[0]
        cursor = known or behind_first(alike)
        cursor.skip(count - 1)
        head = cursor.take()
        if head is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (self._shares.place(head.order, alike.charge), head, alike, cursor))

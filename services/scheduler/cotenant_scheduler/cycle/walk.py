"""One pass over the queue in order, for one decision."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import msgspec

from cotenant_scheduler.cycle.queue import Cursor, Entry, EquivalenceClass, PodQueue, QueueKey, State
from cotenant_scheduler.state.pod_records import PodRecord


class States(msgspec.Struct, frozen=True):
    """The states that a decision begins in: what a quota's refusal depends on, and what the nodes' does."""

    quotas: State
    nodes: State


_Open = tuple[QueueKey, Entry, EquivalenceClass, Cursor]
"""The next entry of a class, with its place in the queue."""


class Walk:
    """`top` is the best entry left; `advance` or `close` answers for it.

    A class that was refused in the very state that the pass begins in is refused again when its turn comes, with the same
    template, as long as nothing was placed before: it is passed over. `wake` ends that. Without `states` no class is passed
    over; neither is one that nodes refused and that wants other pods, as it is asked again within a pass. `states` is called at
    most twice: where a class was refused before, and by `finish` where one was refused now. Until `wake` nothing changes but
    what was tried and taken back.
    """

    def __init__(self, queue: PodQueue, states: Callable[[], States] | None = None) -> None:
        self._states = states
        self._begun_in: States | None = None
        self._now_refused: list[tuple[EquivalenceClass, bool]] = []
        """Classes refused by this pass, and whether by nodes."""
        self._passed_over: list[EquivalenceClass] = []
        self._heap: list[_Open] = []
        for alike in queue.classes.values():
            if alike.refused_in is not None and self._is_refused(alike):
                self._passed_over.append(alike)
            else:
                self._open(alike)
        heapq.heapify(self._heap)
        self._closed: list[_Open] = []
        """Classes that nodes refused and that want other pods."""
        self._refused: list[_Open] = []
        """The others that nodes refused."""

    def _is_refused(self, alike: EquivalenceClass) -> bool:
        if self._states is None:
            return False
        if self._begun_in is None:
            self._begun_in = self._states()
        return alike.refused_in in (self._begun_in.quotas, self._begun_in.nodes)

    def finish(self) -> None:
        """The pass is over: remember the state in which classes were refused."""
        if self._states is not None and self._now_refused:
            states = self._states()
            for alike, by_nodes in self._now_refused:
                alike.refused_in = states.nodes if by_nodes else states.quotas

    def _open(self, alike: EquivalenceClass, behind: QueueKey | None = None) -> None:
        cursor = Cursor(alike)
        head = cursor.take()
        if head is not None and (behind is None or head.order > behind):
            self._heap.append((head.order, head, alike, cursor))

    def wake(self) -> None:
        """The top entry is about to be placed, or nominated: classes behind it are asked, also those passed over so far."""
        self._states = None
        if self._passed_over:
            behind = self._heap[0][0]
            for alike in self._passed_over:
                self._open(alike, behind)
            self._passed_over = []
            heapq.heapify(self._heap)

    def top(self) -> tuple[Entry, EquivalenceClass] | None:
        """Return the first entry in queue order of the classes still open."""
        return self._heap[0][1:3] if self._heap else None

    def run(self, most: int) -> list[PodRecord]:
        """Return the pods of the top one's class that come before any other class's, at most so many."""
        heap = self._heap
        _, entry, _, cursor = heap[0]
        until = min(heap[1:3])[0] if len(heap) > 1 else None
        return [entry.records[0], *cursor.look(most - 1, until)]

    def advance(self, count: int = 1) -> None:
        """The first entries of the top one's class were placed: go on with the next of it."""
        heap = self._heap
        _, _, alike, cursor = heap[0]
        if count > 1:
            cursor.skip(count - 1)
        head = cursor.take()
        if head is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (head.order, head, alike, cursor))

    def close(self, *, by_nodes: bool = False) -> None:
        """The top entry cannot be placed, and neither can the others of its class; if nodes refuse it, unless a pod is that
        they want."""
        closed = heapq.heappop(self._heap)
        alike = closed[2]
        alike.refused_in = None
        if by_nodes and alike.wanted:
            self._closed.append(closed)
            return
        if by_nodes:
            self._refused.append(closed)
        self._now_refused.append((alike, by_nodes))

    def reopen_all(self) -> None:
        """A room that was held is free: ask again about everybody whom nodes refused."""
        for entry in (*self._closed, *self._refused):
            heapq.heappush(self._heap, entry)
        self._closed, self._refused = [], []

    def reopen(self, selected_by: tuple[int, ...]) -> None:
        """A pod that these selectors select was placed: ask again about closed classes that want such a pod somewhere."""
        if not self._closed:
            return
        closed, self._closed = self._closed, []
        for entry in closed:
            if entry[2].wanted.isdisjoint(selected_by):
                self._closed.append(entry)
            else:
                heapq.heappush(self._heap, entry)

"""One pass over the queue in order, for one decision."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator

import msgspec

from cotenant.domain.quota.membership import Membership
from cotenant_scheduler.cycle.ordering.cursor import Cursor, behind_first
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, PodQueue, QueueEntry, QueueKey, State, events_of
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reading.shapes import Shape


class States(msgspec.Struct, frozen=True):
    """The states in which a decision begins: the inputs of a quota's refusal, and of the nodes'."""

    quotas: State
    nodes: State
    """With `of_quota`, without the quotas."""
    of_quota: Callable[[Membership], State] | None = None
    """The state of one quota and those above it: all that nodes' refusal of a class of that quota depends on beside `nodes`."""

    def by_nodes(self, alike: EquivalenceClass) -> State:
        """Return the state in which nodes refuse a class. The pods of a group may be of several quotas: it depends on all."""
        if self.of_quota is None:
            return self.nodes
        if isinstance(alike, GroupClass):
            return *self.nodes, *self.quotas
        membership = alike.charge.membership
        return self.nodes if membership is None else (*self.nodes, *self.of_quota(membership))


_Open = tuple[QueueKey, QueueEntry, EquivalenceClass, Cursor | None]
"""The next entry of a class, with its place in the queue; None stands for a cursor behind the first one."""


class PodRun(msgspec.Struct, frozen=True):
    """Consecutive single pods of one shape, whatever their quotas."""

    records: list[PodRecord]
    classes: list[EquivalenceClass]
    """That of each."""
    behind: list[_Open] | None = None
    """The open classes behind them; None if all are of the top entry's class."""
    owners: bool = False
    """Some may use reservations."""

    @property
    def plain(self) -> int:
        """How many may use no reservation."""
        return sum(record.ask is None for record in self.records)


class Walk:
    """`top` is the best entry left; `advance` or `close` decides on it.

    A class that was refused in exactly the state that the pass begins in would be refused again with the same template, as long
    as nothing was placed before it: it is skipped. `wake` ends that. Without `states` no class is skipped; neither is one that
    nodes refused and that has affinity to other pods, as it may be reopened within the pass. `states` is called at most twice:
    when a class was refused before, and by `finish`. Until `wake` nothing changes except what is tried and rolled back.
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
        """Classes that nodes refused and whose pods have affinity to other pods."""
        self._refused: list[_Open] = []
        """The other classes that nodes refused."""

    def _is_refused(self, alike: EquivalenceClass) -> bool:
        if self._states is None:
            return False
        if self._begun_in is None:
            self._begun_in = self._states()
        refused, begun = alike.refused_in, self._begun_in
        assert refused is not None
        # Nodes change more often than a quota, whose version costs more to find.
        return refused == begun.quotas or (refused[: len(begun.nodes)] == begun.nodes and refused == begun.by_nodes(alike))

    def finish(self) -> None:
        """End the pass: remember the state in which classes were refused. What was tried and rolled back has changed versions
        only, so it is also the state of those that were skipped."""
        if self._states is None or not (self._now_refused or self._passed_over):
            return
        states, begun = self._states(), self._begun_in
        for alike, by_nodes in self._now_refused:
            alike.refused_in = states.by_nodes(alike) if by_nodes else states.quotas
        if begun is not None and states != begun:
            for alike in self._passed_over:
                alike.refused_in = states.quotas if alike.refused_in == begun.quotas else states.by_nodes(alike)

    def _open(self, alike: EquivalenceClass, behind: QueueKey | None = None) -> None:
        head = alike.first()
        if head is not None and (behind is None or head.order > behind):
            self._heap.append((head.order, head, alike, None))

    def wake(self) -> None:
        """Announce that the top entry is about to be placed or nominated: from now on no class behind it is skipped, and those
        skipped so far are tried."""
        self._states = None
        if self._passed_over:
            behind = self._heap[0][0]
            for alike in self._passed_over:
                self._open(alike, behind)
            self._passed_over = []
            heapq.heapify(self._heap)

    def try_skipped(self) -> bool:
        """Open the classes that were skipped, after nothing was placed: the reason of their refusal no longer holds. Returns
        whether there are any."""
        skipped, self._passed_over = self._passed_over, []
        self._states = None
        for alike in skipped:
            self._open(alike)
        heapq.heapify(self._heap)
        return bool(skipped)

    def top(self) -> tuple[QueueEntry, EquivalenceClass] | None:
        """Return the first entry in queue order of the classes still open."""
        return self._heap[0][1:3] if self._heap else None

    def run(self, most: int) -> list[PodRecord]:
        """Return at most this many pods of the top entry's class that precede every other class's pods."""
        heap = self._heap
        _, entry, alike, known = heap[0]
        cursor = known or behind_first(alike)
        until = min(heap[1:3])[0] if len(heap) > 1 else None
        return [entry.records[0], *cursor.look(most - 1, until)]

    def is_mixed(self, *, owners: bool = False) -> bool:
        """Return whether pods of the top entry's shape come from several classes: the next entry of another one is among
        them. `owners`: also pods that may use reservations."""
        heap = self._heap
        return len(heap) > 1 and _is_alike(min(heap[1:3])[2], heap[0][2].charge.shape, owners=owners)

    def mixed_run(
        self, most: int, takes: Callable[[PodRecord, EquivalenceClass], bool], *, owners: bool = False
    ) -> PodRun:
        """Return pods of the top entry's shape that come next, from all classes: at most so many, and as long as `takes` is
        true of each, which is asked once in their order. `owners`: also pods that may use reservations."""
        heap = self._heap.copy()
        shape = heap[0][2].charge.shape
        records: list[PodRecord] = []
        classes: list[EquivalenceClass] = []
        forked: set[EquivalenceClass] = set()
        """Classes whose cursor in `heap` is not that of the walk."""
        while heap and len(records) < most:
            _, entry, alike, cursor = heap[0]
            record = entry.records[0]
            known = alike in forked
            if not (known or _is_alike(alike, shape, owners=owners)) or not takes(record, alike):
                break
            records.append(record)
            classes.append(alike)
            if cursor is None:
                cursor = behind_first(alike)
                forked.add(alike)
            elif not known:
                cursor = cursor.fork()
                forked.add(alike)
            head = cursor.take()
            if head is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (head.order, head, alike, cursor))
        return PodRun(records, classes, heap, owners)

    @property
    def passes_over(self) -> bool:
        """Whether classes are skipped that `wake` would open."""
        return bool(self._passed_over)

    def groups(self) -> Iterator[tuple[QueueEntry, GroupClass]]:
        """Walk the entries at the top as long as they are groups. The position stays."""
        heap = self._heap.copy()
        while heap:
            _, entry, alike, _ = heapq.heappop(heap)
            if not isinstance(alike, GroupClass):
                return
            yield entry, alike

    def pass_groups(self, count: int) -> None:
        """Continue behind this many groups at the top, which were placed."""
        for _ in range(count):
            heapq.heappop(self._heap)

    def follow(self, run: PodRun, count: int) -> None:
        """Continue behind the first pods of a run, which were placed."""
        if run.behind is None:
            self.advance(count)
        elif count == len(run.records):
            self._heap = run.behind
        else:
            for _ in range(count):
                self.advance()

    def advance(self, count: int = 1) -> None:
        """Continue behind the first entries of the top entry's class, which were placed."""
        heap = self._heap
        _, _, alike, known = heap[0]
        if known is None and len(alike.live) == 1:
            heapq.heappop(heap)
            return
        cursor = known or behind_first(alike)
        if count > 1:
            cursor.skip(count - 1)
        head = cursor.take()
        if head is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (head.order, head, alike, cursor))

    def close(self, *, by_nodes: bool = False) -> None:
        """Close the top entry's class: none of its entries can be placed, or, if nodes refused it, not before a pod arrives
        that it has affinity to."""
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
        """Reopen all classes that nodes refused: a room was released."""
        for entry in (*self._closed, *self._refused):
            heapq.heappush(self._heap, entry)
        self._closed, self._refused = [], []

    def reopen(self, selected_by: tuple[int, ...]) -> None:
        """Reopen closed classes with affinity to a pod that these selectors select: it was placed."""
        if not self._closed:
            return
        closed, self._closed = self._closed, []
        for entry in closed:
            if entry[2].wanted.isdisjoint(selected_by):
                self._closed.append(entry)
            else:
                heapq.heappush(self._heap, entry)


def fitting(run: Iterable[PodRecord], events: int) -> list[PodRecord]:
    """The first pods of a run whose placements fit into so many events. Ending a waiting event takes one more."""
    found = []
    for record in run:
        events -= 1 if record.waiting is None and record.ask is None else events_of(record)
        if events < 0:
            break
        found.append(record)
    return found


def _is_alike(alike: EquivalenceClass, shape: Shape, *, owners: bool) -> bool:
    """Return whether the pods of a class are of a shape, and are placed by that and their quota alone, or by reservations that
    they may use (`owners`)."""
    ask = alike.ask
    may_own = owners and isinstance(ask, Ask) and not (ask.required or ask.problem or ask.acts or ask.ignored)
    plain = (ask is None or may_own) and not alike.own_rooms and not isinstance(alike, GroupClass)
    return plain and alike.charge.shape is shape

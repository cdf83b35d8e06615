"""The queue of pods that want a node, in groups of pods for which the same answer holds.

Order: priority descending, then creation time, then namespace and name. A group has the pods of one shape and one
quota; what keeps one of them from being placed keeps all, so a decision asks once per group and goes on with the next
group. A nominated pod is a group of its own. Groups exist while they have pods. Reading the queue does not change it: a
decision walks it with `walk` and the folds that follow remove what was placed.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Iterator

import msgspec

from cotenant.domain.quota.membership import Membership
from cotenant.events.placements import Waiting
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.pods import Counted, PodRecord
from cotenant_scheduler.state.shapes import PodFacts, Shape

QueueKey = tuple[int, str, str, str]
"""Minus priority, creation time, namespace, name."""

Entry = tuple[QueueKey, PodRecord]

State = tuple[int, ...]
"""Versions of all that decides, beside a group's key, whether its pods are refused and in which words."""


class States(msgspec.Struct, frozen=True):
    """The states that a decision begins in: what a quota's refusal depends on, and what the nodes' does."""

    quotas: State
    nodes: State


Place = tuple[Shape, Membership | None, bool, PodKey | None]
"""What the answer for a pod depends on: shape, quota, whether it is preemptible, and its own key where it is nominated: such a
pod is a group of its own, as the room that is held for it is."""


LATE_INSERTS = 64
"""Pods that arrive out of order are inserted one by one up to so many, then the group is sorted once."""


class Verdict(msgspec.Struct, frozen=True):
    """Why the pods of a group wait: a Waiting event without the pod's name."""

    waiting: Waiting
    causes: tuple[str, ...]


class Group:
    """Pods of one shape and quota, in queue order."""

    __slots__ = (
        "_entries",
        "_head",
        "_late",
        "counted",
        "live",
        "nominated",
        "place",
        "quiet_until_us",
        "refused_in",
        "said",
        "stamp",
        "verdict",
    )

    def __init__(self, place: Place) -> None:
        self.place = place
        shape, membership, preemptible, self.nominated = place
        self.counted = Counted(shape, membership, preemptible)
        self.live: dict[PodKey, Entry] = {}
        self._entries: list[Entry] = []
        self._head = 0
        self._late: list[Entry] = []
        self.verdict: Verdict | None = None
        self.stamp: tuple[object, ...] | None = None
        """The state of the nodes that the verdict is about; None where it is about something else."""
        self.said: Verdict | None = None
        """The verdict that all pods of the group were last found to have been told."""
        self.quiet_until_us = 0
        self.refused_in: State | None = None
        """The state in which the group was refused last, where that and its place alone decided; the verdict is of then."""

    def add(self, queue_key: QueueKey, record: PodRecord) -> None:
        """Add a pod."""
        entry = (queue_key, record)
        self.live[record.key] = entry
        self.said = None
        if not self._entries or self._entries[-1][0] < queue_key:
            self._entries.append(entry)
        else:
            self._late.append(entry)

    def pods(self) -> Iterator[Entry]:
        """Walk the pods in queue order."""
        return iter(Cursor(self).take, None)

    def in_order(self) -> tuple[list[Entry], int]:
        """Return the entries in queue order, and where they begin. One that is not its pod's own any more (`live`) is to be
        passed over."""
        entries = self._entries
        if self._late:
            if len(self._late) <= LATE_INSERTS:
                for entry in self._late:
                    insort(entries, entry, lo=self._head, key=lambda e: e[0])
            else:
                entries[self._head :] = sorted(entries[self._head :] + self._late, key=lambda e: e[0])
            self._late = []
        live = self.live
        while self._head < len(entries) and live.get(entries[self._head][1].key) is not entries[self._head]:
            self._head += 1
        if self._head > 1024 and self._head * 2 > len(entries):
            del entries[: self._head]
            self._head = 0
        return entries, self._head


class PodQueue:
    """All groups."""

    def __init__(self) -> None:
        self.groups: dict[Place, Group] = {}

    def __len__(self) -> int:
        return sum(len(group.live) for group in self.groups.values())

    def put(self, record: PodRecord, facts: PodFacts, membership: Membership | None, preemptible: bool) -> Group:
        """Put a pod where it belongs, and return its group; a pod that is there already stays where it is."""
        assert facts.shape is not None
        said = record.waiting
        nominated = said is not None and said.nomination is not None and said.uid == facts.uid
        place = (facts.shape, membership, preemptible, record.key if nominated else None)
        queue_key = (-facts.priority, facts.created, facts.namespace, facts.name)
        group = record.group
        if isinstance(group, Group):
            known = group.live.get(record.key)
            if group.place == place and known is not None and known[0] == queue_key:
                return group
            self.take(record)
        group = self.groups.get(place) or Group(place)
        self.groups[place] = record.group = group
        group.add(queue_key, record)
        return group

    def take(self, record: PodRecord) -> None:
        """Take a pod out of the queue; its entry is passed over from now on."""
        group = record.group
        if isinstance(group, Group):
            group.live.pop(record.key, None)
            record.group = None
            if not group.live:
                del self.groups[group.place]


class Walk:
    """One pass over the queue in order. `top` is the best pod left; `advance` or `close` answers for it.

    A group that was refused in the very state that the pass begins in is refused again when its turn comes, with the same
    verdict, as long as nothing was placed before: it sleeps, and is passed over. `wake` ends that. Without `states` no
    group sleeps; neither does one that nodes refused and that wants other pods, as it is asked again within a pass. `states` is
    called at most once, where a group was refused or is, and never behind `wake`: until then nothing changes.
    """

    def __init__(self, queue: PodQueue, states: Callable[[], States] | None = None) -> None:
        self._states = states
        self._known_states: States | None = None
        self._asleep: list[Group] = []
        self._heap: list[tuple[Entry, Group, Cursor]] = []
        for group in queue.groups.values():
            if group.refused_in is not None and self._is_refused(group):
                self._asleep.append(group)
            else:
                self._open(group)
        heapq.heapify(self._heap)
        self._closed: list[tuple[Entry, Group, Cursor]] = []
        """Groups that nodes refused and that want other pods."""
        self._refused: list[tuple[Entry, Group, Cursor]] = []
        """The others that nodes refused."""

    def _begun_in(self) -> States | None:
        if self._known_states is None and self._states is not None:
            self._known_states = self._states()
        return self._known_states

    def _is_refused(self, group: Group) -> bool:
        states = self._begun_in()
        return states is not None and group.refused_in in (states.quotas, states.nodes)

    def _open(self, group: Group, behind: QueueKey | None = None) -> None:
        cursor = Cursor(group)
        head = cursor.take()
        if head is not None and (behind is None or head[0] > behind):
            self._heap.append((head, group, cursor))

    def wake(self) -> None:
        """The top pod is about to be placed, or nominated: groups behind it are asked whether they slept or not."""
        self._states = self._known_states = None
        if self._asleep:
            behind = self._heap[0][0][0]
            for group in self._asleep:
                self._open(group, behind)
            self._asleep = []
            heapq.heapify(self._heap)

    def top(self) -> tuple[PodRecord, Group] | None:
        """Return the first pod in queue order of the groups still open."""
        if not self._heap:
            return None
        entry, group, _ = self._heap[0]
        return entry[1], group

    def run(self, most: int) -> list[PodRecord]:
        """Return the pods of the top one's group that come before any other group's, at most so many."""
        heap = self._heap
        entry, _, cursor = heap[0]
        until = min(heap[1:3])[0][0] if len(heap) > 1 else None
        return [entry[1], *cursor.look(most - 1, until)]

    def advance(self, count: int = 1) -> None:
        """The first pods of the top one's group were placed: go on with the next of it."""
        heap = self._heap
        _, group, cursor = heap[0]
        if count > 1:
            cursor.skip(count - 1)
        head = cursor.take()
        if head is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (head, group, cursor))

    def close(self, *, by_nodes: bool = False) -> None:
        """The top pod cannot be placed, and neither can the others of its group; if nodes refuse it, unless a pod is that they
        want."""
        closed = heapq.heappop(self._heap)
        group = closed[1]
        group.refused_in = None
        if by_nodes and group.counted.shape.wanted:
            self._closed.append(closed)
            return
        if by_nodes:
            self._refused.append(closed)
        states = self._begun_in()
        if states is not None:
            group.refused_in = states.nodes if by_nodes else states.quotas

    def reopen_all(self) -> None:
        """A room that was held is free: ask again about everybody whom nodes refused."""
        for entry in (*self._closed, *self._refused):
            heapq.heappush(self._heap, entry)
        self._closed, self._refused = [], []

    def reopen(self, selected_by: tuple[int, ...]) -> None:
        """A pod that these selectors select was placed: ask again about closed groups that want such a pod somewhere."""
        if not self._closed:
            return
        closed, self._closed = self._closed, []
        for entry in closed:
            if entry[1].counted.shape.wanted.isdisjoint(selected_by):
                self._closed.append(entry)
            else:
                heapq.heappush(self._heap, entry)


class Cursor:
    """A place in a group that can look ahead; good as long as the group stays as it is."""

    __slots__ = ("_entries", "_live", "_next")

    def __init__(self, group: Group) -> None:
        self._entries, self._next = group.in_order()
        self._live = group.live

    def take(self) -> Entry | None:
        """Go on behind the next pod; return its entry."""
        entries, live, index = self._entries, self._live, self._next
        while index < len(entries):
            entry = entries[index]
            index += 1
            if live.get(entry[1].key) is entry:
                self._next = index
                return entry
        self._next = index
        return None

    def skip(self, count: int) -> None:
        """Go on behind so many pods."""
        for _ in range(count):
            self.take()

    def look(self, most: int, until: QueueKey | None) -> list[PodRecord]:
        """Return the records ahead, at most so many and before a place in the queue."""
        entries, live = self._entries, self._live
        found: list[PodRecord] = []
        for index in range(self._next, len(entries)):
            entry = entries[index]
            if len(found) >= most or (until is not None and entry[0] > until):
                break
            if live.get(entry[1].key) is entry:
                found.append(entry[1])
        return found

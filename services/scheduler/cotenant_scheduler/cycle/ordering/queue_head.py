"""Room that is reserved for the head of the queue, so that jobs behind it that fit earlier cannot starve it.

In: the jobs that nodes refuse, in queue order. Out: for the head a node for each of its pods, named in their waiting events;
and the node table with these rooms counted, for the jobs tried behind it. The rules:

    head        the first job in queue order that nodes refuse, whose last pod was created at least
                `holdAfterSeconds` ago, and for which room comes; one at a time
    room comes  on a node, or inside a reservation that matches the pod, if pods there that end by themselves release all that
                is short (`coming_rooms`). So a job that waits for services to end, or that no node could ever take, blocks no
                other job
    choice      for each pod, in queue order, the room of which the smallest share of the node's allocatable is short; for a
                gang that must be in one domain of the network, in the first of its domains (`cycle.gathering`) that has
                room for it so, with the multiples of pods that it asks for
    held        a room counts like the pod itself, in its reservation if it has one, against all jobs behind the head, which may
                still be placed beside it. Jobs before the head ignore it, and so does the head, which starts wherever it fits
                first
    renewal     after `holdAfterSeconds`, or when room no longer comes on a node, nodes are chosen again

Why the head is not starved: on a node with a room, usage and the room together exceed the allocatable only by pods that
ran there when the node was chosen. No job behind the head adds to that, and those pods end. Then the head fits, and it
is tried first in the next decision. Without such rooms this is plain back-filling; with them it is that of the EASY
scheduler (Lifka, 1995), for unknown run times.

Bounds: one job; gangs of at most MEMBERS pods, each in at most 16 domains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta

from cotenant.api.times import rfc3339
from cotenant.events.allocations import Allocation
from cotenant.events.placements import Hold
from cotenant_scheduler.cycle.gathering.confined import Confined
from cotenant_scheduler.cycle.ordering.coming_rooms import ComingRooms
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, PodQueue, QueueEntry, QueueKey
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.columns import BoolArray
from cotenant_scheduler.state.counting import PodKey, held_key, is_reserve
from cotenant_scheduler.state.load.load_estimate import AssignedPod, microseconds
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reading.shapes import Shape

MEMBERS = 749
"""Pods of a gang for which room is reserved."""
REFUSED_OTHERWISE = (False, -1)
"""Of classes that are refused for other reasons than nodes: they wait for a quota, or are to become reservations."""


_CountedRoom = tuple[str, PodKey, Shape, AssignedPod, Allocation | None]
"""A node, the key under which the room is counted there, and what it takes."""


class QueueHead:
    """Finds the head of each decision, and counts its rooms."""

    def __init__(
        self,
        nodes: NodeTable,
        records: Mapping[PodKey, PodRecord],
        queue: PodQueue,
        results: CachedResults,
        reserving: Reserving,
        hold_after: timedelta,
    ) -> None:
        """`hold_after` 0: no room is reserved."""
        self._nodes = nodes
        self._queue = queue
        self._rooms = ComingRooms(nodes, records, results, reserving)
        self._hold_after = hold_after
        self.holds: dict[PodKey, Hold] = {}
        """The rooms that the decision reserves for the head's pods."""
        self.alike: EquivalenceClass | None = None
        """The class of the head whose rooms are counted now."""
        self.version = 0
        """Incremented whenever other rooms than before are counted."""
        self.placed_changed = 0
        """How often a placed pod changed: it may have begun to end."""
        self._counted: list[_CountedRoom] = []
        self._last: dict[PodKey, tuple[Hold, Shape]] = {}
        """The rooms that were counted last, by pod, and what they count."""
        self._old = ""
        """Creation time up to which a pod has waited long enough."""
        self._found = False

    def begin(self, now: datetime) -> None:
        """A decision begins: let the classes be tried in which the head may be, though nodes refused them in the same state."""
        self.restart()
        if not self._hold_after:
            return
        self._old = rfc3339(now - self._hold_after)
        known = (REFUSED_OTHERWISE, (False, self.placed_changed))
        refused = [
            (head.order, alike)
            for alike in self._queue.classes.values()
            if alike.refused_in is not None and alike.kept not in known and (head := alike.first()) and self._has_waited(head)
        ]
        for _, alike in sorted(refused, key=_order):
            alike.refused_in = None
            if alike.kept == (True, self.placed_changed):
                break

    def restart(self) -> None:
        """The pass begins, or begins again: there is no head yet."""
        self.release()
        self.holds.clear()
        self._found = False

    def release(self) -> None:
        """Stop counting the rooms."""
        self._remove_counted()
        self._counted.clear()
        self.alike = None

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """Do not count the rooms meanwhile."""
        self._remove_counted()
        try:
            yield
        finally:
            for room in self._counted:
                self._nodes.place(*room)

    def _remove_counted(self) -> None:
        for node, key, *_ in self._counted:
            self._nodes.remove(node, key)

    def has_changed(self) -> bool:
        """Return whether rooms were counted that no longer are, as there is no head: called at the end of a pass."""
        if self._found or not self._last:
            return False
        self._last = {}
        self.version += 1
        return True

    def refused(self, entry: QueueEntry, alike: EquivalenceClass, now: datetime, confined: Confined | None = None) -> bool:
        """Nodes refuse an entry: if it is the head, keep and count its rooms, within a domain where it is `confined`. Returns
        whether these are others than before."""
        alike.kept = None
        if not self._hold_after or self._found:
            return False
        if not _may_be_kept_room(entry):
            alike.kept = REFUSED_OTHERWISE
            return False
        if not self._has_waited(entry):
            return False
        chosen = self._kept(entry, alike, now, confined) or self._chosen(entry, alike, now, confined)
        alike.kept = (bool(chosen), self.placed_changed)
        if not chosen:
            return False
        self._found, self.alike = True, alike
        self.holds.update(chosen)
        if any(held_for(record) != chosen.get(record.key) for record in entry.records):
            alike.reported = None
        rooms = {
            record.key: (chosen[record.key], alike.charge_of(record).shape)
            for record in entry.records
            if record.key in chosen
        }
        if rooms == self._last:
            return False
        self._last = rooms
        self.version += 1
        return True

    def _has_waited(self, entry: QueueEntry) -> bool:
        return all(record.facts is not None and record.facts.created <= self._old for record in entry.records)

    def _kept(
        self, entry: QueueEntry, alike: EquivalenceClass, now: datetime, confined: Confined | None
    ) -> dict[PodKey, Hold]:
        """Return the rooms that its waiting events name, counted, if they are still valid; else none."""
        found: dict[PodKey, Hold] = {}
        for record in entry.records:
            hold = held_for(record)
            if hold is None or now >= hold.at + self._hold_after:
                continue
            row, shape = self._nodes.rows.get(hold.node, -1), alike.charge_of(record).shape
            if row < 0 or not self._rooms.comes(shape, record.ask, row, hold.reservation):
                break
            found[record.key] = hold
            self.count_room(record, hold, shape)
        together = confined is None or confined.domain_of(self._nodes.rows[hold.node] for hold in found.values()) is not None
        if found and together and _enough(alike, entry, found):
            return found
        self.release()
        return {}

    def _chosen(
        self, entry: QueueEntry, alike: EquivalenceClass, now: datetime, confined: Confined | None
    ) -> dict[PodKey, Hold]:
        """Return a room for as many pods as the job needs, counted; none if there are not so many."""
        records, found = entry.records, dict[PodKey, Hold]()
        if len(records) > MEMBERS:
            return found

        def take(index: int, among: BoolArray | None) -> bool:
            record = records[index]
            shape = alike.charge_of(record).shape
            room = self._rooms.best(shape, record.ask, among)
            if room is None:
                return False
            hold = found[record.key] = Hold(node=self._nodes.names[room.row], at=now, reservation=room.reservation)
            self.count_room(record, hold, shape)
            return True

        def drop(count: int) -> None:
            for _ in range(count):
                node, key, *_ = self._counted.pop()
                self._nodes.remove(node, key)
                found.popitem()

        if confined is not None:
            for domain in confined.domains:
                confined.fill(domain, len(records), take, drop)
                if found and _enough(alike, entry, found):
                    return found
                drop(len(found))
            return {}
        for index, record in enumerate(records):
            if not take(index, None) and (not isinstance(alike, GroupClass) or alike.together.gives_up(record.key)):
                break
        if found and _enough(alike, entry, found):
            return found
        self.release()
        return {}

    def count_room(self, record: PodRecord, hold: Hold, shape: Shape) -> None:
        """Count the room that is reserved for a pod as used on its node."""
        key = held_key((f"queue/{record.key[0]}", record.key[1]))
        assigned = AssignedPod(shape.estimate, shape.prod, microseconds(hold.at))
        allocation = Allocation(reservation=hold.reservation) if hold.reservation is not None else None
        room = hold.node, key, shape, assigned, allocation
        self._nodes.place(*room)
        self._counted.append(room)


def _order(item: tuple[QueueKey, EquivalenceClass]) -> QueueKey:
    return item[0]


def held_for(record: PodRecord) -> Hold | None:
    """Return the room that the pod's waiting event names."""
    waiting, facts = record.waiting, record.facts
    return waiting.hold if waiting is not None and facts is not None and waiting.uid == facts.uid else None


def _may_be_kept_room(entry: QueueEntry) -> bool:
    """Whether pods wait for room: not where their demands on reservations cannot be read, and not to become reservations."""
    return not any(is_reserve(record.key) or (isinstance(record.ask, Ask) and record.ask.problem) for record in entry.records)


def _enough(alike: EquivalenceClass, entry: QueueEntry, found: Iterable[PodKey]) -> bool:
    members = [record.key for record in entry.records]
    return not isinstance(alike, GroupClass) or alike.together.enough(list(found), members)

"""The scheduling queue: entries, grouped into classes that share one outcome.

An entry is a group of pods that are placed together or not at all; nearly all are of one pod. Order: priority descending (not
where jobs are tried first in, first out), then creation time, then namespace and name; a group has the place of its first pod.
A class has the entries of one shape and one quota: what refuses one of them refuses all, so a decision evaluates a class once
and goes on with the next. A nominated pod is a class of its own, and so is a group of several pods. A class exists while it has
pods. Reading the queue does not change it: a decision walks it (`walk`), and the folds that follow remove what was placed.

Over 300 lines: every change of a pod updates the same indexes (entries, classes, groups).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterator, Set
from itertools import islice
from operator import attrgetter

import msgspec

from cotenant.domain.quota.membership import Membership
from cotenant.events.placements import Nomination, Waiting
from cotenant_scheduler.framework.plugin import Together
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.pod_records import Charge, PodRecord
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape

QueueKey = tuple[int, str, str, str]
"""Minus priority, creation time, namespace, name."""


class QueueEntry(msgspec.Struct, frozen=True, eq=False):
    """Pods that are placed together, in queue order."""

    order: QueueKey
    """The key of the first pod."""
    records: tuple[PodRecord, ...]

    @property
    def event_count(self) -> int:
        """How many events their placement takes at most."""
        return sum(events_of(record) for record in self.records)


def events_of(record: PodRecord) -> int:
    """Return how many events placing a pod takes at most: ending a waiting event takes one more, ending a reservation that is
    used up two."""
    return 1 + (record.waiting is not None) + (0 if record.ask is None else 2)


_place = attrgetter("order")

State = tuple[int, ...]
"""Versions of everything that decides, besides a class's key, whether its pods are refused and with which message."""

ClassKey = tuple[Shape, Membership | None, bool, PodKey | None, Hashable] | str
"""What the outcome for a pod depends on: shape, quota, whether it is preemptible, its demands on reservations. A nominated pod
has a key of its own, as its room is its own; the key of a group is its name."""

LATE_INSERTS = 64
"""Entries that arrive out of order are inserted one by one up to this many; beyond, the class is sorted once."""


class WaitingTemplate(msgspec.Struct, frozen=True):
    """Why the pods of a class wait: a Waiting event without the pod's name."""

    waiting: Waiting
    causes: tuple[str, ...]


class EquivalenceClass:
    """Entries that share one outcome, in queue order."""

    __slots__ = (
        "_entries",
        "_head",
        "_late",
        "admitted",
        "ask",
        "charge",
        "kept",
        "key",
        "live",
        "next_due_us",
        "own_rooms",
        "refused_in",
        "reported",
        "stamp",
        "template",
    )

    def __init__(
        self, key: ClassKey, charge: Charge, nominated: PodKey | None = None, ask: Hashable = None
    ) -> None:
        self.key = key
        self.ask = ask
        """Its pods' demands on reservations; None for none, and for a group."""
        self.charge = charge
        """The charge of each pod; for a group, that of its first pod."""
        self.own_rooms: Set[PodKey] = frozenset() if nominated is None else frozenset((nominated,))
        """The pods whose nominations do not count for its pods: the pod itself, if it is nominated."""
        self.live: dict[PodKey, QueueEntry] = {}
        self._entries: list[QueueEntry] = []
        self._head = 0
        self._late: list[QueueEntry] = []
        self.template: WaitingTemplate | None = None
        """Why its pods wait; None while that is unknown."""
        self.stamp: tuple[object, ...] | None = None
        """The inputs of the template; None if unknown."""
        self.admitted: tuple[tuple[int, int], Waiting | None] = ((-1, 0), None)
        """Why its quota has no room for one more pod, None if it has; after the quota's version for which that holds."""
        self.reported: WaitingTemplate | None = None
        """The template from which the waiting events of all pods of the class were last built."""
        self.next_due_us = 0
        """No waiting event is due before this time."""
        self.kept: tuple[bool, int] | None = None
        """Whether room was to come when it was last refused as the queue's head, and after how many changes of placed pods."""
        self.refused_in: State | None = None
        """The state in which the class was last refused, if that state and its key alone decided. The template dates from then.
        """

    @property
    def wanted(self) -> frozenset[int]:
        """Numbers of the selectors of pods whose presence can make a node feasible."""
        return self.charge.shape.wanted

    def add(self, order: QueueKey, record: PodRecord, charge: Charge) -> None:  # noqa: ARG002
        """Add a pod as an entry of its own."""
        entry = QueueEntry(order, (record,))
        self.live[record.key] = entry
        self.reported = None
        if not self._entries or self._entries[-1].order < order:
            self._entries.append(entry)
        else:
            self._late.append(entry)

    def remove(self, record: PodRecord) -> None:
        """Remove a pod; its entry is skipped from now on. The next one may be behind the queue's head."""
        self.live.pop(record.key, None)
        self.refused_in = None

    def has(self, record: PodRecord, order: QueueKey, charge: Charge) -> bool:  # noqa: ARG002
        """Return whether a pod is in the class, at this place in the queue and with this charge."""
        entry = self.live.get(record.key)
        return entry is not None and entry.order == order

    def charge_of(self, record: PodRecord) -> Charge:  # noqa: ARG002
        """Return what a pod of the class is charged with."""
        return self.charge

    def nomination(self, record: PodRecord) -> Nomination | None:  # noqa: ARG002
        """Return the nomination that a waiting event of a pod carries."""
        return self.template.waiting.nomination if self.template is not None else None

    def pods(self) -> Iterator[tuple[QueueKey, PodRecord]]:
        """Walk the pods in queue order."""
        entries, head = self.in_order()
        for entry in islice(entries, head, None):
            if self.live.get(entry.records[0].key) is entry:
                yield entry.order, entry.records[0]

    def first(self) -> QueueEntry | None:
        """Return the first entry; None if there is none to try."""
        entries, head = self._entries, self._head
        if not self._late and head < len(entries) and self.live.get(entries[head].records[0].key) is entries[head]:
            return entries[head]
        entries, head = self.in_order()
        return entries[head] if head < len(entries) else None

    def in_order(self) -> tuple[list[QueueEntry], int]:
        """Return the entries in queue order, and the index at which they begin. Entries that are no longer `live` must be
        skipped."""
        entries = self._entries
        if self._late:
            if len(self._late) <= LATE_INSERTS:
                for entry in self._late:
                    insort(entries, entry, lo=self._head, key=_place)
            else:
                entries[self._head :] = sorted(entries[self._head :] + self._late, key=_place)
            self._late = []
        live = self.live
        while self._head < len(entries) and live.get(entries[self._head].records[0].key) is not entries[self._head]:
            self._head += 1
        if self._head > 1024 and self._head * 2 > len(entries):
            del entries[: self._head]
            self._head = 0
        return entries, self._head


class GroupClass(EquivalenceClass):
    """One group of pods of any shapes and quotas: a single entry while its rules let it be tried."""

    __slots__ = ("_members", "_sorted", "beside_rooms", "keeps_nominations", "together")

    def __init__(self, together: Together, charge: Charge) -> None:
        super().__init__(together.name, charge)
        self.together = together
        self.keeps_nominations = False
        """Whether its pods stay nominated where they are."""
        self.beside_rooms = False
        """Whether room of the queue's head counted when it was last tried."""
        self._members: dict[PodKey, tuple[QueueKey, PodRecord, Charge]] = {}
        self._sorted = True
        """`_entries` and `live` are those of the members."""

    @property
    def missing(self) -> str:
        """Why it may not be tried yet; empty if it may."""
        return self.together.missing(self._members.keys())

    @property
    def wanted(self) -> frozenset[int]:
        return frozenset[int]().union(*(charge.shape.wanted for _, _, charge in self._members.values()))

    def add(self, order: QueueKey, record: PodRecord, charge: Charge) -> None:
        """Add a pod to the group."""
        self._members[record.key] = (order, record, charge)
        self.live[record.key] = _UNSORTED
        self._changed()

    def remove(self, record: PodRecord) -> None:
        """Take a pod out of the group."""
        if self._members.pop(record.key, None) is not None:
            del self.live[record.key]
            self._changed()

    def has(self, record: PodRecord, order: QueueKey, charge: Charge) -> bool:
        """Return whether a pod is in the group, at this place in the queue and with this charge."""
        return self._members.get(record.key) == (order, record, charge)

    def charge_of(self, record: PodRecord) -> Charge:
        """Return what a pod of the group is charged with."""
        return self._members[record.key][2]

    def nomination(self, record: PodRecord) -> Nomination | None:
        """Return the nomination that a waiting event of a pod carries: each has its own."""
        return record.waiting.nomination if self.keeps_nominations and record.waiting is not None else None

    def pods(self) -> Iterator[tuple[QueueKey, PodRecord]]:
        """Walk the pods in queue order."""
        for order, record, _ in sorted(self._members.values(), key=_order):
            yield order, record

    def first(self) -> QueueEntry | None:
        """Return its entry; None while it may not be tried."""
        entries, _ = self.in_order()
        return entries[0] if entries else None

    def in_order(self) -> tuple[list[QueueEntry], int]:
        """Return its entry, or none while it may not be tried."""
        if not self._sorted:
            self._sorted = True
            members = sorted(self._members.values(), key=_order)
            self.charge = members[0][2]
            entry = QueueEntry(members[0][0], tuple(record for _, record, _ in members))
            self.live.update(dict.fromkeys(self._members, entry))
            self._entries = [entry]
            self.own_rooms = frozenset(self._members)
        return ([], 0) if self.missing else (self._entries, 0)

    def _changed(self) -> None:
        """A group of thousands changes as often as it has pods: it is sorted when it is next looked at."""
        self.reported = self.template = self.stamp = self.refused_in = None
        self._sorted = False


_UNSORTED = QueueEntry((0, "", "", ""), ())


def _order(member: tuple[QueueKey, PodRecord, Charge]) -> QueueKey:
    return member[0]


class PodQueue:
    """All classes."""

    def __init__(self, *, by_priority: bool = True) -> None:
        self.classes: dict[ClassKey, EquivalenceClass] = {}
        self._by_priority = by_priority

    def __len__(self) -> int:
        return sum(len(alike.live) for alike in self.classes.values())

    def exceeds(self, pods: int) -> bool:
        """Return whether there are more pods than that."""
        for alike in self.classes.values():
            pods -= len(alike.live)
            if pods < 0:
                return True
        return False

    def put(
        self,
        record: PodRecord,
        facts: ParsedPod,
        membership: Membership | None,
        preemptible: bool,
        together: Together | None = None,
    ) -> EquivalenceClass:
        """Put a pod into its class and return the class; a pod that is already there stays. `together` is the group that it is
        placed with; without it the pod is placed alone."""
        assert facts.shape is not None
        waiting = record.waiting
        nominated = waiting is not None and waiting.nomination is not None and waiting.uid == facts.uid
        own = record.key if nominated else None
        key: ClassKey = together.name if together is not None else (facts.shape, membership, preemptible, own, record.ask)
        order = (-facts.priority if self._by_priority else 0, facts.created, facts.namespace, facts.name)
        known = record.queued_in
        if isinstance(known, EquivalenceClass):
            if known.key == key and known.has(record, order, Charge(facts.shape, membership, preemptible)):
                return known
            self.take(record)
        alike = self.classes.get(key)
        # All pods of a class are charged alike, but for those of a group.
        charge = alike.charge if alike is not None and together is None else Charge(facts.shape, membership, preemptible)
        if alike is None:
            alike = EquivalenceClass(key, charge, own, record.ask) if together is None else GroupClass(together, charge)
            self.classes[key] = alike
        record.queued_in = alike
        alike.add(order, record, charge)
        return alike

    def take(self, record: PodRecord) -> None:
        """Remove a pod from the queue."""
        alike = record.queued_in
        if isinstance(alike, EquivalenceClass):
            alike.remove(record)
            record.queued_in = None
            if not alike.live:
                del self.classes[alike.key]

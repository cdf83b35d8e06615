"""core/v1 Events for `kubectl get events`, composed from the facts on the log.

In: facts, and what they say (`narrators`). Out: Event objects: one per object and reason (and section), counted when the same
happens again. At most MAX_EVENTS are kept, oldest dropped. They are recomposed from the last facts after a restart and never
stored: the log itself is the record.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from cotenant.api.overlay import Overlay, head_of
from cotenant.api.snapshots import Address, Snapshot
from cotenant.api.splices import raw
from cotenant.api.times import derived_uid, rfc3339
from cotenant.events.envelope import Event
from cotenant.events.node.runs import reports_stop
from cotenant.kinds.events import DEFINITION, EVENTS
from cotenant_gateway.read_model.narrators import JOB, NARRATORS, Narration
from cotenant_gateway.read_model.slots import Collection

MAX_EVENTS = 2000
MAX_DEFERRED = 1000
_REPORTED_ONCE = ("Scheduled", "Started", "Killing", "Killed", "Descheduled")
"""Reasons whose facts may be stored again although nothing happened."""


def _reported_once(narration: Narration) -> bool:
    """Whether facts may say it again although nothing happened: each of a migration job has all of its conditions."""
    return narration.reason in _REPORTED_ONCE or narration.kind == JOB


class Narrated(Snapshot, eq=False, gc=False, kw_only=True):
    """An Event object: what was narrated last, how often, and the first and last time."""

    narration: Narration
    count: int
    first: datetime | None
    last: datetime | None


_NO_PARTS: Mapping[str, Event] = {}


class Narrator(Collection):
    """The Event objects: those that are narrated, oldest first, and those that a client stored."""

    def __init__(self) -> None:
        super().__init__(DEFINITION)
        self._narrated: OrderedDict[tuple[str, str], Narrated] = OrderedDict()
        self._deferred: list[Event] = []
        """Facts that are not narrated yet."""

    def defer(self, event: Event) -> None:
        """Take a fact; it is narrated at the next read, or when MAX_DEFERRED are waiting."""
        if type(event.data) in NARRATORS and _is_news(event):
            if not self._deferred:
                self._order = None
                self.derived.clear()
            self._deferred.append(event)
            if len(self._deferred) >= MAX_DEFERRED:
                self._catch_up()

    def _catch_up(self) -> None:
        deferred, self._deferred = self._deferred, []
        for event in deferred:
            self._narrate(event)

    def get(self, namespace: str, name: str) -> Snapshot | None:
        """Return one Event object, None where it does not exist."""
        self._catch_up()
        return self._narrated.get((namespace, name)) or super().get(namespace, name)

    def _names(self) -> Iterator[tuple[str, str]]:
        self._catch_up()
        return iter({*super()._names(), *self._narrated})

    def narrate(self, event: Event) -> Sequence[tuple[Narrated | None, Narrated | None]]:
        """Return the Event objects that a fact adds, changes or drops, as they were and as they are."""
        if self._deferred:
            self._catch_up()
        changes = self._narrate(event)
        if changes:
            self._order = None
            self.derived.clear()
        return changes

    def _narrate(self, event: Event) -> Sequence[tuple[Narrated | None, Narrated | None]]:
        if not _is_news(event):
            return ()
        changes: list[tuple[Narrated | None, Narrated | None]] = []
        narrator = NARRATORS.get(type(event.data))
        for narration in narrator(event.data) if narrator is not None else ():
            if narration is not None:
                changes += self._take(narration, event)
        return changes

    def _take(self, narration: Narration, event: Event) -> Sequence[tuple[Narrated | None, Narrated | None]]:
        name = f"{narration.name}.{narration.uid or narration.kind.lower()}.{narration.reason.lower()}"
        key = narration.namespace or "default", f"{name}.{narration.about}" if narration.about else name
        before = self._narrated.get(key)
        if before is None:
            address, count, first = Address(EVENTS, *key), 1, event.time
        elif before.version >= event.sequence or (before.narration == narration and _reported_once(narration)):
            return ()
        else:
            address, count, first = before.address, before.count + 1, before.first
            self._narrated.move_to_end(key)
        after = self._narrated[key] = Narrated(
            address, None, _NO_PARTS, event.sequence, _composed, narration=narration, count=count, first=first, last=event.time
        )
        if len(self._narrated) <= MAX_EVENTS:
            return ((before, after),)
        _, oldest = self._narrated.popitem(last=False)
        return (before, after), (oldest, None)


def _is_news(event: Event) -> bool:
    """Whether a fact is narrated: a tombstone only if it is a report by itself."""
    return not event.tombstone or reports_stop(event)


def narrated_once(address: Address, narration: Narration, version: int, at: datetime | None) -> Narrated:
    """An Event object outside of any collection, of something that happened once."""
    return Narrated(address, None, _NO_PARTS, version, _composed, narration=narration, count=1, first=at, last=at)


def _composed(event: Snapshot) -> Overlay:
    """The content of the Event object; composed on demand, as few are ever read."""
    assert isinstance(event, Narrated)
    namespace, name = event.address.namespace, event.address.name
    narration, first, last = event.narration, event.first, event.last
    # kubectl requests a node's events by the node's name as uid, as kubelet writes it.
    uid_of = narration.uid or (narration.name if narration.kind == "Node" else "")
    involved = {"kind": narration.kind, "apiVersion": "v1", "name": narration.name}
    if narration.namespace:
        involved["namespace"] = narration.namespace
    if uid_of:
        involved["uid"] = uid_of
    head = head_of("v1", "Event") | {
        "involvedObject": raw(involved),
        "reason": raw(narration.reason),
        "message": raw(narration.message),
        "source": raw({"component": narration.component}),
        "count": raw(event.count),
        "type": raw("Normal" if narration.normal else "Warning"),
    }
    began = rfc3339(first) if first is not None else ""
    if first is not None and last is not None:
        head |= {"firstTimestamp": raw(began), "lastTimestamp": raw(rfc3339(last))}
    uid = derived_uid("Event", namespace, name)
    return Overlay(
        head=head,
        metadata={"name": name, "namespace": namespace, "uid": uid} | ({"creationTimestamp": began} if began else {}),
        uid=uid,
        fields={
            "involvedObject.kind": narration.kind,
            "involvedObject.name": narration.name,
            "involvedObject.namespace": narration.namespace,
            "involvedObject.uid": uid_of,
            "reason": narration.reason,
            "type": "Normal" if narration.normal else "Warning",
        },
    )

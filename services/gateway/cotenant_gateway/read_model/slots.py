"""All parts of each address, from which snapshots of API objects are composed on demand.

In: documents and other services' facts. Out: the objects of a kind by namespace and name. A snapshot is composed when it is
read, not when a fact arrives: most facts change an object that is not read before the next one.

Bound: MAX_TOUCHED names of changed objects that a reader has not taken; beyond it reads all objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from cotenant.api.definitions import KindDefinition
from cotenant.api.snapshots import Address, Snapshot, StoredObject
from cotenant.events.envelope import Event
from cotenant.events.node.runs import ExecutorStatus, RunStatus
from cotenant.events.placements import Placement, Waiting
from cotenant.events.reservations import ReservationShare, ReservationStatus

MAX_TOUCHED = 10_000


class Slot(msgspec.Struct, eq=False, gc=False):
    """Everything known under one address."""

    definition: KindDefinition
    address: Address
    stored: StoredObject | None = None
    own_sequence: int = 0
    """Last sequence of the object's own subject: the expectation of its next write."""
    parts: dict[str, Event] = {}
    """The last fact of each subject, whatever uid it carries."""
    exists: bool = False
    """Whether there is an object."""
    created: str = ""
    """The creationTimestamp of the node of its name, for a kind that is created with it."""
    _snapshot: Snapshot | None = None
    _current: bool = True

    @property
    def registrable(self) -> bool:
        """Return whether an executor reported since the object (if there ever was one) ended."""
        return self.stored is None and any(
            isinstance(event.data, ExecutorStatus) and not event.tombstone and event.sequence > self.own_sequence
            for event in self.parts.values()
        )

    def store(self, stored: StoredObject | None, sequence: int, live: bool) -> None:
        """Take the object's own document; None: with this sequence there is none. Not `live`: while loading."""
        self.stored, self.own_sequence = stored, sequence
        self.exists, self._current = True, False
        if stored is None:
            self._of_parts_alone(live)

    def add(self, part: Event, live: bool) -> bool:
        """Take another service's fact; return whether it is new. Not `live`: while loading."""
        parts, subject = self.parts, part.subject
        known = parts.get(subject)
        if known is not None and part.sequence <= known.sequence:
            return False
        parts[subject] = part
        self._current = False
        if self.stored is None:
            self._of_parts_alone(live)
        return True

    def _of_parts_alone(self, live: bool) -> None:
        makers, makes = self.definition.made_by, self.definition.makes
        self.exists = self.address.kind.composed and any(
            not event.tombstone and (not makers or type(event.data) in makers) and (makes is None or makes(event.data))
            for event in self.parts.values()
        )
        if live:
            self.drop_ended_parts()

    def drop_ended_parts(self) -> None:
        """Drop the parts that ended where there is no object: they carry no more information. A load comes in no order of
        sequences, so the object may follow its parts: nothing is dropped before the load is over."""
        if not self.exists:
            for subject in [subject for subject, event in self.parts.items() if event.tombstone]:
                del self.parts[subject]

    def created_with(self, created: str) -> None:
        """Take the creationTimestamp of its node."""
        if self.created != created:
            self.created, self._current = created, False

    @property
    def snapshot(self) -> Snapshot | None:
        """The object as it is; None where there is none."""
        if not self._current:
            self._snapshot = self._made() if self.exists else None
            self._current = True
        return self._snapshot

    def _made(self) -> Snapshot:
        stored, definition = self.stored, self.definition
        if stored is not None and definition.parts_carry_uid:
            uid = stored.meta.uid
            parts = {subject: event for subject, event in self.parts.items() if _uid_of(event) == uid}
        else:
            parts = self.parts.copy()
        version = stored.sequence if stored is not None else 0
        for event in parts.values():
            if event.sequence > version:
                version = event.sequence
        # Ended parts add nothing but their version; a gateway that has loaded since may not know them.
        composed = definition.compose_document_alone or any(not event.tombstone for event in parts.values())
        composer = definition.compose if composed else None
        return Snapshot(self.address, stored, parts, version, composer, self.created)


_OF_ONE_UID = (Placement, Waiting, RunStatus, ReservationShare, ReservationStatus)


def _uid_of(event: Event) -> str:
    data: msgspec.Struct = event.data
    return data.uid if isinstance(data, _OF_ONE_UID) else ""


class _Slots(dict[tuple[str, str], Slot]):
    """The slots of a kind by namespace and name; `[]` creates a missing one."""

    def __init__(self, definition: KindDefinition) -> None:
        self._definition = definition
        self.nodes: _Slots | None = None
        """The nodes, for a kind whose objects are created with them."""

    def __missing__(self, key: tuple[str, str]) -> Slot:
        made = self[key] = Slot(self._definition, Address(self._definition.kind, *key))
        if self.nodes is not None:
            made.created = _creation(self.nodes.get(key))
        return made


def _creation(node: Slot | None) -> str:
    return (node.stored.meta.creation_timestamp or "") if node is not None and node.stored is not None else ""


class Collection:
    """The objects of one kind."""

    def __init__(self, definition: KindDefinition) -> None:
        self.definition = definition
        self.kind = definition.kind
        self.decode = definition.decode if definition.decode_when_folded else None
        self.slots = _Slots(definition)
        self.derived: dict[Callable[..., Any], Any] = {}
        """Results of functions over the present objects."""
        self._touched: set[tuple[str, str]] | None = None
        """Names of objects that changed since they were last taken; None: never taken, or too many."""
        self._order: list[tuple[str, str]] | None = None

    def get(self, namespace: str, name: str) -> Snapshot | None:
        """Return one object, None where it does not exist."""
        slot = self.slots.get((namespace, name))
        return slot.snapshot if slot is not None else None

    def changed(self, address: Address, order: bool) -> None:
        """An object has changed; `order`: it appeared or ended."""
        if self.derived:
            self.derived.clear()
        if self._touched is not None:
            self._touched.add((address.namespace, address.name))
            if len(self._touched) > MAX_TOUCHED:
                self._touched = None
        if order:
            self._order = None

    def touched(self) -> Iterable[tuple[str, str]]:
        """Return the names of the objects that changed since the last call, of all if that is unknown. For one
        reader."""
        touched, self._touched = self._touched, set()
        return tuple(self.slots) if touched is None else touched

    @property
    def order(self) -> list[tuple[str, str]]:
        """Namespace and name of the objects that exist, sorted."""
        if self._order is None:
            self._order = sorted(self._names())
        return self._order

    def _names(self) -> Iterator[tuple[str, str]]:
        return (key for key, slot in self.slots.items() if slot.exists)


class CreatedWithNodes:
    """The kinds whose objects without a document have the creationTimestamp of the node of their name. A slot holds it as a
    text: one that referred to the nodes could not be freed, as slots are unknown to the garbage collector."""

    def __init__(self, nodes: Collection, collections: Iterable[Collection]) -> None:
        self._collections = [found for found in collections if found.definition.created_with_node]
        for collection in self._collections:
            collection.slots.nodes = nodes.slots

    def node_changed(self, node: Slot) -> None:
        """Take the object of a node as it is now."""
        created = _creation(node)
        for collection in self._collections:
            slot = collection.slots.get(("", node.address.name))
            if slot is not None:
                slot.created_with(created)

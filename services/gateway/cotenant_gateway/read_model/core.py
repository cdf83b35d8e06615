"""The gateway's read model: the fold of everything on the log into API objects.

In: facts (`objects.>`, `node.>`, `metrics.>`, `quotas.>`, `waiting.>`, `migrations.>`, `evictions.>`). State: per API
object its document and the parts that other services add, and a ring of the last changes. Out: snapshots for get and
list, changes for watch; `endings` and `budgets` decide from it what the gateway itself has to store.

resourceVersion of an object is the highest sequence among its parts; parts that carry another uid than the document do not
belong to it. `apply` is idempotent by (subject, sequence) and commutes across subjects: a slot keeps the last fact of each of
its subjects, and the snapshot is computed from those alone. Indexes (`ending`, `unregistered`, `pod_ends`) only say where to
look.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from cotenant.api.definitions import PartKey, Registry
from cotenant.api.kinds import Kind
from cotenant.api.snapshots import Snapshot, stored_document
from cotenant.domain.quota.gates import QuotaGates
from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.node.runs import RunStatus
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement
from cotenant.kinds.events import EVENTS
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant.kinds.registry import REGISTRY
from cotenant.model.subjects import tokens
from cotenant_gateway.read_model.ended import EndedObjects
from cotenant_gateway.read_model.narration import Narrator
from cotenant_gateway.read_model.pod_ends import PodEnds
from cotenant_gateway.read_model.ring import ChangeRing, ObjectChange
from cotenant_gateway.read_model.settings import AdmissionSettings
from cotenant_gateway.read_model.slots import Collection, CreatedWithNodes, Slot
from cotenant_gateway.read_model.stopwatch import Stopwatch
from cotenant_gateway.read_model.unreadable import UnreadableObjects

T = TypeVar("T")
ALL_OFF = QuotaGates()
AS_BY_DEFAULT = AdmissionSettings()
_OBJECTS = frozenset({ObjectStored, ObjectDeleted})
_OF_SERVICES = frozenset({Commit, ServiceStarted})
"""Facts about the services themselves, of no API object."""


class GatewayCore:
    """Fold of the log into API objects."""

    def __init__(
        self,
        ring: ChangeRing | None = None,
        kinds: Registry = REGISTRY,
        quota_gates: QuotaGates = ALL_OFF,
        stopwatch: Stopwatch | None = None,
        settings: AdmissionSettings = AS_BY_DEFAULT,
    ) -> None:
        """`stopwatch`: measures admission functions."""
        self.kinds = kinds
        self.stopwatch = stopwatch
        self.settings = settings
        self.quota_gates = quota_gates
        """Which rules of quotas admission has on: a setting of the gateway."""
        self.ring = ring or ChangeRing()
        self.folded = 0
        """Highest sequence folded: the version of every list."""
        self._narrator = Narrator()
        self.collections = {definition.kind: Collection(definition) for definition in kinds}
        self.collections[EVENTS] = self._narrator
        self._by_tokens = {(kind.group or "core", kind.plural): of_kind for kind, of_kind in self.collections.items()}
        """The objects of a kind, by two tokens of their subjects."""
        self._of_parts: dict[type, list[tuple[Collection, PartKey]]] = defaultdict(list)
        for definition in kinds:
            for payload, key_of in definition.parts.items():
                self._of_parts[payload].append((self.collections[definition.kind], key_of))
        """The kinds to which facts of other services belong, by payload."""
        self._namespaces = self.collections[NAMESPACES].slots
        self._nodes = self.collections[NODES].slots
        self._created_with_nodes = CreatedWithNodes(self.collections[NODES], self.collections.values())
        self.pod_ends = PodEnds()
        self.ending: dict[tuple[str, str, str], Slot] = {}
        """Objects with a deletionTimestamp, by resource, namespace and name."""
        self.may_end: set[tuple[str, str, str]] = set()
        """Those that changed since they were last found to be waiting."""
        self.orphaned: set[str] = set()
        """Namespaces that have ended and in which an object was stored since, by a gateway that had not folded the end."""
        self.unregistered: set[str] = set()
        """Nodes that have an executor and no object."""
        self.declared: dict[tuple[str, str], Slot] = {}
        """Documents of objects that are derived from other services' facts, by resource and name: as many as users wrote."""
        self._ended = EndedObjects()
        self.unreadable = UnreadableObjects()
        self._live = False
        self._cached: dict[Callable[[], Any], Any] = {}

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one fact of LOG. After the load they come in order: a fact that is not newer was folded before."""
        if self._live and event.sequence <= self.folded:
            return
        payload = type(event.data)
        if payload in _OBJECTS:
            self._apply_object(event)
        elif payload not in _OF_SERVICES:
            if payload is EvictionOutcome:
                self.pod_ends.answered(event)
            self._apply_part(event)
            if not self._live:
                self._narrator.defer(event)
            else:
                for before, after in self._narrator.narrate(event):
                    self.ring.append(ObjectChange(event.sequence, EVENTS, before, after))
        if event.sequence > self.folded:
            self.folded = event.sequence

    def loaded(self) -> None:
        """Everything before the start marker is folded: watches may start from here."""
        self._live = True
        for collection in self.collections.values():
            for slot in tuple(collection.slots.values()):
                slot.drop_ended_parts()
                self._ended.drop_if_empty(collection, slot)
        self._ended.loaded()
        self.ring.restart(self.folded)

    def _apply_object(self, event: Event) -> None:
        found = tokens(event.subject)
        if len(found) != 5:
            return
        _, group, plural, namespace, name = found
        collection = self._by_tokens.get((group, plural))
        if collection is None:
            return
        kind = collection.kind
        slot = collection.slots[namespace if kind.namespaced else "", name]
        sequence = event.sequence
        if sequence <= slot.own_sequence:
            return
        if event.follows > slot.own_sequence and self._live:
            # The server has removed a version that this gateway never saw: no watch can show it.
            self.ring.lose(sequence)
        existed, before, own_before = slot.exists, slot.snapshot if self._live else None, slot.own_sequence
        stored = None
        if isinstance(event.data, ObjectStored) and not event.tombstone:
            try:
                stored = stored_document(event.data.object, sequence, event.time, collection.decode)
            except (msgspec.MsgspecError, RecursionError) as error:
                self.unreadable.note(event, kind, error)
        slot.store(stored, sequence, self._live)
        self._ended.note(collection, slot, own_before)
        key = kind.resource, slot.address.namespace, name
        if stored is not None and stored.meta.deletion_timestamp is not None:
            self.ending[key] = slot
            self.may_end.add(key)
        elif self.ending:
            self.ending.pop(key, None)
            self.may_end.discard(key)
        self._index_namespace(slot)
        if collection.definition.ends_with_node:
            if stored is not None:
                self.declared[kind.resource, name] = slot
            else:
                self.declared.pop((kind.resource, name), None)
        if kind is PODS:
            self.pod_ends.pod_changed(slot)
        elif kind is NODES:
            self._created_with_nodes.node_changed(slot)
            if stored is None:
                self.pod_ends.node_ended(name, self.collections[PODS].slots.values())
        self._changed(collection, slot, existed, before, sequence)

    def _index_namespace(self, slot: Slot) -> None:
        address = slot.address
        kind, namespace = address.kind, address.namespace
        if kind is NAMESPACES:
            if slot.exists:
                self.orphaned.discard(address.name)
            elif any(True for _ in self.contents(address.name)):
                self.orphaned.add(address.name)
        elif kind.namespaced and slot.exists:
            home = self._namespaces.get(("", namespace))
            if home is not None and not home.exists:
                self.orphaned.add(namespace)

    def _apply_part(self, event: Event) -> None:
        for collection, key_of in self._of_parts.get(type(event.data), ()):
            key = key_of(event)
            if key is not None:
                self._add_part(collection, key, event)

    def _add_part(self, collection: Collection, key: tuple[str, str], event: Event) -> None:
        slot = collection.slots[key]
        existed, before = slot.exists, slot.snapshot if self._live else None
        if slot.add(event, self._live):
            if isinstance(event.data, RunStatus):
                node = self._nodes.get(("", event.data.node))
                self.pod_ends.reported(slot, event, on_node=node is not None and node.stored is not None)
            elif event.tombstone and isinstance(event.data, Placement):
                self.pod_ends.placement_ended(slot, event.data.node)
            stored = slot.stored
            if stored is not None and stored.meta.deletion_timestamp is not None:
                self.may_end.add((collection.kind.resource, slot.address.namespace, slot.address.name))
            self._changed(collection, slot, existed, before, event.sequence)
            if self._live and event.tombstone:
                self._ended.drop_if_empty(collection, slot)

    def _changed(self, collection: Collection, slot: Slot, existed: bool, before: Snapshot | None, sequence: int) -> None:
        collection.changed(slot.address, slot.exists != existed)
        kind = collection.kind
        if kind is NODES:
            if slot.registrable:
                self.unregistered.add(slot.address.name)
            else:
                self.unregistered.discard(slot.address.name)
        if self._live and (existed or slot.exists):
            self._show(collection, before, slot.snapshot, sequence)

    def _show(self, collection: Collection, before: Snapshot | None, after: Snapshot | None, sequence: int) -> None:
        """Publish an object's change to watches."""
        kind = collection.kind
        if before is not None and after is not None:
            if after.version == before.version:
                return
            if not collection.definition.stable_uid and before.uid != after.uid:
                self.ring.append(ObjectChange(sequence, kind, before, None))
                before = None
        self.ring.append(ObjectChange(sequence, kind, before, after))

    # -- reading -------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Snapshot | None:
        """Return one object, None where it does not exist."""
        return self.collections[kind].get(namespace, name)

    def own_sequence(self, kind: Kind, namespace: str, name: str) -> int:
        """Return the last known sequence of the object's own subject (its tombstone's if it ended), 0 if there is none, or it
        ended long ago."""
        slot = self.collections[kind].slots.get((namespace, name))
        return slot.own_sequence if slot is not None else 0

    def derived(self, kind: Kind, compute: Callable[[GatewayCore], T]) -> T:
        """Return the result of a function over the objects of this kind alone; cached until one of them changes."""
        known = self.collections[kind].derived
        try:
            found: T = known[compute]
        except KeyError:
            found = known[compute] = compute(self)
        return found

    def cached(self, make: Callable[[], T]) -> T:
        """Return a reader's cache beside the objects; created at its first call."""
        if make not in self._cached:
            self._cached[make] = make()
        found: T = self._cached[make]
        return found

    def touched(self, kind: Kind) -> Iterable[tuple[str, str]]:
        """Return namespace and name of the objects of a kind that changed since the last call; of all if that is unknown."""
        return self.collections[kind].touched()

    def objects(self, kind: Kind, namespace: str = "", after: tuple[str, str] = ("", "")) -> Iterator[Snapshot]:
        """Yield the objects of a kind in order of namespace and name, those after `after` only."""
        collection = self.collections[kind]
        order = collection.order
        start = bisect_right(order, after if after != ("", "") else (namespace, ""))
        for index in range(start, len(order)):
            key = order[index]
            if namespace and key[0] != namespace:
                break
            snapshot = collection.get(*key)
            if snapshot is not None:
                yield snapshot

    def contents(self, namespace: str) -> Iterator[Snapshot]:
        """Yield the objects in a namespace."""
        for collection in self.collections.values():
            if collection.kind.namespaced:
                yield from (found for found in self.objects(collection.kind, namespace) if found.stored is not None)

    def select(
        self, kind: Kind, namespace: str, wanted: Callable[[Snapshot], bool], limit: int, after: tuple[str, str]
    ) -> tuple[list[Snapshot], bool]:
        """Return up to `limit` selected objects, and whether more follow."""
        found: list[Snapshot] = []
        for snapshot in self.objects(kind, namespace, after):
            if wanted(snapshot):
                if limit and len(found) == limit:
                    return found, True
                found.append(snapshot)
        return found, False

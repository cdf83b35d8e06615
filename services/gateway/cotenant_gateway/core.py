"""The gateway's read model: the fold of everything on the log into API objects.

In: facts (`objects.>`, `node.>`, `metrics.>`, `quotas.>`, `waiting.>`, `migrations.>`, `evictions.>`). State: per API
object its document and the parts that other services add, and a ring of the last changes. Out: snapshots for get and
list, changes for watch; `endings` and `budgets` decide from it what the gateway itself has to store.

resourceVersion of an object is the highest sequence among its parts; parts that carry another uid than the document
do not belong to it. `apply` is idempotent by (subject, sequence) and commutes across subjects: a slot keeps the last
fact of each of its subjects, and the snapshot is computed from those alone. Indexes (`ending`, `unregistered`) only
say where to look.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar, cast

import msgspec

from cotenant.events.commits import Commit, ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import Placement, Waiting
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.runs import ExecutorStatus, RunStatus
from cotenant.objects.kinds import BY_RESOURCE, Kind
from cotenant.subjects import decode_token
from cotenant_gateway.composing.migration import compose_migration
from cotenant_gateway.composing.node import compose_node
from cotenant_gateway.composing.pod import compose_pod
from cotenant_gateway.composing.quota import compose_quota
from cotenant_gateway.composing.slo import compose_node_metric, compose_node_slo
from cotenant_gateway.narration import Narrator
from cotenant_gateway.ring import Change, ChangeRing
from cotenant_gateway.snapshots import Address, Composer, Snapshot, Stored, stored_document

T = TypeVar("T")

PODS = BY_RESOURCE["", "pods"]
NODES = BY_RESOURCE["", "nodes"]
NAMESPACES = BY_RESOURCE["", "namespaces"]
EVENTS = BY_RESOURCE["", "events"]
NODE_METRICS = BY_RESOURCE["slo.koordinator.sh", "nodemetrics"]
NODE_SLOS = BY_RESOURCE["slo.koordinator.sh", "nodeslos"]
ELASTIC_QUOTAS = BY_RESOURCE["scheduling.sigs.k8s.io", "elasticquotas"]
MIGRATION_JOBS = BY_RESOURCE["scheduling.koordinator.sh", "podmigrationjobs"]
BUDGETS = BY_RESOURCE["policy", "poddisruptionbudgets"]

_COMPOSERS: Mapping[str, Composer] = {
    PODS.resource: compose_pod,
    NODES.resource: compose_node,
    NODE_METRICS.resource: compose_node_metric,
    NODE_SLOS.resource: compose_node_slo,
    ELASTIC_QUOTAS.resource: compose_quota,
    MIGRATION_JOBS.resource: compose_migration,
}
_MADE_OF_FACTS = frozenset({NODE_METRICS.resource, NODE_SLOS.resource, MIGRATION_JOBS.resource})
_NODE_PARTS = frozenset({"executor", "resources", "condition"})


class _Slot:
    """Everything known under one address."""

    __slots__ = ("address", "ended", "parts", "snapshot", "stored")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.stored: Stored | None = None
        self.ended = 0
        self.parts: dict[str, Event] = {}
        self.snapshot: Snapshot | None = None

    @property
    def own_sequence(self) -> int:
        """Last sequence of the object's own subject: the expectation of its next write."""
        return self.stored.sequence if self.stored is not None else self.ended

    @property
    def registrable(self) -> bool:
        """Tell whether an executor reported since the object (if there ever was one) ended."""
        return self.stored is None and any(
            isinstance(event.data, ExecutorStatus) and not event.tombstone and event.sequence > self.ended
            for event in self.parts.values()
        )


class Collection:
    """The slots of one kind, and the sorted addresses of those that exist."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.slots: dict[tuple[str, str], _Slot] = {}
        self.derived: dict[Callable[[GatewayCore], object], object] = {}
        """What functions made of the objects as they are."""
        self._sorted: list[tuple[str, str]] | None = None

    def slot(self, namespace: str, name: str) -> _Slot:
        """Return the slot of a name, made if need be."""
        found = self.slots.get((namespace, name))
        if found is None:
            found = self.slots[namespace, name] = _Slot(Address(self.kind, namespace, name))
        return found

    def forget_order(self) -> None:
        """An object appeared or ended."""
        self._sorted = None

    @property
    def order(self) -> list[tuple[str, str]]:
        """Namespace and name of the objects that exist, sorted."""
        if self._sorted is None:
            self._sorted = sorted(key for key, slot in self.slots.items() if slot.snapshot is not None)
        return self._sorted


class GatewayCore:
    """Fold of the log into API objects."""

    def __init__(self, ring: ChangeRing | None = None) -> None:
        self.ring = ring or ChangeRing()
        self.folded = 0
        """Highest sequence folded: the version of every list."""
        self.collections = {(kind.group, kind.plural): Collection(kind) for kind in BY_RESOURCE.values()}
        self.ending: dict[tuple[str, str, str], Snapshot] = {}
        """Objects with a deletionTimestamp, by resource, namespace and name."""
        self.forsaken: set[str] = set()
        """Namespaces that have ended and got something since, from a gateway that had not heard of it."""
        self.unregistered: set[str] = set()
        """Nodes that have an executor and no object."""
        self.unreadable = 0
        """Documents that were no objects of their kind."""
        self._narrator = Narrator()
        self._live = False

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one fact."""
        if event.stream != "LOG":
            return
        data = event.data
        if not isinstance(data, (Commit, ServiceStarted)):
            if isinstance(data, (ObjectStored, ObjectDeleted)):
                self._apply_object(event)
            else:
                self._apply_part(event)
                for told in self._narrator.tell(event):
                    self._change_event_object(event.sequence, told)
        self.folded = max(self.folded, event.sequence)

    def loaded(self) -> None:
        """Everything before the start marker is folded: watches may start from here."""
        self._live = True
        self.ring.restart(self.folded)

    def _collection(self, kind: Kind) -> Collection:
        return self.collections[kind.group, kind.plural]

    def _apply_object(self, event: Event) -> None:
        tokens = event.subject.split(".")
        if len(tokens) != 5:
            return
        group = "" if tokens[1] == "core" else decode_token(tokens[1])
        collection = self.collections.get((group, tokens[2]))
        if collection is None:
            return
        namespace = decode_token(tokens[3]) if collection.kind.namespaced else ""
        slot = collection.slot(namespace, decode_token(tokens[4]))
        if event.sequence <= slot.own_sequence:
            return
        slot.stored = None
        if isinstance(event.data, ObjectStored) and not event.tombstone:
            try:
                slot.stored = stored_document(collection.kind, event.data.object, event.sequence, event.time)
            except (msgspec.MsgspecError, RecursionError):
                # Stored by someone else than a gateway, and no object of this kind: it is as if there were none.
                self.unreadable += 1
        if slot.stored is None:
            slot.ended = event.sequence
        self._refresh(collection, slot, event.sequence)

    def _apply_part(self, event: Event) -> None:
        found = self._part_of(event)
        if found is None:
            return
        kind, namespace, name = found
        collection = self._collection(kind)
        slot = collection.slot(namespace, name)
        known = slot.parts.get(event.subject)
        if known is not None and event.sequence <= known.sequence:
            return
        slot.parts[event.subject] = event
        self._refresh(collection, slot, event.sequence)

    def _part_of(self, event: Event) -> tuple[Kind, str, str] | None:
        """Return whose part a fact is, by its subject."""
        tokens = event.subject.split(".")
        family = tokens[0]
        if family == "node" and len(tokens) >= 3:
            if len(tokens) == 5 and tokens[2] in ("placement", "run"):
                return PODS, decode_token(tokens[3]), decode_token(tokens[4])
            if len(tokens) == 3 and tokens[2] in _NODE_PARTS:
                return NODES, "", decode_token(tokens[1])
            if len(tokens) == 3 and tokens[2] == "slo":
                return NODE_SLOS, "", decode_token(tokens[1])
        elif family == "metrics" and len(tokens) == 2:
            return NODE_METRICS, "", decode_token(tokens[1])
        elif family == "waiting" and len(tokens) == 3:
            return PODS, decode_token(tokens[1]), decode_token(tokens[2])
        elif family == "migrations" and len(tokens) == 2:
            return MIGRATION_JOBS, "", decode_token(tokens[1])
        elif family == "quotas" and len(tokens) == 3 and isinstance(event.data, QuotaRuntime) and event.data.namespace:
            return ELASTIC_QUOTAS, event.data.namespace, decode_token(tokens[2])
        return None

    def _refresh(self, collection: Collection, slot: _Slot, sequence: int) -> None:
        kind = collection.kind
        before = slot.snapshot
        after = slot.snapshot = self._snapshot(kind, slot)
        collection.derived.clear()
        if after is None:
            self._tidy(slot)
        self._index(kind, slot, after)
        if (before is None) != (after is None):
            collection.forget_order()
        if not self._live or (before is None and after is None):
            return
        if before is not None and after is not None:
            if after.version == before.version:
                return
            if kind is not NODE_METRICS and before.uid != after.uid:  # a NodeMetric's follows from its name
                self.ring.append(Change(sequence, slot.address, before, None))
                before = None
        self.ring.append(Change(sequence, slot.address, before, after))

    def _index(self, kind: Kind, slot: _Slot, after: Snapshot | None) -> None:
        if after is not None and after.stored is not None and after.stored.meta.deletion_timestamp is not None:
            self.ending[kind.resource, slot.address.namespace, slot.address.name] = after
        elif self.ending:
            self.ending.pop((kind.resource, slot.address.namespace, slot.address.name), None)
        if kind is NAMESPACES:
            self._index_namespace(slot.address.name, after)
        elif after is not None and kind.namespaced:
            home = self.collections[NAMESPACES.group, NAMESPACES.plural].slots.get(("", slot.address.namespace))
            if home is not None and home.snapshot is None:
                self.forsaken.add(slot.address.namespace)
        if kind is NODES:
            if slot.registrable:
                self.unregistered.add(slot.address.name)
            else:
                self.unregistered.discard(slot.address.name)

    def _index_namespace(self, name: str, after: Snapshot | None) -> None:
        if after is not None:
            self.forsaken.discard(name)
        elif any(True for _ in self.contents(name)):
            self.forsaken.add(name)

    def _snapshot(self, kind: Kind, slot: _Slot) -> Snapshot | None:
        stored = slot.stored
        if stored is None and kind.resource not in _MADE_OF_FACTS:
            return None
        if stored is not None and kind is PODS:
            uid = stored.meta.uid
            parts = {subject: event for subject, event in slot.parts.items() if _uid_of(event) == uid}
        else:
            parts = slot.parts.copy()
        version = stored.sequence if stored is not None else 0
        for event in parts.values():
            if event.sequence > version:
                version = event.sequence
        if stored is None and all(event.tombstone for event in parts.values()):
            return None
        composer = _COMPOSERS.get(kind.resource) if parts or kind is PODS else None
        return Snapshot(slot.address, stored, parts, version, composer)

    def _tidy(self, slot: _Slot) -> None:
        """After an object's end its ended parts carry no more information."""
        for subject in [subject for subject, event in slot.parts.items() if event.tombstone]:
            del slot.parts[subject]

    def _change_event_object(self, sequence: int, told: tuple[str, str, Snapshot | None]) -> None:
        namespace, name, after = told
        collection = self._collection(EVENTS)
        slot = collection.slot(namespace, name)
        before, slot.snapshot = slot.snapshot, after
        collection.derived.clear()
        if after is None:
            del collection.slots[namespace, name]
        if (before is None) != (after is None):
            collection.forget_order()
        if self._live and (before is not None or after is not None):
            self.ring.append(Change(sequence, slot.address, before, after))

    # -- reading -------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Snapshot | None:
        """Return one object, None where it does not exist."""
        slot = self.collections[kind.group, kind.plural].slots.get((namespace, name))
        return slot.snapshot if slot is not None else None

    def own_sequence(self, kind: Kind, namespace: str, name: str) -> int:
        """Return the last known sequence of the object's own subject (its tombstone's if it ended), 0 if there is none."""
        slot = self.collections[kind.group, kind.plural].slots.get((namespace, name))
        return slot.own_sequence if slot is not None else 0

    def derived(self, kind: Kind, compute: Callable[[GatewayCore], T]) -> T:
        """Return what a function makes of the objects of this kind alone; remembered until one of them changes."""
        known = self.collections[kind.group, kind.plural].derived
        if compute not in known:
            known[compute] = compute(self)
        return cast(T, known[compute])

    def objects(self, kind: Kind, namespace: str = "", after: tuple[str, str] = ("", "")) -> Iterator[Snapshot]:
        """Yield the objects of a kind in order of namespace and name, those after `after` only."""
        collection = self.collections[kind.group, kind.plural]
        order = collection.order
        start = bisect_right(order, after if after != ("", "") else (namespace, ""))
        for index in range(start, len(order)):
            key = order[index]
            if namespace and key[0] != namespace:
                break
            snapshot = collection.slots[key].snapshot
            if snapshot is not None:
                yield snapshot

    def contents(self, namespace: str) -> Iterator[Snapshot]:
        """Yield what was stored in a namespace."""
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


def _uid_of(event: Event) -> str:
    data: msgspec.Struct = event.data
    return data.uid if isinstance(data, (Placement, Waiting, RunStatus)) else ""

"""All pods by name, and what is charged for them on which node.

In: ObjectStored/ObjectDeleted of pods, Placement, RunStatus and Waiting events, labels of namespaces, in any order across
subjects. Out: a `PodRecord` per name, the node table and the quota ledger charged with what is placed. A placement counts
from when it is stored until it is gone or the pod's run has ended for good (the placement then stays until the pod is
deleted, but holds no resources). A record is kept as long as one of its parts exists.

Over 300 lines: each kind of message about a pod has its fold, and all end in what the placement is charged with.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from cotenant.api.splices import DocumentError
from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.resizing import counted_document
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant_scheduler.state.assigned_pods import AssignedPods
from cotenant_scheduler.state.counting import PodKey, is_reserve
from cotenant_scheduler.state.load.load_estimate import microseconds
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PlacementRecord, PodRecord, StopReports
from cotenant_scheduler.state.quotas.charged_pods import ChargedPods
from cotenant_scheduler.state.reading.pod_reader import PodReader
from cotenant_scheduler.state.reading.priorities import PriorityValues
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape
from cotenant_scheduler.state.stored_placements import PlacementInterner, PlacementView, StoredPlacement

F = TypeVar("F", bound=ParsedPod | None)
_BOUND = PlacementPhase.BOUND


class PodCache:
    """All records. `changed` is called with the record after every fold."""

    def __init__(
        self,
        nodes: NodeTable,
        quotas: QuotaLedger,
        reader: PodReader,
        changed: Callable[[PodRecord], None],
        watched: Container[PodKey] = (),
    ) -> None:
        """`watched`: pods of which it matters whether they run."""
        self.records: dict[PodKey, PodRecord] = {}
        self.on_node: dict[str, set[PodKey]] = {}
        """Names of the pods with a placement, by node."""
        self.priorities = PriorityValues()
        self._nodes = nodes
        self._reader = reader
        self._changed = changed
        self._watched = watched
        self._interner = PlacementInterner()
        self.charged = ChargedPods(self.records, quotas)
        self.stops = StopReports()
        self.acting: dict[PodKey, None] = {}
        """Pods that act as reservations while they are ready: of these, too, it matters whether they run."""
        self._bound_at: datetime | None = None
        self._bound_us = 0
        self.assigned = AssignedPods(nodes.load.args)

    def store_object(self, key: PodKey, document: msgspec.Raw, sequence: int, at: datetime | None = None) -> None:
        """Take over a pod's object, stored at a time."""
        record = self._record(key)
        record.object_sequence, record.object_at = sequence, at
        # The message around the manifest need not be kept.
        record.document = document.copy()
        facts = self._known_facts(record, document) if record.placements else None
        try:
            facts = facts or self._reader.read(document, self.priorities)
            if (facts.namespace, facts.name) != key:
                # Decisions about a pod are stored under its name: with another one they would be repeated forever.
                raise msgspec.DecodeError(f"it is that of pod {facts.namespace[:253]}/{facts.name[:253]}")
            record.facts = self._instead(record.facts, facts)
            facts.namespace, facts.name = record.key
            record.unreadable = ""
        except msgspec.DecodeError as error:
            record.facts = self._instead(record.facts, None)
            record.unreadable = f"the pod's object at LOG:{sequence} cannot be read: {error}"
        self.charged.move(record)
        self._changed(record)
        self._hold_against_new_selectors()

    def describe(self, record: PodRecord, document: msgspec.Raw | None) -> None:
        """Set a reserve pod's document; None: it has none. Raises DecodeError."""
        record.document = document
        record.facts = self._instead(record.facts, None if document is None else self._reader.read(document, self.priorities))

    def record_changed(self, record: PodRecord) -> None:
        """Take over that a reserve pod's record changed."""
        self._changed(record)
        self._hold_against_new_selectors()

    def drop_object(self, key: PodKey) -> None:
        """The object has ended."""
        record = self.records.get(key)
        if record is not None:
            record.facts = self._instead(record.facts, None)
            record.document, record.object_sequence, record.object_at, record.unreadable = None, 0, None, ""
            self.charged.move(record)
            self._finish(record)

    def store_placement(
        self, key: PodKey, data: Placement | PlacementView, sequence: int, charge: Charge | None = None
    ) -> PlacementRecord:
        """Take over a placement, and return its record. `charge`: what was charged when it was assumed; only for the first
        placement of a pod without runs."""
        record = self._record(key)
        if data.phase is _BOUND:
            self.stops.bound(data.node, record.key, sequence)
        before = record.placements.get(data.node)
        # One copy of the manifest is enough.
        document = record.document if record.document == data.pod else None
        facts = record.facts
        if document is None or facts is None or data.resize is not None:
            facts = self._facts_of(data, before)
        self._instead(before.facts if before is not None else None, facts)
        if charge is not None and isinstance(data, Placement):
            node, stored = data.node, StoredPlacement(data)
        else:
            row = self._nodes.rows.get(data.node)
            node = self._nodes.names[row] if row is not None else data.node
            stored = self._interner.intern(data, node, document or data.pod.copy(), facts)
        charged = charge
        if charge is None and before is not None:
            if before.data.allocation != data.allocation:
                # It was assigned other units in the meantime.
                self._give_back(record, node, before)
            charged = before.charge
        placed = record.placements[node] = PlacementRecord(stored, sequence, facts, charged)
        keys = self.on_node.get(node)
        if keys is None:
            keys = self.on_node[node] = set()
        keys.add(record.key)
        if charge is not None and charge.membership is not None:
            self.charged.hold(charge, key)
        if (
            charge is None
            or facts is None
            or facts.shape is not charge.shape
            or not self.charged.is_in(charge.membership, record, facts)
        ):
            # Charged for the first time, or selectors or quotas changed since it was assumed.
            self._account(record, node, placed)
        self._changed(record)
        self._hold_against_new_selectors()
        return placed

    def drop_placement(self, node: str, key: PodKey) -> None:
        """The placement is gone."""
        record = self.records.get(key)
        placed = record.placements.pop(node, None) if record is not None else None
        if record is None or placed is None:
            return
        keys = self.on_node.get(node)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self.on_node[node]
        self._give_back(record, node, placed)
        self._instead(placed.facts, None)
        self._finish(record)

    def store_run(self, data: RunStatus, sequence: int) -> None:
        """Take over the run report of a pod on a node."""
        key, node = (data.namespace, data.name), data.node
        record = self._record(key)
        before = record.runs.get(node)
        record.runs[node] = (data, sequence)
        ends = data.phase.terminal or (before is not None and before[0].phase.terminal)
        if data.resize is not None and (before is None or before[0].resize != data.resize):
            self._changed(record)
        if not ends and key not in self._watched and key not in self.acting:
            return  # Whether it is pending or runs makes no difference.
        placed = record.placements.get(node)
        if placed is not None:
            self._account(record, node, placed)
        self._changed(record)

    def store_stop(self, data: RunStatus, sequence: int) -> None:
        """Take over that a pod was stopped. Its room is released when its placement is gone, which follows."""
        key = (data.namespace, data.name)
        self.stops.note(data.node, key, data.uid, sequence)
        if key in self.records:
            self._changed(self.records[key])

    def drop_run(self, node: str, key: PodKey) -> None:
        """The run's report has ended."""
        record = self.records.get(key)
        if record is not None and record.runs.pop(node, None) is not None:
            placed = record.placements.get(node)
            if placed is not None:
                self._account(record, node, placed)
            self._finish(record)

    def store_waiting(self, data: Waiting, at: datetime | None) -> None:
        """Take over the waiting event of a pod."""
        key = (data.namespace, data.name)
        record = self._record(key)
        record.waiting, record.waiting_at = data, at
        self._changed(record)

    def drop_waiting(self, key: PodKey) -> None:
        """The pod's waiting event has ended."""
        record = self.records.get(key)
        if record is not None:
            record.waiting, record.waiting_at = None, None
            self._finish(record)

    def reprioritise(self) -> None:
        """Take over a changed priority class: read the pods again that get their priority from a class."""
        self._read_again(lambda facts: facts.from_class)

    def _hold_against_new_selectors(self) -> None:
        """Match known pods against a pod's new selectors: selected ones get another shape."""
        book = self._reader.selectors
        if book.new:
            new = book.take_new()
            self._read_again(lambda facts: any(book.selects(selector, facts.namespace, facts.labels) for selector in new))

    def label_namespace(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Take over the labels of a namespace: other selectors may select its pods from now on."""
        book = self._reader.selectors
        if book.label_namespace(namespace, labels):
            self._read_again(
                lambda facts: facts.namespace == namespace
                and facts.shape is not None
                and facts.shape.selected_by != book.selecting(namespace, facts.labels)
            )

    def _read_again(self, concerned: Callable[[ParsedPod], bool]) -> None:
        """Update the shapes of pods, and recount those that are placed."""
        for key in sorted(self.records):
            record = self.records[key]
            if record.facts is not None and record.document is not None and concerned(record.facts):
                record.facts = self._instead(record.facts, self._reader.read(record.document, self.priorities))
                self._changed(record)
            for node, placed in record.placements.items():
                if placed.facts is not None and concerned(placed.facts):
                    same = record.facts if placed.data.resize is None and record.document == placed.data.pod else None
                    facts = same or self._read_counted(placed.data)
                    placed.facts = self._instead(placed.facts, facts)
                    self._account(record, node, placed)

    def _instead(self, before: ParsedPod | None, now: F) -> F:
        """Return the facts that replace others, and move the hold on selectors from the old to the new ones."""
        if now is not None and now.shape is not None and now.shape.held:
            self._reader.selectors.hold(now.shape.held, 1)
        if before is not None and before.shape is not None and before.shape.held:
            self._reader.selectors.hold(before.shape.held, -1)
        return now

    def forget_selectors(self) -> None:
        """Drop selectors whose last holder is gone; pods that they selected get another shape."""
        if not self._reader.selectors.unheld:
            return
        forgotten = self._reader.forget_unheld()
        if forgotten:
            self._read_again(lambda facts: facts.shape is not None and not forgotten.isdisjoint(facts.shape.selected_by))

    def _facts_of(self, data: Placement | PlacementView, before: PlacementRecord | None) -> ParsedPod | None:
        known = before.data if before is not None else None
        if known is not None and known.pod == data.pod and known.resize == data.resize:
            facts = before.facts if before is not None else None
            if facts is not None:
                return facts
        try:
            return self._read_counted(data)
        except (msgspec.DecodeError, DocumentError):
            return None

    def _read_counted(self, data: Placement | PlacementView) -> ParsedPod:
        """The facts of a placed pod; while it is resized, with the resources that are counted."""
        return self._reader.read(counted_document(data.pod, data.resize), self.priorities)

    def _known_facts(self, record: PodRecord, document: msgspec.Raw) -> ParsedPod | None:
        for placed in record.placements.values():
            if placed.data.resize is None and placed.data.pod == document:
                return placed.facts
        return None

    def _account(self, record: PodRecord, node: str, placed: PlacementRecord) -> None:
        """Charge the node and the quota with the placement's present amounts."""
        due = self._due(record, node, placed)
        if placed.charge is not None:
            if due == placed.charge:
                return
            if due is not None and due.shape == placed.charge.shape:
                self.charged.move(record)
                return
            self._give_back(record, node, placed)
        if due is None or placed.facts is None:
            return
        bound_at = placed.data.bound_at
        assert bound_at is not None
        if bound_at is not self._bound_at:
            self._bound_at, self._bound_us = bound_at, microseconds(bound_at)
        assigned = self.assigned.of(placed.facts, due.shape, self._bound_us)
        self._nodes.place_later(node, record.key, due.shape, assigned, placed.data.allocation)
        self.charged.charge(due, record.key)
        placed.charge = due

    def _due(self, record: PodRecord, node: str, placed: PlacementRecord) -> Charge | None:
        data, facts = placed.data, placed.facts
        if data.phase is PlacementPhase.GONE or facts is None or facts.shape is None or data.bound_at is None:
            return None
        if record.runs:
            run = record.run_of(node, data.uid)
            if run is not None and run[0].phase.terminal:
                return None
        if is_reserve(record.key):
            return self.reserve_charge(facts.shape)
        return self.charged.of(record, placed)

    def reserve_charge(self, shape: Shape) -> Charge:
        """Return what a reserve pod is charged with: no quota, and no load, which is measured."""
        return Charge(self._reader.without_load(shape), None, True)

    def _give_back(self, record: PodRecord, node: str, placed: PlacementRecord) -> None:
        charge = placed.charge
        if charge is None:
            return
        self._nodes.remove(node, record.key)
        placed.charge = None
        self.charged.give_back(charge, record)

    def _record(self, key: PodKey) -> PodRecord:
        """Return a pod's record; create it if there is none."""
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = PodRecord(key)
        return record

    def _finish(self, record: PodRecord) -> None:
        self._changed(record)
        if record.empty:
            self.records.pop(record.key, None)

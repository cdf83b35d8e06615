"""Pods as the scheduler knows them: object, placements, runs and waiting event of each, and what counts on which node.

In: ObjectStored/ObjectDeleted of pods, Placement, RunStatus and Waiting events, labels of namespaces, in any order across
subjects. Out: a `PodRecord` per name, the node table and the quota ledger charged with what is placed. A placement counts
from when it is stored until it is gone or the pod's run has ended for good (the placement then stays until the pod is
deleted, but holds no resources). A record lives as long as one of its parts does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership, is_preemptible
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.runs import RunPhase, RunStatus
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.load_estimate import AssignedPod, estimation_deadline, microseconds
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_reader import PodReader
from cotenant_scheduler.state.priorities import PriorityValues
from cotenant_scheduler.state.shapes import PodFacts, Shape
from cotenant_scheduler.state.stored_placements import Kept, PlacementKeeper, PlacementView

F = TypeVar("F", bound=PodFacts | None)

ENDED_FOR_GOOD = frozenset({RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.EVICTED})
"""Runs after which a pod is never placed again, as in Kubernetes."""


CHARGES_KEPT = 4096
"""What pods count as, shared by those that count alike; then made anew."""


class Counted(msgspec.Struct, frozen=True, cache_hash=True):
    """What a placement is charged with, so that it can be given back exactly."""

    shape: Shape
    membership: Membership | None
    preemptible: bool


class Placed(msgspec.Struct, eq=False):
    """A placement on one node: its last message, and what it is charged with (None: nothing)."""

    kept: Kept
    sequence: int
    facts: PodFacts | None
    counted: Counted | None = None

    @property
    def data(self) -> Placement:
        """The placement; its figures may be missing (`kept.whole` has them)."""
        return self.kept.data


class PodRecord:
    """Everything about the pods of one name; normally one pod, two while one takes the other's place."""

    __slots__ = (
        "document",
        "facts",
        "group",
        "key",
        "object_sequence",
        "placements",
        "runs",
        "unreadable",
        "waiting",
        "waiting_at",
    )

    def __init__(self, key: PodKey) -> None:
        self.key = key
        self.facts: PodFacts | None = None
        self.document: msgspec.Raw | None = None
        self.object_sequence = 0
        self.unreadable = ""
        """Why the object cannot be read at all; empty where it can."""
        self.placements: dict[str, Placed] = {}
        self.runs: dict[str, tuple[RunStatus, int]] = {}
        self.waiting: Waiting | None = None
        self.waiting_at: datetime | None = None
        self.group: object | None = None
        """The queue's mark: the group that the pod waits in."""

    @property
    def empty(self) -> bool:
        """No part is left."""
        return self.facts is None and not (self.placements or self.runs or self.waiting or self.unreadable)

    def run_of(self, node: str, uid: str) -> tuple[RunStatus, int] | None:
        """The run of this very pod on a node."""
        run = self.runs.get(node)
        return run if run is not None and run[0].uid == uid else None

    @property
    def finished(self) -> bool:
        """The present pod ran and ended for good."""
        facts = self.facts
        return bool(self.runs) and facts is not None and any(
            run.uid == facts.uid and run.phase in ENDED_FOR_GOOD for run, _ in self.runs.values()
        )


class PodBook:
    """All records. `changed` is called with the record after every fold."""

    def __init__(
        self, nodes: NodeTable, quotas: QuotaLedger, reader: PodReader, changed: Callable[[PodRecord], None]
    ) -> None:
        self.records: dict[PodKey, PodRecord] = {}
        self.on_node: dict[str, set[PodKey]] = {}
        """Names of the pods with a placement, by node."""
        self.priorities = PriorityValues()
        self._nodes = nodes
        self._quotas = quotas
        self._reader = reader
        self._changed = changed
        self._keeper = PlacementKeeper()
        self._charges: dict[tuple[Shape, str, str, bool], Counted] = {}
        self._uncharged: dict[Counted, int] = {}
        """Placements that their quotas are not charged with yet, by what they count as."""
        self._bound_at: datetime | None = None
        self._bound_us = 0
        self._assigned_us = 0
        self._assigned: dict[Shape, AssignedPod] = {}

    def store_object(self, key: PodKey, document: msgspec.Raw, sequence: int) -> None:
        """Take over a pod's object."""
        record = self._record(key)
        record.object_sequence = sequence
        # The message around the manifest can go.
        record.document = document.copy()
        facts = self._known_facts(record, document) if record.placements else None
        try:
            facts = record.facts = self._instead(record.facts, facts or self._reader.read(document, self.priorities))
            if facts.name == key[1] and facts.namespace == key[0]:
                facts.namespace, facts.name = record.key
            record.unreadable = ""
        except msgspec.DecodeError as error:
            record.facts = self._instead(record.facts, None)
            record.unreadable = f"the pod's object at LOG:{sequence} cannot be read: {error}"
        self._changed(record)
        self._hold_against_new_selectors()

    def drop_object(self, key: PodKey) -> None:
        """The object has ended."""
        record = self.records.get(key)
        if record is not None:
            record.facts = self._instead(record.facts, None)
            record.document, record.object_sequence, record.unreadable = None, 0, ""
            self._finish(record)

    def store_placement(
        self, key: PodKey, data: Placement | PlacementView, sequence: int, counted: Counted | None = None
    ) -> Placed:
        """Take over a placement, and return what became of it. `counted`: what it is charged with already, as it was
        assumed; only for the first placement of a pod without runs."""
        record = self._record(key)
        before = record.placements.get(data.node)
        # One copy of the manifest is enough: the message that carried the other can go.
        document = record.document if record.document == data.pod else None
        facts = record.facts
        if document is None or facts is None:
            facts = self._facts_of(data, before)
        self._instead(before.facts if before is not None else None, facts)
        if counted is not None and isinstance(data, Placement):
            node, kept = data.node, Kept(data)
        else:
            row = self._nodes.rows.get(data.node)
            node = self._nodes.names[row] if row is not None else data.node
            kept = self._keeper.keep(data, node, document or data.pod.copy(), facts)
        charged = counted if counted is not None or before is None else before.counted
        placed = record.placements[node] = Placed(kept, sequence, facts, charged)
        keys = self.on_node.get(node)
        if keys is None:
            keys = self.on_node[node] = set()
        keys.add(record.key)
        if counted is None or facts is None or facts.shape is not counted.shape:
            # Charged for the first time, or what selects the pod has changed since it was assumed.
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
        """Take over what became of a pod on a node."""
        key, node = (data.namespace, data.name), data.node
        record = self._record(key)
        before = record.runs.get(node)
        record.runs[node] = (data, sequence)
        if not data.phase.terminal and (before is None or not before[0].phase.terminal):
            return  # Whether it is pending or runs makes no difference.
        placed = record.placements.get(node)
        if placed is not None:
            self._account(record, node, placed)
        self._changed(record)

    def drop_run(self, node: str, key: PodKey) -> None:
        """The run's report has ended."""
        record = self.records.get(key)
        if record is not None and record.runs.pop(node, None) is not None:
            placed = record.placements.get(node)
            if placed is not None:
                self._account(record, node, placed)
            self._finish(record)

    def store_waiting(self, data: Waiting, at: datetime | None) -> None:
        """Take over what was last said about a waiting pod."""
        key = (data.namespace, data.name)
        record = self._record(key)
        record.waiting, record.waiting_at = data, at
        self._changed(record)

    def drop_waiting(self, key: PodKey) -> None:
        """Nothing is said of the pod's waiting any more."""
        record = self.records.get(key)
        if record is not None:
            record.waiting, record.waiting_at = None, None
            self._finish(record)

    def reprioritise(self) -> None:
        """A priority class changed: read the pods that have their priority from a class again."""
        self._read_again(lambda facts: facts.from_class)

    def _hold_against_new_selectors(self) -> None:
        """A pod brought selectors that are new: pods that they select have another shape from now on."""
        book = self._reader.selectors
        if book.new:
            new = book.take_new()
            self._read_again(lambda facts: any(book.selects(selector, facts.namespace, facts.labels) for selector in new))

    def label_namespace(self, namespace: str, labels: Mapping[str, str]) -> None:
        """Take over the labels of a namespace: pods there may be selected by other selectors from now on."""
        book = self._reader.selectors
        if book.label_namespace(namespace, labels):
            self._read_again(
                lambda facts: facts.namespace == namespace
                and facts.shape is not None
                and facts.shape.selected_by != book.selecting(namespace, facts.labels)
            )

    def _read_again(self, concerned: Callable[[PodFacts], bool]) -> None:
        """Give pods the shapes that they have now, and count placed ones as such."""
        for key in sorted(self.records):
            record = self.records[key]
            if record.facts is not None and record.document is not None and concerned(record.facts):
                record.facts = self._instead(record.facts, self._reader.read(record.document, self.priorities))
                self._changed(record)
            for node, placed in record.placements.items():
                if placed.facts is not None and concerned(placed.facts):
                    placed.facts = self._instead(placed.facts, self._reader.read(placed.data.pod, self.priorities))
                    self._account(record, node, placed)

    def _instead(self, before: PodFacts | None, now: F) -> F:
        """Return the facts that take the place of others: these held selectors until now, those do from now on."""
        if now is not None and now.shape is not None and now.shape.held:
            self._reader.selectors.hold(now.shape.held, 1)
        if before is not None and before.shape is not None and before.shape.held:
            self._reader.selectors.hold(before.shape.held, -1)
        return now

    def forget_selectors(self) -> None:
        """Where the last holders of selectors are gone, pods that they selected have another shape from now on."""
        if not self._reader.selectors.unheld:
            return
        forgotten = self._reader.forget_unheld()
        if forgotten:
            self._read_again(lambda facts: facts.shape is not None and not forgotten.isdisjoint(facts.shape.selected_by))

    def assigned(self, facts: PodFacts, shape: Shape, assigned_us: int) -> AssignedPod:
        """Return a pod as the load estimates count it."""
        args = self._nodes.load.args
        if not args.allow_customize_estimation:
            # Pods of one shape that are assigned at one moment are counted alike.
            if self._assigned_us != assigned_us:
                self._assigned_us = assigned_us
                self._assigned.clear()
            known = self._assigned.get(shape)
            if known is None:
                known = self._assigned[shape] = self._as_assigned(facts, shape, assigned_us)
            return known
        return self._as_assigned(facts, shape, assigned_us)

    def _as_assigned(self, facts: PodFacts, shape: Shape, assigned_us: int) -> AssignedPod:
        args = self._nodes.load.args
        deadline = estimation_deadline(
            assigned_us,
            None,
            args.estimated_seconds_after_pod_scheduled,
            args.estimated_seconds_after_initialized,
            facts.annotations,
            args.allow_customize_estimation,
        )
        return AssignedPod(shape.estimate, shape.prod, assigned_us, deadline)

    def _facts_of(self, data: Placement | PlacementView, before: Placed | None) -> PodFacts | None:
        if before is not None and before.facts is not None and before.data.pod == data.pod:
            return before.facts
        try:
            return self._reader.read(data.pod, self.priorities)
        except msgspec.DecodeError:
            return None

    def _known_facts(self, record: PodRecord, document: msgspec.Raw) -> PodFacts | None:
        for placed in record.placements.values():
            if placed.data.pod == document:
                return placed.facts
        return None

    def _account(self, record: PodRecord, node: str, placed: Placed) -> None:
        """Charge the node and the quota with what the placement holds now."""
        wanted = self._wanted(record, node, placed)
        if placed.counted is not None:
            if wanted == placed.counted:
                return
            self._give_back(record, node, placed)
        if wanted is None or placed.facts is None:
            return
        bound_at = placed.data.bound_at
        assert bound_at is not None
        if bound_at is not self._bound_at:
            self._bound_at, self._bound_us = bound_at, microseconds(bound_at)
        assigned = self.assigned(placed.facts, wanted.shape, self._bound_us)
        self._nodes.place_later(node, record.key, wanted.shape, assigned)
        if wanted.membership is not None:
            self._uncharged[wanted] = self._uncharged.get(wanted, 0) + 1
        placed.counted = wanted

    def settle(self) -> None:
        """Charge what was folded since to its quotas, many pods at once: before quotas are read."""
        if not self._uncharged:
            return
        for counted, times in self._uncharged.items():
            assert counted.membership is not None
            requests = {name: amount * times for name, amount in counted.shape.requests.items()}
            self._quotas.charge(counted.membership, requests, preemptible=counted.preemptible)
        self._uncharged.clear()

    def _wanted(self, record: PodRecord, node: str, placed: Placed) -> Counted | None:
        data, facts = placed.data, placed.facts
        if data.phase is PlacementPhase.GONE or facts is None or facts.shape is None or data.bound_at is None:
            return None
        if record.runs:
            run = record.run_of(node, data.uid)
            if run is not None and run[0].phase.terminal:
                return None
        preemptible = is_preemptible(facts.labels)
        key = (facts.shape, data.quota, data.quota_tree, preemptible)
        known = self._charges.get(key)
        if known is None:
            if len(self._charges) >= CHARGES_KEPT:
                self._charges.clear()
            membership = Membership(data.quota, data.quota_tree) if data.quota else None
            known = self._charges[key] = Counted(facts.shape, membership, preemptible)
        return known

    def _give_back(self, record: PodRecord, node: str, placed: Placed) -> None:
        counted = placed.counted
        if counted is None:
            return
        self._nodes.remove(node, record.key)
        if counted.membership is not None:
            self.settle()
            self._quotas.give_back(counted.membership, counted.shape.requests, preemptible=counted.preemptible)
        placed.counted = None

    def _record(self, key: PodKey) -> PodRecord:
        """A pod's record, made if need be."""
        record = self.records.get(key)
        if record is None:
            record = self.records[key] = PodRecord(key)
        return record

    def _finish(self, record: PodRecord) -> None:
        self._changed(record)
        if record.empty:
            self.records.pop(record.key, None)

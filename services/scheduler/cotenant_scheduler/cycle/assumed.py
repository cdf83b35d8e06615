"""Changes of the state by the scheduler's own decisions before they are stored: one journal, newest last.

Three kinds of changes are assumed:

    placements of the decision being made: counted on their nodes, charged to their quotas, units taken. `savepoint` marks a
    point of the journal and `rollback` undoes exactly the changes after it: so pods are tried together, and a decision
    never depends on one that was not stored. A placement that is folded as it was decided stays: nothing is computed again.
    placements of the decision being made that are not found a node: of pods that name theirs, and of pods that are resized and
    grow. They are folded while others are placed beside them (`counted`), and then undone like those of a refused batch.
    events of a batch that is being stored: folded before their sequences are known, the n-th as number -n
    (`cotenant.engine.core.Assuming`). `stored` gives them their sequences; `refused` folds the messages before them again,
    newest first: the state is a fold of the last message of each subject, so that undoes any event, whatever its payload and
    whatever else was folded meanwhile.

Bounds: the placements of one decision; the events of one batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

import msgspec

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.load.load_estimate import AssignedPod
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PlacementRecord
from cotenant_scheduler.state.stored_placements import PlacementView


class Folding(Protocol):
    """The part of the state that own events change."""

    def fold(self, event: Event, sequence: int) -> PlacementRecord | None:
        """Fold an event as if it had this sequence; return the record of a placement."""

    def last(self, subject: str) -> Event | None:
        """Return the last message of a subject that the scheduler writes; None if there is none."""

    def replace(self, event: Event, sequence: int) -> tuple[Event | None, PlacementRecord | None]:
        """Fold an own event likewise; return the last message of its subject before it, None if none, and the record of
        a placement."""


_Folded = tuple[Event, Event | None, PlacementRecord | None]
"""An event with the message of its subject before it, and its record."""


class _Assumption(msgspec.Struct, frozen=True):
    row: int
    charge: Charge
    data: Placement


class Assumed:
    """The journal."""

    def __init__(self, nodes: NodeTable, ledger: QuotaLedger, sequences: LastSequences) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._sequences = sequences
        self._placed: dict[PodKey, _Assumption] = {}
        """In the order of the decision."""
        self._batch: list[_Folded] = []

    # -- the decision being made ---------------------------------------------------------------------------------

    def place(self, row: int, key: PodKey, charge: Charge, assigned: AssignedPod, data: Placement) -> None:
        """Assume a pod on a row."""
        self._nodes.assume(row, key, charge.shape, assigned, data.allocation)
        self._charge(charge, 1)
        self._placed[key] = _Assumption(row, charge, data)

    def place_series(
        self, rows: list[int], keys: list[PodKey], charges: list[Charge], assigned: AssignedPod, placements: list[Placement]
    ) -> None:
        """Assume pods of one shape, one on each of the rows. No counter counts them, and the nodes' reports do not include
        them."""
        shape = charges[0].shape
        self._nodes.assume_series(rows, keys, shape, assigned)
        self._placed.update(zip(keys, map(_Assumption, rows, charges, placements), strict=True))
        charged: dict[tuple[Membership, bool], int] = {}
        for charge, count in Counter(charges).items():
            if charge.membership is not None:
                counted = (charge.membership, charge.preemptible)
                charged[counted] = charged.get(counted, 0) + count
        if charged:
            self._ledger.charge_equal(charged, shape.requests)

    def holds(self, key: PodKey) -> bool:
        """Return whether a pod is assumed on some node."""
        return key in self._placed

    def savepoint(self) -> int:
        """Return the present point of the journal; valid until a placement is folded."""
        return len(self._placed)

    def rollback(self, savepoint: int = 0) -> None:
        """Undo the placements after a savepoint."""
        placed = self._placed
        if len(placed) <= savepoint:
            return
        gone = [(entry.row, key, entry.charge) for key, entry in islice(placed.items(), savepoint, None)]
        self._nodes.retract_all([(row, key, charge.shape) for row, key, charge in gone])
        charged: dict[Charge, int] = {}
        for _, key, charge in gone:
            charged[charge] = charged.get(charge, 0) + 1
            del placed[key]
        for charge, times in charged.items():
            self._charge(charge, -times)

    def confirm(self, key: PodKey, data: Placement | PlacementView, first: bool) -> Charge | None:
        """A placement of the pod is folded: return its charge if it is the assumed one, and the known
        `first` of the pod; otherwise the assumption, if there is one, is undone."""
        held = self._placed.pop(key, None)
        if held is None:
            return None
        if first and held.data is data:
            return held.charge
        self._nodes.retract(held.row, key)
        self._charge(held.charge, -1)
        return None

    def _charge(self, charge: Charge, times: int) -> None:
        if charge.membership is None:
            return
        requests = {name: amount * abs(times) for name, amount in charge.shape.requests.items()}
        change = self._ledger.charge if times > 0 else self._ledger.give_back
        change(charge.membership, requests, preemptible=charge.preemptible)

    @contextmanager
    def counted(self, events: Sequence[Event], state: Folding, settle: Callable[[], None]) -> Iterator[None]:
        """Count own placements of the decision being made, new ones or such that grow, while pods are placed beside them. What
        refers to one meanwhile refers to the message before it. `settle` finishes folding."""
        if not events:
            yield
            return
        folded: list[_Folded] = []
        for event in events:
            assert isinstance(event.data, Placement)
            before = state.last(event.subject)
            known = before.sequence if before is not None else event.data.object_sequence
            folded.append((event, before, state.fold(event, known)))
        settle()
        try:
            yield
        finally:
            restored = self._unfold(folded, state)
            # A placement that is being stored has a new record, which gets its sequence.
            self._batch = [(event, before, restored.get(event.subject, record)) for event, before, record in self._batch]

    # -- the batch being stored ----------------------------------------------------------------------------------

    def fold(self, events: Sequence[Event], state: Folding) -> None:
        """Fold the events of a batch as if they were stored. Raises ValueError while another batch is being stored."""
        if self._batch:
            raise ValueError("a batch is being stored already: confirm or withdraw it first")
        for number, event in enumerate(events, 1):
            self._batch.append((event, *state.replace(event, -number)))

    def stored(self, first: int) -> None:
        """The batch is stored; its first event has this sequence."""
        for sequence, (event, _, record) in enumerate(self._batch, first):
            self._sequences.note(event.subject, sequence, event.tombstone)
            if record is not None:
                record.sequence = sequence
        self._batch = []

    def refused(self, state: Folding) -> None:
        """The batch is not stored, nor are later decisions."""
        self.rollback()
        self._unfold(self._batch, state)
        self._batch = []

    @staticmethod
    def _unfold(folded: Sequence[_Folded], state: Folding) -> dict[str, PlacementRecord | None]:
        """Fold the messages before the events again; return the records of placements by subject."""
        restored: dict[str, PlacementRecord | None] = {}
        for event, before, _ in reversed(folded):
            if before is None:
                state.fold(msgspec.structs.replace(event, tombstone=True), 0)
            else:
                restored[event.subject] = state.fold(before, before.sequence)
        return restored

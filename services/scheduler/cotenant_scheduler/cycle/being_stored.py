"""Own events that are being stored: folded before their sequences are known, and taken back if they are refused.

In: the events of one batch, then either the sequence of the first one or the word that none is stored. Out: the pod book
and the sequences as if the events had been folded after they were stored; or every subject as it was before, whatever else
was folded meanwhile: a pod's state is a fold of the last message of each subject, so putting the message before it back
undoes a message. Until its sequence is known the n-th event counts as number -n (`cotenant.engine.core.Assuming`).

Every payload that the scheduler decides has a case here; one that has not is refused loudly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.placements import Placement, Waiting
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.pods import Placed, PodBook

FoldPlacement = Callable[[PodKey, Placement, int], Placed]

Said = tuple[Waiting | None, datetime | None]
"""What was last said of a waiting pod, and when."""


class BeingStored:
    """At most one batch."""

    def __init__(self, pods: PodBook, sequences: LastSequences, fold_placement: FoldPlacement) -> None:
        self._pods = pods
        self._sequences = sequences
        self._fold_placement = fold_placement
        self._events: Sequence[Event] = ()
        self._folded: list[Placed | None] = []
        """By event: the placement that it became, None where it is no placement or ends one."""
        self._before: list[Placed | Said | None] = []
        """By event: what its subject said before."""

    def assume(self, events: Sequence[Event]) -> None:
        """Fold the events of a batch."""
        if self._events:
            raise ValueError("a batch is being stored already: confirm or withdraw it first")
        self._events = events
        for number, event in enumerate(events, 1):
            data = event.data
            if isinstance(data, Placement):
                self._placement(event, data, -number)
            elif isinstance(data, Waiting):
                self._waiting(event, data)
            else:
                raise TypeError(f"{event.subject}: it is not known how to take a {type(data).__name__} back")

    def confirm(self, first: int) -> None:
        """The batch is stored; its first event has this sequence."""
        note = self._sequences.note
        for sequence, (event, placed) in enumerate(zip(self._events, self._folded, strict=True), first):
            note(event.subject, sequence, event.tombstone)
            if placed is not None:
                placed.sequence = sequence
        self._forget()

    def withdraw(self) -> None:
        """The batch is not stored."""
        for event, before in zip(reversed(self._events), reversed(self._before), strict=True):
            data = event.data
            if isinstance(data, Placement):
                assert not isinstance(before, tuple)
                self._placement_again(data, before)
            elif isinstance(data, Waiting):
                assert isinstance(before, tuple)
                self._waiting_again(data, *before)
        self._forget()

    def _forget(self) -> None:
        self._events = ()
        self._folded = []
        self._before = []

    def _placement(self, event: Event, data: Placement, number: int) -> None:
        key = (data.namespace, data.name)
        record = self._pods.records.get(key)
        self._before.append(record.placements.get(data.node) if record is not None else None)
        if event.tombstone:
            self._pods.drop_placement(data.node, key)
            self._folded.append(None)
        else:
            self._folded.append(self._fold_placement(key, data, number))

    def _placement_again(self, data: Placement, before: Placed | None) -> None:
        key = (data.namespace, data.name)
        if before is None:
            self._pods.drop_placement(data.node, key)
        else:
            self._pods.store_placement(key, before.kept.whole(), before.sequence)

    def _waiting(self, event: Event, data: Waiting) -> None:
        key = (data.namespace, data.name)
        record = self._pods.records.get(key)
        self._before.append((record.waiting, record.waiting_at) if record is not None else (None, None))
        self._folded.append(None)
        if event.tombstone:
            self._pods.drop_waiting(key)
        else:
            self._pods.store_waiting(data, event.time)

    def _waiting_again(self, data: Waiting, before: Waiting | None, at: datetime | None) -> None:
        if before is None:
            self._pods.drop_waiting((data.namespace, data.name))
        else:
            self._pods.store_waiting(before, at)

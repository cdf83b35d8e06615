"""Ended objects, cached while their tombstones matter; then their slots are freed.

In: slots whose object ended or was created again. Out: the empty slots. Of an ended object the
tombstone's sequence is cached, which a creation of its name has to expect, until a tombstone REMEMBERED_POSITIONS behind it
was folded (`engine.last_sequences` says why that is enough for the fold). A later creation of the name
expects an empty subject and is refused while the tombstone exists; the request then reads LOG (`loop.requests`).

Built-in objects stay cached: one that a user deleted stays deleted.
"""

from __future__ import annotations

from cotenant.engine.last_sequences import REMEMBERED_POSITIONS
from cotenant.kinds.namespaces import NAMESPACES
from cotenant.kinds.priority_classes import PRIORITY_CLASSES
from cotenant_gateway.read_model.slots import Collection, Slot

_REMEMBERED_FOR_GOOD = frozenset({NAMESPACES, PRIORITY_CLASSES})
"""Kinds that have built-in objects: few, and rarely created or deleted."""


class EndedObjects:
    """The ended objects that are still cached, in the order of their ends. Mutable."""

    def __init__(self) -> None:
        self._slots: dict[int, tuple[Collection, Slot]] = {}
        """By the sequence of the tombstone."""
        self._newest = 0

    def __len__(self) -> int:
        return len(self._slots)

    def note(self, collection: Collection, slot: Slot, before: int) -> None:
        """Note a slot with a new message of its own; `before`: the sequence of the previous one."""
        self._slots.pop(before, None)
        if slot.stored is not None or collection.kind in _REMEMBERED_FOR_GOOD:
            return
        self._slots[slot.own_sequence] = (collection, slot)
        self._newest = max(self._newest, slot.own_sequence)
        self._forget()

    def _forget(self) -> None:
        while self._slots:
            oldest = next(iter(self._slots))
            if oldest > self._newest - REMEMBERED_POSITIONS:
                return
            self.drop_if_empty(*self._slots.pop(oldest))

    def loaded(self) -> None:
        """The load is over: facts were in no order of sequences, later ones are."""
        self._slots = {sequence: self._slots[sequence] for sequence in sorted(self._slots)}
        self._forget()

    def drop_if_empty(self, collection: Collection, slot: Slot) -> None:
        """Drop a slot that holds neither object nor parts, unless its end is cached."""
        if slot.stored is None and not slot.parts and slot.own_sequence not in self._slots:
            if collection.kind in _REMEMBERED_FOR_GOOD and slot.own_sequence:
                return
            collection.slots.pop((slot.address.namespace, slot.address.name), None)

"""Rooms on nodes that are reserved for nominated pods until their victims have left.

In: the waiting events of queued pods, other schedulers' nominations, and the nominations that a decision makes or ends.
Out: the node table with the rooms that count for the pod being placed: those of nominated pods of the same or a higher
priority, except its own. Such a room counts like the pod itself, in the reservation that it is in, but does not attract pods by
affinity.

Pods are placed in queue order, so the rooms that count change seldom: most calls change nothing.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec

from cotenant.events.allocations import Allocation
from cotenant.events.placements import Nomination
from cotenant_scheduler.cycle.other_schedulers import nomination_elsewhere
from cotenant_scheduler.cycle.queue import EquivalenceClass
from cotenant_scheduler.state.counting import PodKey, held_key
from cotenant_scheduler.state.load.load_estimate import AssignedPod, microseconds
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reading.shapes import Shape

NOBODY: frozenset[PodKey] = frozenset()


class NominatedPod(msgspec.Struct, frozen=True):
    """The room, the node and the pod of a nomination."""

    node: str
    shape: Shape
    assigned: AssignedPod
    victims: frozenset[str]
    """uids of the pods that leave the node for it."""
    allocation: Allocation | None = None
    """The reservation that it is in."""


class Nominations:
    """Which pods are nominated, by the fold and by the current decision, and which rooms are counted now."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._folded: dict[PodKey, NominatedPod] = {}
        self._decided: dict[PodKey, NominatedPod | None] = {}
        """Changes by the current decision; None: no longer nominated."""
        self._counted: dict[PodKey, NominatedPod] = {}
        self.leaving: dict[str, set[str]] = {}
        """By node, uids of the pods that leave it for the rooms that are counted."""
        self.freed = False
        """Whether the decision released a room that the pod does not take itself. The reader of this flag clears it."""
        self._level: tuple[int, Set[PodKey]] | None = None
        """Priority and pods for which the rooms counted are current; None: check all."""

    def __bool__(self) -> bool:
        """Whether any pod is nominated, or any room counted."""
        return bool(self._folded or self._decided or self._counted)

    def pod_changed(self, record: PodRecord) -> None:
        """Take a changed record: the pod may have become nominated, or ceased to be."""
        facts = record.facts
        if record.waiting is None and not self._folded and not (facts is not None and facts.nominated):
            return
        nomination = nomination_of(record) or nomination_elsewhere(record)
        if nomination is None:
            if self._folded and self._folded.pop(record.key, None) is not None:
                self._level = None
            return
        assert record.facts is not None
        assert record.facts.shape is not None
        self._folded[record.key] = room_of(nomination, record.facts.shape)
        self._level = None

    def begin(self) -> None:
        """Start a decision: drop the changes of the previous one (they are folded by now, or were not stored)."""
        self._decided.clear()
        self._level = None
        self.freed = False

    def nominate(self, key: PodKey, nomination: Nomination, shape: Shape) -> None:
        """The decision nominates a pod."""
        self._change(key, room_of(nomination, shape), nomination.node)

    def end(self, key: PodKey, placed_on: str = "") -> None:
        """End the pod's nomination by this decision: it is placed, or no node or quota admits it."""
        if key in self._folded or key in self._decided:
            self._change(key, None, placed_on)

    def _change(self, key: PodKey, room: NominatedPod | None, node: str) -> None:
        before = self._decided[key] if key in self._decided else self._folded.get(key)
        self._decided[key] = room
        self._level = None
        if before is not None and before.node != node:
            self.freed = True

    def hold_also(self, key: PodKey, priority: int, own: Set[PodKey]) -> None:
        """Count the room of a pod that was nominated just now beside those counted for its `own`, which it has left."""
        room = self._decided[key]
        assert room is not None
        self._nodes.place(room.node, held_key(key), room.shape, room.assigned, room.allocation)
        self._counted[key] = room
        self.leaving.setdefault(room.node, set()).update(room.victims)
        self._level = (priority, own)

    def mark(self) -> tuple[dict[PodKey, NominatedPod | None], bool]:
        """Return the decision's changes so far, for `restore`."""
        return dict(self._decided), self.freed

    def restore(self, mark: tuple[dict[PodKey, NominatedPod | None], bool]) -> None:
        """Undo the decision's changes after a mark."""
        self._decided, self.freed = mark
        self._level = None

    def hold(self, priority: int, own: Set[PodKey] = NOBODY) -> bool:
        """Count the rooms that a pod must not use: not its `own`, which include those of the pods that it is placed with.
        Returns True if that changed the table."""
        if not (self._folded or self._decided or self._counted) or self._level == (priority, own):
            return False
        self._level = (priority, own)
        wanted = {
            key: room
            for key, room in {**self._folded, **self._decided}.items()
            if room is not None and key not in own and room.shape.priority >= priority and self._nodes.is_declared(room.node)
        }
        changed = False
        for key in [key for key, room in self._counted.items() if wanted.get(key) != room]:
            self._nodes.remove(self._counted.pop(key).node, held_key(key))
            changed = True
        for key, room in wanted.items():
            if key not in self._counted:
                self._nodes.place(room.node, held_key(key), room.shape, room.assigned, room.allocation)
                self._counted[key] = room
                changed = True
        if changed:
            self.leaving.clear()
            for room in self._counted.values():
                self.leaving.setdefault(room.node, set()).update(room.victims)
        return changed


def nomination_of(record: PodRecord) -> Nomination | None:
    """Return the nomination of a queued pod."""
    waiting, facts = record.waiting, record.facts
    if waiting is None or waiting.nomination is None or not isinstance(record.queued_in, EquivalenceClass):
        return None
    return waiting.nomination if facts is not None and facts.uid == waiting.uid else None


def room_of(nomination: Nomination, shape: Shape) -> NominatedPod:
    """Return the room of a nominated pod: what it would occupy if it had been placed there when it was nominated."""
    assigned = AssignedPod(shape.estimate, shape.prod, microseconds(nomination.at))
    allocation = Allocation(reservation=nomination.reservation) if nomination.reservation is not None else None
    return NominatedPod(nomination.node, shape, assigned, frozenset(victim.uid for victim in nomination.victims), allocation)

"""Defects of the room that is kept for the queue's head, and of the order in which jobs are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cotenant_scheduler.cycle.ordering.queue_head import QueueHead
from cotenant_verification.workload.schedule import Entry
from tests.simulation.mutants.patches import Mutant

Function = Callable[..., Any]

CROWD = (
    *(
        Entry(
            at_ms=15_000 + 800 * index,
            kind="create-pod",
            target=f"crowd-{index}",
            args={"class": "job", "cpu": 1_000, "memory_mib": 16, "lasts": 30, "selects": "n0"},
        )
        for index in range(125)
    ),
    Entry(
        at_ms=40_000,
        kind="create-pod",
        target="large",
        args={"class": "job", "cpu": 3_000, "memory_mib": 16, "lasts": 20, "selects": "n0"},
    ),
)
"""Jobs for ever on one node, more than it has room for, and a large one behind them that fits only when three of them end."""


def counts_nothing(_: Function) -> Function:
    """Rooms are named and not counted."""
    return lambda *_: None


def half_a_room(present: Function) -> Function:
    """A room is given up as soon as anybody behind the head is tried."""

    def refused(self: QueueHead, *args: Any) -> Any:
        found = present(self, *args)
        if self.alike is not None:
            self.release()
        return found

    return refused


QUEUE_MUTANTS = (
    Mutant("rooms_of_the_head_are_not_counted", ((QueueHead, "_count", counts_nothing),), (24,), (1, 2, 3), 2, faults=CROWD),
    Mutant("rooms_of_the_head_are_given_up", ((QueueHead, "refused", half_a_room),), (24,), (1, 2, 3), 2, faults=CROWD),
)

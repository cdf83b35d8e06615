"""The records of the pods of one name: object, placements, runs, waiting event.

A `PlacementRecord` is the last message of a placement, with what the node and the quota are charged for it.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime

import msgspec

from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.trees.demands import ChargeClass
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement, Waiting
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape
from cotenant_scheduler.state.stored_placements import StoredPlacement


class Charge(msgspec.Struct, frozen=True, cache_hash=True):
    """What a placement is charged with, so that it can be refunded exactly. (Assigned units are in its `Placement.allocation`.)
    """

    shape: Shape
    membership: Membership | None
    preemptible: bool


class PlacementRecord(msgspec.Struct, eq=False):
    """A placement on one node: its last message, and what it is charged with (None: nothing)."""

    stored: StoredPlacement
    sequence: int
    facts: ParsedPod | None
    charge: Charge | None = None

    @property
    def data(self) -> Placement:
        """The placement; its figures may be missing (`stored.whole` has them)."""
        return self.stored.data


class PodRecord:
    """Everything about the pods of one name; normally one pod, two while one replaces the other."""

    __slots__ = (
        "ask",
        "counted_as",
        "counted_facts",
        "counted_held",
        "document",
        "facts",
        "key",
        "object_at",
        "object_sequence",
        "placements",
        "queued_in",
        "runs",
        "unreadable",
        "waiting",
        "waiting_at",
    )

    def __init__(self, key: PodKey) -> None:
        self.key = key
        self.facts: ParsedPod | None = None
        self.document: msgspec.Raw | None = None
        self.object_sequence = 0
        self.object_at: datetime | None = None
        """When the object was stored."""
        self.unreadable = ""
        """Why the object cannot be read at all; empty if it can."""
        self.placements: dict[str, PlacementRecord] = {}
        self.runs: dict[str, tuple[RunStatus, int]] = {}
        self.waiting: Waiting | None = None
        self.waiting_at: datetime | None = None
        self.ask: Hashable = None
        """Its requirements of reservations while it is queued; None without."""
        self.counted_as: ChargeClass | None = None
        self.counted_held = False
        """The kind as which the pod is counted in its quota (`state.quotas.quota_demands`), and whether as placed."""
        self.counted_facts: ParsedPod | None = None
        """The facts that decided on it; None where more than facts and placements did."""
        self.queued_in: object | None = None
        """The equivalence class that the pod waits in; set by the queue."""

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
        """The present pod ran and ended permanently."""
        facts = self.facts
        return bool(self.runs) and facts is not None and any(
            run.uid == facts.uid and run.phase.final for run, _ in self.runs.values()
        )

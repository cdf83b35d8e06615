"""The records of the pods of one name: object, placements, runs, waiting event; and which pods their executors have stopped.

A `PlacementRecord` is the last message of a placement, with what the node and the quota are charged for it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import datetime

import msgspec

from cotenant.domain.quota.membership import Membership
from cotenant.domain.quota.trees.demands import ChargeClass
from cotenant.engine.last_sequences import REMEMBERED_POSITIONS
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement, PlacementPhase, Waiting
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


class StopReports:
    """The reports that pods were stopped, with which their runs have ended (`events.node.runs.reports_stop`).

    A report is about the terminating placement that it follows on LOG; one that is being stored (its sequence is negative)
    follows all reports known. Mutable; bound: the pods with such a placement, and those that were stopped within the last
    REMEMBERED_POSITIONS of LOG.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, PodKey], tuple[str, int]] = {}
        """The pod's uid and the report's sequence, by node and name."""
        self._newest = 0

    def __len__(self) -> int:
        return len(self._known)

    def note(self, node: str, key: PodKey, uid: str, sequence: int) -> None:
        """Take a report."""
        self._known.pop((node, key), None)
        self._known[node, key] = uid, sequence
        self._newest = max(self._newest, sequence)

    def bound(self, node: str, key: PodKey, sequence: int) -> None:
        """A placement is bound; `sequence` is negative until it is stored."""
        known = self._known.get((node, key))
        if known is not None and (sequence < 0 or sequence > known[1]):
            del self._known[node, key]

    def of(self, node: str, key: PodKey, placed: PlacementRecord) -> int:
        """Return the sequence of the report that this placement's pod was stopped; 0 without one."""
        uid, sequence = self._known.get((node, key), ("", 0))
        ends = uid == placed.data.uid and placed.data.phase is PlacementPhase.TERMINATING
        return sequence if ends and 0 <= placed.sequence < sequence else 0

    def forget(self, records: Mapping[PodKey, PodRecord]) -> None:
        """Drop old reports whose placement is gone. To be called when everything that a load brings is folded."""
        oldest = self._newest - REMEMBERED_POSITIONS
        while self._known:
            (node, key), (uid, sequence) = next(iter(self._known.items()))
            if sequence > oldest:
                return
            del self._known[node, key]
            placed = records[key].placements.get(node) if key in records else None
            if placed is not None and placed.data.uid == uid:
                self._known[node, key] = uid, sequence
                return

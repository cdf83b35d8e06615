"""Pods that a decision put on nodes before it was stored: assumed in the node table, charged to their quotas.

In: what a decision places. Out: the table and the ledger as if it were stored. Of each assumption one of two things
becomes: its placement is folded as it was decided, then it holds from now on and nothing is computed again; or
the next decision begins without that, then it is undone exactly. So a decision never rests on one that was not
stored, and assuming is invisible: it saves counting every placement three times.

Bounds: the placements of one decision.
"""

from __future__ import annotations

import msgspec

from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership
from cotenant.events.placements import Placement
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.load_estimate import AssignedPod
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pods import Counted
from cotenant_scheduler.state.stored_placements import PlacementView


class Assumption(msgspec.Struct, frozen=True):
    """One pod on one row, and the decision's words for it."""

    row: int
    counted: Counted
    data: Placement


class Assumptions:
    """What is assumed now."""

    def __init__(self, nodes: NodeTable, ledger: QuotaLedger) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._held: dict[PodKey, Assumption] = {}

    def one(self, row: int, key: PodKey, counted: Counted, assigned: AssignedPod, data: Placement) -> None:
        """Assume one pod on a row."""
        self._nodes.assume(row, key, counted.shape, assigned)
        if counted.membership is not None:
            self._charge(counted, 1)
        self._held[key] = Assumption(row, counted, data)

    def series(
        self, rows: list[int], keys: list[PodKey], counted: Counted, assigned: AssignedPod, placements: list[Placement]
    ) -> None:
        """Assume equal pods, one on each of the rows; the nodes' reports do not know them."""
        self._nodes.assume_series(rows, keys, counted.shape, assigned)
        self._charge(counted, len(rows))
        for row, key, data in zip(rows, keys, placements, strict=True):
            self._held[key] = Assumption(row, counted, data)

    def holds(self, key: PodKey) -> bool:
        """Tell whether a pod is assumed somewhere."""
        return key in self._held

    def confirm(self, key: PodKey, data: Placement | PlacementView, first: bool) -> Counted | None:
        """Take an assumption out whose placement is folded; returns what it is charged with. One that was not decided
        so, or is not the `first` that is known of its pod, undoes it."""
        held = self._held.pop(key, None)
        if held is None:
            return None
        if first and held.data is data:
            return held.counted
        self._nodes.retract(held.row, key)
        self._charge(held.counted, -1)
        return None

    def undo(self) -> None:
        """Take everything back that was not stored."""
        if not self._held:
            return
        self._nodes.retract_all([(held.row, key, held.counted.shape) for key, held in self._held.items()])
        charged: dict[Counted, int] = {}
        for held in self._held.values():
            charged[held.counted] = charged.get(held.counted, 0) + 1
        for counted, times in charged.items():
            self._charge(counted, -times)
        self._held.clear()

    def _charge(self, counted: Counted, times: int) -> None:
        membership: Membership | None = counted.membership
        if membership is None:
            return
        requests = {name: amount * abs(times) for name, amount in counted.shape.requests.items()}
        change = self._ledger.charge if times > 0 else self._ledger.give_back
        change(membership, requests, preemptible=counted.preemptible)

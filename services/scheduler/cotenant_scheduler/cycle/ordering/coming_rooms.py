"""Where room comes for a pod as others end: on a node, or inside a reservation there that matches the pod.

In: the pod's shape and demands on reservations, the nodes with the rooms that are counted so far. Out: the room of which the
smallest share is short; whether a room that was chosen earlier still comes. The rules:

    ends        a pod that ends by itself: restartPolicy other than Always, activeDeadlineSeconds, or ending already
    on a node   the node refuses the pod for nothing but resources, and pods there that end release all that is short, those
                that use a reservation to that; not for a pod that must use a reservation
    inside      the reservation takes the pod once the pods that end have left its node
    short       the largest share of the node's allocatable that is missing of any resource, in millionths; inside a reservation
                what is left of it is not missing, and of a Restricted one nothing beside it counts
    choice      the smallest share; among equals inside a reservation, then the node that comes first by name

Bounds: CANDIDATES rooms on nodes and as many inside reservations are looked at for each pod; reservations of ROWS nodes, the
first by name. Cost: inside a reservation some 3 us a pod of the node that ends, and 30 us.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice

import msgspec
import numpy as np

from cotenant.events.allocations import ReservationUsed
from cotenant_scheduler.cycle.preemption import is_ending
from cotenant_scheduler.cycle.reservations.candidates import Candidates
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.preemptibility import FEW_ASKED, Preemptibility
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.plugins.reservation.fitting import MILLION, MOST_SHORT
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.columns import BoolArray, IntArray
from cotenant_scheduler.state.counting import PodKey, is_held, is_reserve
from cotenant_scheduler.state.nodes import TIE_BITS, NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.reading.shapes import Shape

CANDIDATES = 32
ROWS = 100


class ComingRoom(msgspec.Struct, frozen=True):
    """A row, the reservation there that the room is in, None for none, and the share that is short, in millionths."""

    row: int
    share: int
    reservation: ReservationUsed | None = None


class ComingRooms:
    """Finds rooms. A function of the state."""

    def __init__(
        self, nodes: NodeTable, records: Mapping[PodKey, PodRecord], results: CachedResults, reserving: Reserving
    ) -> None:
        self._nodes = nodes
        self._records = records
        self._results = results
        self._reserving = reserving

    def best(self, shape: Shape, ask: object, among: BoolArray | None) -> ComingRoom | None:
        """Return the best room for a pod, on some rows if given; None: no room comes."""
        if not self._nodes.size:
            return None
        evaluation = self._results.evaluation(shape)
        inside = self._inside(evaluation, ask, among) if isinstance(ask, Ask) and not ask.problem else None
        beside = self._beside(evaluation, among) if _may_be_beside(ask) else None
        if inside is None or beside is None:
            return inside or beside
        return inside if inside.share <= beside.share else beside

    def comes(self, shape: Shape, ask: object, row: int, reservation: ReservationUsed | None) -> bool:
        """Return whether room comes on a row, inside a reservation there if that is given."""
        evaluation = self._results.evaluation(shape)
        if reservation is not None:
            if not isinstance(ask, Ask) or ask.problem:
                return False
            return self._takes(row, self._reserving.candidates(evaluation, ask), evaluation, reservation.uid)
        others = evaluation.preemptibility
        return (
            _may_be_beside(ask)
            and not others.is_beyond(row)
            and self._comes(row, shape, evaluation.codes.item(row), others)
        )

    # -- inside reservations ---------------------------------------------------------------------------------------

    def _inside(self, evaluation: Evaluation, ask: Ask, among: BoolArray | None) -> ComingRoom | None:
        candidates = self._reserving.candidates(evaluation, ask)
        rows = (row for row in candidates.matched_rows() if among is None or among.item(row))
        found = [(share, row, used) for row in islice(rows, ROWS) for share, used in candidates.short_of(row)]
        found.sort(key=_share)  # equals stay in the order of the names
        for share, row, used in found[:CANDIDATES]:
            if self._takes(row, candidates, evaluation, used.uid):
                return ComingRoom(row, share, used)
        return None

    def _takes(self, row: int, candidates: Candidates, evaluation: Evaluation, uid: str) -> bool:
        """Return whether a reservation of a row takes the pod without the pods there that end."""
        with self._without_ending(row):
            return candidates.takes(row, candidates.on(row), evaluation, uid) is not None

    @contextmanager
    def _without_ending(self, row: int) -> Iterator[None]:
        """A row without the pods there that end, for a moment."""
        nodes = self._nodes
        node, versions = nodes.names[row], [(counter, counter.version) for counter in nodes.counters]
        gone = [(key, pod) for key, pod in nodes.pods[row].items() if self._ends(key, node)]
        for key, pod in gone:
            nodes.set_aside(row, key, pod, -1)
        try:
            yield
        finally:
            for key, pod in gone:
                nodes.set_aside(row, key, pod, 1)
            for counter, version in versions:
                counter.version = version

    # -- on nodes --------------------------------------------------------------------------------------------------

    def _beside(self, evaluation: Evaluation, among: BoolArray | None) -> ComingRoom | None:
        nodes, shape = self._nodes, evaluation.shape
        dims = nodes.dims_of(shape)
        if min(dims) < 0:
            return None
        others, few_rows = evaluation.preemptibility, nodes.size <= FEW_ASKED
        # Of few rows each is asked by itself, and only when it is its turn.
        possible = np.ones(nodes.size, dtype=np.bool_) if few_rows else ~others.beyond(slice(0, nodes.size))
        if among is not None:
            possible &= among
        short = np.zeros(nodes.size)
        for dim, (_, amount) in zip(dims, shape.needs, strict=True):
            offered = nodes.allocatable[dim, : nodes.size]
            possible &= offered >= amount
            missing = np.maximum(nodes.requested[dim, : nodes.size] + amount - offered, 0)
            short = np.maximum(short, np.minimum(missing / np.maximum(offered, 1), MOST_SHORT))
        rows: IntArray = np.flatnonzero(possible)
        keys = ((short[rows] * MILLION).astype(np.int64) << TIE_BITS) | ((1 << TIE_BITS) - 1 - nodes.tie[rows])
        if rows.size > CANDIDATES:
            few = np.argpartition(keys, CANDIDATES)[:CANDIDATES]
            rows, keys = rows[few], keys[few]
        codes = evaluation.codes
        for index in np.argsort(keys).tolist():
            row = rows.item(index)
            if few_rows and others.is_beyond(row):
                continue
            if self._comes(row, shape, codes.item(row), others):
                return ComingRoom(row, keys.item(index) >> TIE_BITS)
        return None

    def _comes(self, row: int, shape: Shape, code: int, others: Preemptibility) -> bool:
        """Return whether the shape fits on a row, or lacks only what pods that end by themselves will release."""
        if not code:
            return True
        missing = self._missing(row, shape)
        if not missing:
            return False  # it is refused for another reason
        nodes = self._nodes
        if nodes.held.on(row):
            with self._without_ending(row):
                missing = self._missing(row, shape)  # users of reservations give their room back to these
        else:
            for key, pod in nodes.pods[row].items():
                if self._ends(key, nodes.names[row]):
                    for name, amount in pod.shape.needs:
                        if name in missing:
                            missing[name] -= amount
        return all(lacking <= 0 for lacking in missing.values()) and not others.refuses_otherwise(row)

    def _missing(self, row: int, shape: Shape) -> dict[str, int]:
        """Return by resource what a row lacks, above 0."""
        requested, allocatable = self._nodes.requested, self._nodes.allocatable
        return {
            name: lacking
            for dim, (name, amount) in zip(self._nodes.dims_of(shape), shape.needs, strict=True)
            if (lacking := requested.item(dim, row) + amount - allocatable.item(dim, row)) > 0
        }

    def _ends(self, key: PodKey, node: str) -> bool:
        if is_held(key) or is_reserve(key):
            return False
        record = self._records[key]
        placed = record.placements.get(node)
        facts = placed.facts if placed is not None else record.facts
        return (facts is not None and facts.ends) or (placed is not None and is_ending(record, placed))


def _may_be_beside(ask: object) -> bool:
    """Return whether a pod may go where no reservation takes it."""
    return not (isinstance(ask, Ask) and (ask.required or ask.problem))


def _share(found: tuple[int, int, ReservationUsed]) -> int:
    return found[0]

"""Resource fit, and room left as a score.

Inputs: allocatable and requested of every resource, `pods` among them; the pod's requests. Filter: each request that is
not zero must be at most allocatable - requested; a resource that a node does not offer counts as 0. Score (least
allocated), over cpu, memory, batch-cpu and batch-memory with weight 1 each: the mean of (allocatable - used) * 100 //
allocatable, used = requested with the pod; cpu and memory with a small amount for containers that ask for none; a
resource that the node does not offer is left out, so are batch resources that the pod does not ask for. Most allocated is
the mean of used * 100 // allocatable, used at most allocatable. Source: kube-scheduler NodeResourcesFit with LeastAllocated
or MostAllocated and Koordinator's resources, default weight 1.
"""

from __future__ import annotations

from enum import Enum

import numpy as np

from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, RESOURCE_PODS
from cotenant.model.quantities import format_amount, format_milli
from cotenant_scheduler.framework.plugin import MAX_SCORE, Normalise, Refusal, RowFunction, row_count
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows, of_rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

SCORED_EXTENDED = (BATCH_CPU, BATCH_MEMORY)


class ScoringStrategy(Enum):
    """Whether pods go to the nodes with the most free resources or with the least: then few nodes are used, and others can be
    switched off."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


class NodeResourcesFit:
    """Filter and score. The filter's code is 1 + the index of the first need that does not fit."""

    name = "NodeResourcesFit"
    static = False
    spanning = False
    in_columns = True
    preemptible = True
    weight = 1
    normalise = Normalise.PLAIN
    wakes_on = ("node.*.placement.>", "node.*.run.>", "node.*.resources", "objects.core.nodes._.*")

    def __init__(self, strategy: ScoringStrategy = ScoringStrategy.LEAST_ALLOCATED) -> None:
        self._most_allocated = strategy is ScoringStrategy.MOST_ALLOCATED

    def concerns(self, shape: Shape) -> bool:  # noqa: ARG002
        return True

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(row_count(rows), dtype=np.int32)
        asked = nodes.asked_by(shape)
        free = of_rows(nodes.allocatable[: asked.shape[0]], rows) - of_rows(nodes.requested[: asked.shape[0]], rows)
        short = free < asked
        dims = nodes.dims_of(shape)
        if np.count_nonzero(short) or -1 in dims:
            for index in range(len(dims) - 1, -1, -1):
                codes[short[dims[index]] if dims[index] >= 0 else slice(None)] = index + 1
        return codes

    def row_filter(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        needs = []
        for index, dim in enumerate(nodes.dims_of(shape)):
            if dim < 0:
                return lambda _, code=index + 1: code  # type: ignore[misc]
            needs.append((nodes.allocatable[dim].data, nodes.requested[dim].data, shape.needs[index][1], index + 1))

        def refuses(row: int) -> int:
            for allocatable, requested, amount, code in needs:
                if allocatable[row] - requested[row] < amount:
                    return code
            return 0

        return refuses

    def room(self, nodes: NodeTable, shape: Shape, row: int) -> list[int]:
        """Return, by need of the shape, the headroom with the shape there (AmountFilter)."""
        return [
            (nodes.allocatable.item(dim, row) - nodes.requested.item(dim, row) if dim >= 0 else 0) - amount
            for dim, (_, amount) in zip(nodes.dims_of(shape), shape.needs, strict=True)
        ]

    def gives_back(self, shape: Shape, other: Shape) -> tuple[int, ...]:
        """Return, by need of the shape, what a pod of the other shape takes (AmountFilter)."""
        return tuple(1 if name == RESOURCE_PODS else other.requests.get(name, 0) for name, _ in shape.needs)

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        # cpu and memory are the first two dimensions of the table.
        allocatable = of_rows(nodes.allocatable[:2], rows)
        scores = allocatable - of_rows(nodes.nonzero, rows)
        scores -= shape.nonzero_column
        np.maximum(scores, 0, out=scores)
        if self._most_allocated:
            np.subtract(allocatable, scores, out=scores)
        scores *= MAX_SCORE
        scores //= of_rows(nodes.divisor, rows)
        total: IntArray = scores[0]
        total += scores[1]
        if not shape.batch and nodes.all_offer:
            total >>= 1
            return total
        counted = (allocatable > 0).sum(axis=0)
        for dim, amount, column, lane in _scored(nodes, shape)[2:]:
            offered = nodes.allocatable[dim][rows]
            room = np.maximum(offered - column[lane][rows] - amount, 0)
            total += (offered - room if self._most_allocated else room) * MAX_SCORE // np.maximum(offered, 1)
            counted += offered > 0
        return np.where(counted > 0, total // np.maximum(counted, 1), 0)

    def row_score(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        scored = [
            (nodes.allocatable[dim].data, column[lane].data, amount)
            for dim, amount, column, lane in _scored(nodes, shape)
        ]

        most_allocated = self._most_allocated

        def worth(row: int) -> int:
            total = counted = 0
            for offered, used, amount in scored:
                allocatable = offered[row]
                if allocatable > 0:
                    counted += 1
                    left = allocatable - used[row] - amount
                    if left < 0:
                        left = 0
                    total += (allocatable - left if most_allocated else left) * MAX_SCORE // allocatable
            return total // counted if counted else 0

        return worth

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:
        name, amount = shape.needs[code - 1]
        dim = nodes.dims_of(shape)[code - 1]
        allocatable = nodes.allocatable[dim][rows] if dim >= 0 else np.zeros(1, dtype=np.int64)
        if not allocatable.any():
            return Refusal("insufficient", f"Insufficient {name}", name, f"not offered, {_text(name, amount)} asked")
        short = amount - int((allocatable - nodes.requested[dim][rows]).max())
        if name == RESOURCE_PODS:
            return Refusal("insufficient", "Too many pods", name, "full")
        return Refusal("insufficient", f"Insufficient {name}", name, f"short by {_text(name, short)}", of_nearest=True)


def _text(name: str, amount: int) -> str:
    """The amount in words; batch-cpu and mid-cpu, counted in milli-cores, are written as cpu is."""
    return format_milli(amount) if name in (BATCH_CPU, MID_CPU) else format_amount(name, amount)


def _scored(nodes: NodeTable, shape: Shape) -> list[tuple[int, int, IntArray, int]]:
    """Return (dimension, the pod's amount, used column, lane in it) of each resource that counts for this shape."""
    dims = nodes.dims
    scored = [
        (dims[CPU], shape.nonzero_cpu, nodes.nonzero, 0),
        (dims[MEMORY], shape.nonzero_memory, nodes.nonzero, 1),
    ]
    for name in SCORED_EXTENDED:
        amount, dim = shape.requests.get(name, 0), dims.get(name, -1)
        if amount and dim >= 0:
            scored.append((dim, amount, nodes.requested, dim))
    return scored

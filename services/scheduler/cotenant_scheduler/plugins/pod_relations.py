"""Where pods are, as topology spread and inter-pod affinity count them.

In: pods counted on rows. Out: how many pods of each selector, and how many holders of each term, are on which row; separately
for placed and for nominated pods: nominated ones repel others, but attract none.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.counting import CountedPod, PodCounter, PodKey, is_held
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.relation_counts import RelationCounts


class PodRelations(PodCounter):
    """Counter."""

    def __init__(self) -> None:
        self.placed = RelationCounts()
        self.nominated = RelationCounts()
        self._domains: dict[str, tuple[tuple[int, int], IntArray, int]] = {}

    def counts(self, shape: Shape) -> bool:
        return shape.relational

    def count(self, row: int, key: PodKey, pod: CountedPod) -> None:
        self.version += 1
        (self.nominated if is_held(key) else self.placed).count(row, pod.shape, 1)

    def uncount(self, row: int, key: PodKey, pod: CountedPod) -> None:
        self.version += 1
        (self.nominated if is_held(key) else self.placed).count(row, pod.shape, -1)

    def domains(self, nodes: NodeTable, topology: str) -> tuple[IntArray, int]:
        """Return each row's domain of a topology (int64, -1 where it has none), and how many domains there are."""
        stamp = (nodes.version, nodes.static_changes.position)
        known = self._domains.get(topology)
        if known is not None and known[0] == stamp:
            return known[1], known[2]
        numbers: dict[str, int] = {}
        found = np.full(nodes.size, -1, dtype=np.int64)
        for row, labels in enumerate(nodes.labels):
            value = labels.get(topology)
            if value is not None and nodes.declared[row]:
                found[row] = numbers.setdefault(value, len(numbers))
        self._domains[topology] = (stamp, found, len(numbers))
        return found, len(numbers)

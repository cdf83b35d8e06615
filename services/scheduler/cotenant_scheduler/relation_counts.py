"""How many pods of each selector, and how many holders of each term, are on which row; and the topologies of rows.

In: pods counted and given back per row, by their shapes. Out: sums per topology domain, as arrays over rows. `version`
grows whenever such a count changes: whatever was computed from it is then void, for all rows.

Cost: a pod without relations that no selector selects costs nothing; a sum over domains is O(rows).
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.columns import IntArray
from cotenant_scheduler.relations import Term
from cotenant_scheduler.shapes import Shape

Counts = dict[int, int]
"""Row to count, without zeros."""


class RelationCounts:
    """Mutable; a fold over what is counted on rows."""

    def __init__(self) -> None:
        self.version = 0
        self._selected: dict[int, Counts] = {}
        self._anti: dict[Term, Counts] = {}
        self._wished: dict[Term, Counts] = {}
        self._domains: dict[str, tuple[tuple[int, int], IntArray, int]] = {}

    def count(self, row: int, shape: Shape, sign: int) -> None:
        """Count a pod on a row, or no longer."""
        self.version += 1
        for selector in shape.selected_by:
            _add(self._selected.setdefault(selector, {}), row, sign)
        for term in shape.relations.anti_affinity:
            _add(self._anti.setdefault(term, {}), row, sign)
        for term in shape.relations.preferred:
            _add(self._wished.setdefault(term, {}), row, sign)
        for term in shape.relations.each_affinity:
            # A pod that must be together with others draws them a little, with weight 1 (Kubernetes' default).
            _add(self._wished.setdefault(Term(term.selector, term.topology, 1), {}), row, sign)

    def selected(self, selector: int) -> Counts:
        """Pods that a selector selects, by row."""
        return self._selected.get(selector, {})

    def holders(self, wished: bool) -> list[tuple[Term, Counts]]:
        """Terms that pods on rows have, with how many hold them by row: required anti-affinity, or wishes."""
        terms = self._wished if wished else self._anti
        return [(term, counts) for term, counts in terms.items() if counts]

    def domains(
        self, topology: str, labels: list[dict[str, str]], stamp: tuple[int, int], declared: IntArray
    ) -> tuple[IntArray, int]:
        """Return each row's domain, -1 where it has none, and how many domains there are. `stamp` tells when labels
        change."""
        known = self._domains.get(topology)
        if known is not None and known[0] == stamp:
            return known[1], known[2]
        numbers: dict[str, int] = {}
        found = np.full(len(labels), -1, dtype=np.int64)
        for row, of_node in enumerate(labels):
            value = of_node.get(topology)
            if value is not None and declared[row]:
                found[row] = numbers.setdefault(value, len(numbers))
        self._domains[topology] = (stamp, found, len(numbers))
        return found, len(numbers)


def _add(counts: Counts, row: int, sign: int) -> None:
    left = counts.get(row, 0) + sign
    if left:
        counts[row] = left
    else:
        del counts[row]


def per_domain(counts: Counts, domains: IntArray, number: int) -> IntArray:
    """Return the sums over domains."""
    sums = np.zeros(number + 1, dtype=np.int64)
    for row, count in counts.items():
        sums[domains[row]] += count
    return sums[:number]

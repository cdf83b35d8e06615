"""How many pods of each selector, and how many holders of each term, are on which row.

In: pods counted and given back per row, by their shapes. Out: a `Tally` each, with sums per topology domain that are kept
current as pods come and go.

Cost: a pod without relations that no selector selects costs nothing, another one one addition for each selector and topology
that was asked about; sums are rebuilt when nodes or labels change.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.reading.relations import AffinityTerm
from cotenant_scheduler.state.reading.shapes import Shape

K = TypeVar("K")


class Tally:
    """Counts by row, and by domain of the topologies that were asked about."""

    __slots__ = ("_sums", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}
        """Row to count, without zeros."""
        self._sums: dict[str, tuple[IntArray, IntArray]] = {}
        """Topology to the rows' domains and the sums over them; the last sum is 0, for rows without a domain."""

    def __bool__(self) -> bool:
        return bool(self.rows)

    def add(self, row: int, sign: int) -> None:
        """Add one on a row, or subtract one."""
        left = self.rows.get(row, 0) + sign
        if left:
            self.rows[row] = left
        else:
            del self.rows[row]
        for domains, sums in self._sums.values():
            # A row that is newer than the domains: they are rebuilt before they are read.
            if row < domains.shape[0] and (domain := domains.item(row)) >= 0:
                sums[domain] += sign

    def per_domain(self, topology: str, domains: IntArray, number: int) -> IntArray:
        """Return the sums over the `number` domains, and 0 after them (int64, number + 1 entries; read-only)."""
        known = self._sums.get(topology)
        if known is not None and known[0] is domains:
            return known[1]
        sums = np.zeros(number + 1, dtype=np.int64)
        for row, count in self.rows.items():
            if domains[row] >= 0:
                sums[domains[row]] += count
        self._sums[topology] = domains, sums
        return sums


_NONE = Tally()


class RelationCounts:
    """Mutable; a fold over what is counted on rows."""

    def __init__(self) -> None:
        self._selected: dict[int, Tally] = {}
        self._anti: dict[AffinityTerm, Tally] = {}
        self._preferred: dict[AffinityTerm, Tally] = {}

    def count(self, row: int, shape: Shape, sign: int) -> None:
        """Count a pod on a row, or stop counting it."""
        for selector in shape.selected_by:
            _add(self._selected, selector, row, sign)
        for term in shape.relations.anti_affinity:
            _add(self._anti, term, row, sign)
        for term in shape.relations.preferred:
            _add(self._preferred, term, row, sign)
        for term in shape.relations.each_affinity:
            # Required affinity also scores, with weight 1 (Kubernetes' default hard pod affinity weight).
            _add(self._preferred, AffinityTerm(term.selector, term.topology, 1), row, sign)

    def selected(self, selector: int) -> Tally:
        """Pods that a selector selects."""
        return self._selected.get(selector, _NONE)

    def holders(self, preferred: bool) -> list[tuple[AffinityTerm, Tally]]:
        """Terms of pods on rows, with the number of pods that have them: required anti-affinity, or preferred terms."""
        return list((self._preferred if preferred else self._anti).items())


def _add(tallies: dict[K, Tally], key: K, row: int, sign: int) -> None:
    found = tallies.get(key)
    if found is None:
        found = tallies[key] = Tally()
    found.add(row, sign)
    if not found:
        del tallies[key]

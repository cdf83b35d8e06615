"""Where the pods of a gang go in one domain: a number of them to each of its nodes.

In: the domains, how many pods each has room for, how many pods of the same job run in it. Out: a `GatheringPlan`: rows in the
order in which the gang's pods, by their index, take them. Domains below are filled one after the other, first the one with the
most pods of the job, then the one with the most room, then by name, so that neighbours by index are neighbours in the network.
Source: Koordinator's network topology solver (`distributeOfferSlot`, `distributePods`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from cotenant.events.allocations import Gathered
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.state.columns import BoolArray, IntArray
from cotenant_scheduler.state.network_domains import Levels


class DomainSlots(msgspec.Struct, frozen=True):
    """By level, a number a domain: pods that it has room for, and pods of the same job that run in it."""

    slots: Sequence[IntArray]
    present: Sequence[IntArray]


class GatheringPlan:
    """Rows of one domain. `gathered`: what the placements say of it."""

    def __init__(self, rows: Sequence[int], counts: Sequence[int], gathered: Gathered, *, exact: bool) -> None:
        """`exact`: pods go where the plan has them, or nowhere, as layers get multiples of pods."""
        self._rows: IntArray = np.array(rows, dtype=np.int64)
        self._left = list(counts)
        self._at = 0
        self._exact = exact
        self.gathered = gathered

    @property
    def rows(self) -> IntArray:
        """The rows of the domain."""
        return self._rows

    def row_for(self, evaluation: Evaluation, reserved: Collection[int] = (), *, beside: bool = True) -> int:
        """Return the row that the next pod takes; -1: none of the domain can take it. `reserved`: rows on which a reservation
        takes it; `beside`: it may do without one."""
        while self._at < len(self._left) and not self._left[self._at]:
            self._at += 1
        takes: BoolArray = evaluation.keys[self._rows] >= 0 if beside else np.zeros(self._rows.shape[0], dtype=np.bool_)
        if reserved:
            takes |= np.isin(self._rows, list(reserved))
        if self._at < len(self._left) and takes[self._at]:
            self._left[self._at] -= 1
            return int(self._rows[self._at])
        if self._exact or not takes.any():
            return -1
        return int(self._rows[int(takes.argmax())])


def distributed(
    levels: Levels, room: DomainSlots, multiples: Mapping[str, int], level: int, domain: int, wanted: int
) -> tuple[list[int], list[int]]:
    """Return the rows of a domain in the order in which they are filled, and how many of `wanted` pods each gets."""
    if level == len(levels.names) - 1:
        return [domain], [min(wanted, int(room.slots[level][domain]))]
    below = level + 1
    slots, present, paths = room.slots[below], room.present[below], levels.paths[below]
    children = np.flatnonzero(levels.parents[below] == domain).tolist()
    children.sort(key=lambda child: (-present.item(child), -slots.item(child), paths[child]))
    multiple = max(multiples.get(levels.names[below], 1), 1)
    rows: list[int] = []
    counts: list[int] = []
    for child in children:
        share = min(wanted, slots.item(child)) // multiple * multiple
        inner, given = distributed(levels, room, multiples, below, child, share)
        rows += inner
        counts += given
        wanted -= sum(given)
    return rows, counts

"""Where a gang must be: in one domain of a layer of the network, with multiples of pods in each domain of some layers.

In: the domains that come into question. Out: whether rows keep the rules; rooms that do (for the head of the queue, which
is kept room on nodes that are full so far: `cycle.ordering.queue_head`); and a plan of all pods that a domain has room for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np

from cotenant.events.allocations import Gathered
from cotenant_scheduler.cycle.gathering.plans import DomainSlots, GatheringPlan, distributed
from cotenant_scheduler.state.columns import BoolArray, IntArray
from cotenant_scheduler.state.network_domains import Levels

Take = Callable[[int, BoolArray], bool]
"""Takes room for the pod of an index on one of some rows, if there is any."""


class NetworkDomain(msgspec.Struct, frozen=True, eq=False):
    """A domain of the layer: its number there, its path, for how many of the gang's pods it has room, its rows."""

    number: int
    path: str
    slots: int
    rows: IntArray


class Confined:
    """The domains, that with the most room first."""

    def __init__(
        self,
        domains: tuple[NetworkDomain, ...],
        levels: Levels,
        top: int,
        multiples: Mapping[str, int],
        room: DomainSlots,
    ) -> None:
        """`top`: the level of the layer; `multiples`: by name of a layer, above 1 each."""
        self.domains = domains
        self.multiples = multiples
        self._levels = levels
        self._top = top
        self._room = room
        self._multiples = {level: multiples[name] for level, name in enumerate(levels.names) if name in multiples}
        self._finest = max((top, *self._multiples))

    def domain_of(self, rows: Iterable[int]) -> NetworkDomain | None:
        """Return the domain that rows, one a pod, are in; None where they are in none together, or break a multiple."""
        taken = np.fromiter(rows, np.int64)
        if not taken.size or taken.min() < 0:
            return None
        for level, multiple in self._multiples.items():
            if (np.bincount(self._levels.ids[level][taken]) % multiple).any():
                return None
        numbers = self._levels.ids[self._top][taken]
        return next((domain for domain in self.domains if (numbers == domain.number).all()), None)

    def fullest(self, domain: NetworkDomain) -> GatheringPlan:
        """Return a plan of as many pods as a domain has room for with the multiples."""
        rows, counts = distributed(self._levels, self._room, self.multiples, self._top, domain.number, domain.slots)
        gathered = Gathered(layer=self._levels.names[self._top], domain=domain.path)
        return GatheringPlan(rows, counts, gathered, exact=True)

    def fill(self, domain: NetworkDomain, wanted: int, take: Take, drop: Callable[[int], None]) -> int:
        """Take room for `wanted` pods in a domain, in their order, as far as there is any; return for how many. `drop`
        gives the last so many back."""
        return self._fill(self._top, domain.number, 0, wanted, take, drop)

    def _fill(
        self, level: int, number: int, first: int, wanted: int, take: Take, drop: Callable[[int], None]
    ) -> int:
        done = 0
        if level >= self._finest:
            rows = self._levels.ids[level] == number
            while done < wanted and take(first + done, rows):
                done += 1
            return done
        below = level + 1
        multiple = self._multiples.get(below, 1)
        for child in np.flatnonzero(self._levels.parents[below] == number).tolist():
            share = (wanted - done) // multiple * multiple
            while share and (got := self._fill(below, child, first + done, share, take, drop)) < share:
                drop(got)
                share = got // multiple * multiple
            done += share
        return done

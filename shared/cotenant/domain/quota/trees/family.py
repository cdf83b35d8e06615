"""The children of one quota: the share of each in the parent's runtime, recomputed only where something changed.

In: the children, in the order of their names; what they request (limited by max), guarantee, and what the parent has, by
resource. Out: scaled min and runtime of each child. The children's mins are scaled to what the parent has, then each resource
is shared among them by weight (`scale_min`, `share`).

A change of one child's request costs a few operations in the most frequent cases of a busy cluster, with the
result of sharing from scratch:

    all requests fit, before and after    each child gets its request, or its floor. As the parent mostly has what its
                                     children request, whether it fits is checked once the parent's part is known
    a child gets less than it requests, and requests still more than it gets    nothing changes: in each round of the
                                    sharing it took its whole part, and it still does
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.trees.scale_min import MinOf, scale_mins
from cotenant.domain.quota.trees.share import MANY, Amounts64, share_arrays, share_out

_LARGEST = 1 << 62


class Line:
    """One resource in a family: one column per input of the sharing."""

    __slots__ = (
        "_arrays",
        "_changed",
        "_lends",
        "_wants",
        "_weights",
        "fits",
        "floors",
        "least",
        "requests",
        "runtime",
        "stale",
        "total",
        "wanted",
    )

    def __init__(self, weights: Sequence[int], floors: Sequence[int], lends: Sequence[bool]) -> None:
        count = len(weights)
        self._weights = list(weights)
        self._lends = list(lends)
        self.floors = list(floors)
        self.requests = [0] * count
        self.runtime = [0] * count
        self.total = 0
        self.least = sum(floors)
        """The sum of the mins."""
        self.stale = True
        """The runtime is to be computed again."""
        self.fits = False
        """All requests fit, except for those of `_changed`, which have changed since."""
        self._changed: dict[int, None] = {}
        self._wants = [self._wanted_by(index, 0) for index in range(count)]
        """What each would get if there were enough."""
        self.wanted = sum(self._wants)
        """What all would get."""
        self._arrays: tuple[Amounts64, Amounts64, Amounts64, NDArray[np.bool_]] | None = None
        """The columns as arrays, made when they are first needed."""

    def request(self, index: int, amount: int) -> bool:
        """Take over what a child requests; return whether its runtime has changed already."""
        requests = self.requests
        before = requests[index]
        requests[index] = amount
        arrays = self._arrays
        if arrays is not None:
            if amount < _LARGEST:
                arrays[1][index] = amount
            else:
                self._arrays = None
        floor = self.floors[index]
        wants = amount if (self._weights[index] > 0 if amount > floor else self._lends[index]) else floor
        all_wants = self._wants
        self.wanted += wants - all_wants[index]
        all_wants[index] = wants
        if self.fits:
            runtime = self.runtime
            if self.stale or self.wanted > self.total:
                # There may be more by the time it is shared: mostly the parent is given what its children request.
                self._changed[index] = None
                self.stale = True
                return False
            if runtime[index] == wants:
                return False
            runtime[index] = wants
            return True
        if not self.stale:
            # Below both requests it took part in each round to the end; without weight it has its floor.
            smaller = amount if amount < before else before
            self.stale = self.runtime[index] >= smaller or floor >= smaller
        return False

    def _wanted_by(self, index: int, request: int) -> int:
        floor = self.floors[index]
        if request > floor:
            return request if self._weights[index] > 0 else floor
        return request if self._lends[index] else floor

    def floor(self, index: int, amount: int) -> None:
        """Take over a child's floor."""
        if amount != self.floors[index]:
            self.floors[index] = amount
            wants = self._wanted_by(index, self.requests[index])
            self.wanted += wants - self._wants[index]
            self._wants[index] = wants
            self._arrays = None
            self.stale, self.fits = True, False

    def share(self, total: int) -> Iterable[int]:
        """Share a total; return the children whose runtime changed."""
        if self.fits and self.wanted <= total:
            self.total = total
            if not self.stale:
                return ()
            self.stale = False
            return self._give_changed()
        if not self.stale and total == self.total:
            return ()
        before = self.runtime
        self.total, self.stale = total, False
        self._changed.clear()
        self.fits = self.wanted <= total
        if self.fits:
            self.runtime = self._wants.copy()
        else:
            arrays = self._as_arrays(total) if len(before) >= MANY else None
            if arrays is not None:
                self.runtime = share_arrays(total, *arrays)[0].tolist()
            else:
                self.runtime = share_out(total, self._weights, self.requests, self.floors, self._lends)[0]
        if before == self.runtime:
            return ()
        return [index for index, (old, new) in enumerate(zip(before, self.runtime, strict=True)) if old != new]

    def _give_changed(self) -> list[int]:
        """Grant changed requests in full; return the children whose runtime changed."""
        runtime, wants, found = self.runtime, self._wants, []
        for index in sorted(self._changed):
            if runtime[index] != wants[index]:
                runtime[index] = wants[index]
                found.append(index)
        self._changed.clear()
        return found

    def _as_arrays(self, total: int) -> tuple[Amounts64, Amounts64, Amounts64, NDArray[np.bool_]] | None:
        """Return the columns as arrays; None where 64-bit integers do not hold all that is computed."""
        if self._arrays is None:
            columns = self._weights, self.requests, self.floors
            if max(map(max, columns)) >= _LARGEST:
                return None
            weights, requests, floors = (np.array(column, dtype=np.int64) for column in columns)
            self._arrays = weights, requests, floors, np.array(self._lends, dtype=np.bool_)
        largest = max(int(column.max()) for column in self._arrays[:3])
        return self._arrays if largest * len(self.floors) < _LARGEST and abs(total) < _LARGEST else None


_NO_LINES: dict[str, Line] = {}


class Family:
    """See the module. `resources`: what is shared."""

    __slots__ = (
        "_guaranteed",
        "_items",
        "_least",
        "_mins",
        "_names",
        "_odd",
        "_scale_min",
        "_scaled",
        "_scaled_for",
        "count",
        "lines",
    )

    def __init__(self, children: Sequence[QuotaNode], resources: Sequence[str], *, scale_min: bool) -> None:
        self.count = len(children)
        self._names = [child.name for child in children]
        self._mins = [_min_within_max(child) for child in children]
        self._guaranteed: list[dict[str, int]] = [{} for _ in children]
        """What capacity in use guarantees to each child."""
        self._scale_min = scale_min
        self._least: dict[str, int] = {}
        """The sums of the mins."""
        for minimum in self._mins:
            for resource, amount in minimum.items():
                self._least[resource] = self._least.get(resource, 0) + amount
        self._scaled: list[dict[str, int]] = self._mins
        self._scaled_for: dict[str, int] = {}
        """The total of the resources whose mins do not fit."""
        lends = [child.lends for child in children]
        self.lines = {
            resource: Line(
                [child.shared_weight.get(resource, 0) for child in children],
                [minimum.get(resource, 0) for minimum in self._mins],
                lends,
            )
            for resource in resources
        }
        self._items = tuple(self.lines.items())
        self._odd = not self._least.keys() <= self.lines.keys()
        """Some min is of a resource that is not shared here."""

    def refresh(self, above: Family | None, place: int, distributable: Mapping[str, int]) -> Sequence[int] | set[int]:
        """Bring everything up to date with what the parent has: what it got in its own family (`above`), at its place there,
        or, below the root, what is distributable. Returns the children of which anything changed."""
        short_of = self._odd or bool(self._scaled_for)
        stale: list[tuple[Line, int]] = []
        lines_above = above.lines if above is not None else _NO_LINES
        for resource, line in self._items:
            if above is None:
                there = distributable.get(resource, 0)
            else:
                line_above = lines_above.get(resource)
                there = line_above.runtime[place] if line_above is not None else 0
            if there < line.least:
                short_of = True
            if line.stale:
                stale.append((line, there))
            elif there != line.total:
                if line.fits and line.wanted <= there:
                    line.total = there  # all requests fit before, and still do
                else:
                    stale.append((line, there))
        if short_of and self._least and self._scale_min:
            has = distributable if above is None else above.runtime(place)
            short = {
                resource: has.get(resource, 0)
                for resource, least in self._least.items()
                if has.get(resource, 0) < least and (resource in self.lines or resource in has)
            }
            if short != self._scaled_for:
                self._scale(short)
                return self._all_shared(has)
        if not stale:
            return ()
        changed: set[int] = set()
        for line, there in stale:
            changed.update(line.share(there))
        return changed

    def _all_shared(self, has: Mapping[str, int]) -> range:
        for resource, line in self._items:
            line.share(has.get(resource, 0))
        return range(self.count)

    def _scale(self, short: dict[str, int]) -> None:
        self._scaled_for = short
        scaled = scale_mins(short, [MinOf(name=name, min=each) for name, each in zip(self._names, self._mins, strict=True)])
        self._scaled = [scaled[name] or {} for name in self._names]
        for resource, line in self.lines.items():
            pairs = zip(self._scaled, self._guaranteed, strict=True)
            for index, (minimum, held) in enumerate(pairs):
                line.floor(index, max(minimum.get(resource, 0), held.get(resource, 0)))

    def guarantee(self, index: int, resource: str, amount: int) -> None:
        """Take over what capacity in use guarantees to a child."""
        self._guaranteed[index][resource] = amount
        line = self.lines.get(resource)
        if line is not None:
            line.floor(index, max(self._scaled[index].get(resource, 0), amount))

    def scaled_min(self, index: int) -> dict[str, int]:
        """Return a child's min, scaled to what the parent has."""
        return self._scaled[index]

    def runtime(self, index: int) -> dict[str, int]:
        """Return what a child gets, in the resources that are shared."""
        return {resource: line.runtime[index] for resource, line in self.lines.items()}

    def has(self, index: int, resource: str) -> int:
        """Return what a child gets of a resource; 0 of one that is not shared."""
        line = self.lines.get(resource)
        return line.runtime[index] if line is not None else 0


def _min_within_max(quota: QuotaNode) -> dict[str, int]:
    # Admission refuses a min above max; one from another writer must not raise the runtime above max.
    return {resource: min(amount, quota.max.get(resource, amount)) for resource, amount in quota.min.items()}

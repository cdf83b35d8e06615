"""The children of one quota: the share of each in what the parent has.

In: the children, in the order of their names; what they request (limited by max), guarantee, and what the parent has, by
resource. Out: scaled min and runtime of each child. The children's mins are scaled to what the parent has, then each resource
is shared among them by weight (`scale_min`, `line`).

What one child gets is computed when somebody asks for it; `changed` brings all of them up to date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.domain.quota.sums import QuotaNode
from cotenant.domain.quota.trees.line import Line
from cotenant.domain.quota.trees.scale_min import MinOf, scale_mins


class Family:
    """See the module. `resources`: what is shared."""

    __slots__ = (
        "_guaranteed",
        "_items",
        "_least",
        "_mins",
        "_names",
        "_odd",
        "_rescaled",
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
        self._least: dict[str, int] = {}
        """The sums of the mins."""
        for minimum in self._mins:
            for resource, amount in minimum.items():
                self._least[resource] = self._least.get(resource, 0) + amount
        self._scale_min = scale_min and bool(self._least)
        self._scaled: list[dict[str, int]] = self._mins
        self._scaled_for: dict[str, int] = {}
        """The total of the resources whose mins do not fit."""
        self._rescaled = False
        """The mins were scaled since `changed` was last called."""
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

    def of(self, index: int, has: Mapping[str, int]) -> dict[str, int]:
        """Return what a child gets of what the parent has, in the resources that are shared."""
        gets: dict[str, int] = {}
        short = self._odd or bool(self._scaled_for)
        for resource, line in self._items:
            there = has.get(resource, 0)
            if there < line.least:
                short = True
            gets[resource] = line.of(index, there)
        if short and self._scale(has):
            return {resource: line.of(index, has.get(resource, 0)) for resource, line in self._items}
        return gets

    def changed(self, has: Mapping[str, int]) -> set[int]:
        """Bring everything up to date with what the parent has; return the children of which anything changed since the last
        call."""
        self._scale(has)
        found: set[int] = set()
        for resource, line in self._items:
            found.update(line.changed(has.get(resource, 0)))
        if self._rescaled:
            self._rescaled = False
            found.update(range(self.count))
        return found

    def _scale(self, has: Mapping[str, int]) -> bool:
        """Scale the mins to what the parent has; return whether any may have changed."""
        if not self._scale_min:
            return False
        short = {
            resource: has.get(resource, 0)
            for resource, least in self._least.items()
            if has.get(resource, 0) < least and (resource in self.lines or resource in has)
        }
        if short == self._scaled_for:
            return False
        self._scaled_for, self._rescaled = short, True
        scaled = scale_mins(short, [MinOf(name=name, min=each) for name, each in zip(self._names, self._mins, strict=True)])
        self._scaled = [scaled[name] or {} for name in self._names]
        for resource, line in self._items:
            pairs = zip(self._scaled, self._guaranteed, strict=True)
            for index, (minimum, held) in enumerate(pairs):
                line.floor(index, max(minimum.get(resource, 0), held.get(resource, 0)))
        return True

    def guarantee(self, index: int, resource: str, amount: int) -> None:
        """Take over what capacity in use guarantees to a child."""
        self._guaranteed[index][resource] = amount
        line = self.lines.get(resource)
        if line is not None:
            line.floor(index, max(self._scaled[index].get(resource, 0), amount))

    def scaled_min(self, index: int) -> dict[str, int]:
        """Return a child's min, scaled to what the parent had when it was last looked at."""
        return self._scaled[index]


def _min_within_max(quota: QuotaNode) -> dict[str, int]:
    # Admission refuses a min above max; one from another writer must not raise the runtime above max.
    return {resource: min(amount, quota.max.get(resource, amount)) for resource, amount in quota.min.items()}

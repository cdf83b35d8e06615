"""The control groups of a simulated machine, sorted.

In: groups as they are made and removed. Out: which there are, parents before children.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable


class SimulatedGroups:
    """Bound: the groups of the pods that are there."""

    def __init__(self, groups: Iterable[str]) -> None:
        self._there = set(groups)
        self._sorted = sorted(self._there)
        self._shown: tuple[str, ...] | None = None
        self.removals = 0
        """How often groups were removed so far."""

    def __contains__(self, group: object) -> bool:
        return group in self._there

    def add(self, group: str) -> bool:
        """Make a group; False where there is one of that name."""
        if group in self._there:
            return False
        self._there.add(group)
        insort(self._sorted, group)
        self._shown = None
        return True

    def remove(self, top: str) -> None:
        """Remove a group and all below it."""
        below = f"{top}/"
        gone = [group for group in self._sorted if group == top or group.startswith(below)]
        if gone:
            self.removals += 1
            self._there.difference_update(gone)
            self._sorted = [group for group in self._sorted if group in self._there]
            self._shown = None

    def shown(self) -> tuple[str, ...]:
        """All of them; the same object as long as they are the same."""
        if self._shown is None:
            self._shown = tuple(self._sorted)
        return self._shown

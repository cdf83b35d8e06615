"""The control groups of a simulated machine.

In: groups as they are made and removed. Out: which there are.
"""

from __future__ import annotations

from collections.abc import Iterable


class SimulatedGroups:
    """Bound: the groups of the pods that are there."""

    def __init__(self, groups: Iterable[str]) -> None:
        self._there = set(groups)
        self._shown: frozenset[str] | None = None
        self.removals = 0
        """How often groups were removed so far."""

    def __contains__(self, group: object) -> bool:
        return group in self._there

    def add(self, group: str) -> bool:
        """Make a group; False where there is one of that name."""
        if group in self._there:
            return False
        self._there.add(group)
        self._shown = None
        return True

    def remove(self, top: str) -> None:
        """Remove a group and all below it."""
        below = f"{top}/"
        gone = [group for group in self._there if group == top or group.startswith(below)]
        if gone:
            self.removals += 1
            self._there.difference_update(gone)
            self._shown = None

    def shown(self) -> frozenset[str]:
        """All of them; the same object as long as they are the same."""
        if self._shown is None:
            self._shown = frozenset(self._there)
        return self._shown

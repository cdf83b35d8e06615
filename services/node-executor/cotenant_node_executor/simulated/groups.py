"""The control groups of a simulated machine.

In: groups created and removed. Out: the existing groups.
"""

from __future__ import annotations

from collections.abc import Iterable


class SimulatedGroups:
    """A set of groups. Bound: the groups of present pods."""

    def __init__(self, groups: Iterable[str]) -> None:
        self._present = set(groups)
        self._shown: frozenset[str] | None = None
        self.removals = 0
        """Number of removals so far."""

    def __contains__(self, group: object) -> bool:
        return group in self._present

    def add(self, group: str) -> bool:
        """Create a group; False if it exists."""
        if group in self._present:
            return False
        self._present.add(group)
        self._shown = None
        return True

    def remove(self, top: str) -> None:
        """Remove a group and all below it."""
        below = f"{top}/"
        gone = [group for group in self._present if group == top or group.startswith(below)]
        if gone:
            self.removals += 1
            self._present.difference_update(gone)
            self._shown = None

    def shown(self) -> frozenset[str]:
        """All groups; the same object until they change."""
        if self._shown is None:
            self._shown = frozenset(self._present)
        return self._shown

"""Priority classes: what number a class name stands for.

In: the PriorityClass objects. Out: the value of a pod that names a class, or none (then the default class, else 0).
Source: Kubernetes priority admission; two classes are always there.
"""

from __future__ import annotations

SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that Kubernetes always has."""


class PriorityValues:
    """PriorityClass objects by name, with the one that is the default."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, bool]] = {}

    def set(self, name: str, value: int, is_default: bool) -> bool:
        """Take over a class; tell whether that changed anything."""
        changed = self._values.get(name) != (value, is_default)
        self._values[name] = (value, is_default)
        return changed

    def drop(self, name: str) -> bool:
        """Forget a class; tell whether it was there."""
        return self._values.pop(name, None) is not None

    def value_of(self, name: str) -> int:
        """The value of the named class, or of the default class (the highest, if there are several), or 0."""
        if name:
            return self._values.get(name, (SYSTEM_CLASSES.get(name, 0), False))[0]
        return max((value for value, is_default in self._values.values() if is_default), default=0)

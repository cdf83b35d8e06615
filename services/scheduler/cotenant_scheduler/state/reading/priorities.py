"""Priority classes: the value of a class, and whether its pods preempt others.

In: the PriorityClass objects. Out: the value and the preemption policy of a pod that names a class, or none (then the
default class, else 0 and preempting). Source: Kubernetes priority admission; two classes are always there.
"""

from __future__ import annotations

from cotenant.api.objects.policies import PriorityClassObject

PREEMPT_NEVER = "Never"
"""The preemption policy of pods that do not preempt."""
PREEMPT_LOWER = "PreemptLowerPriority"

SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that Kubernetes always has."""


class PriorityValues:
    """PriorityClass objects by name, with the one that is the default."""

    def __init__(self) -> None:
        self._classes: dict[str, PriorityClassObject] = {}
        self.version = object()
        """Changes with every change of a class; no two sets of classes share a value."""

    def set(self, name: str, found: PriorityClassObject) -> bool:
        """Take over a class; return whether that changed anything."""
        known = self._classes.get(name)
        self._classes[name] = found
        return self._changes(known is None or _meaning(known) != _meaning(found))

    def drop(self, name: str) -> bool:
        """Remove a class; return whether it was there."""
        return self._changes(self._classes.pop(name, None) is not None)

    def _changes(self, changed: bool) -> bool:
        if changed:
            self.version = object()
        return changed

    def of(self, name: str) -> tuple[int, bool]:
        """The value of the named class and whether its pods preempt; without a name, of the default class (the highest, if
        there are several)."""
        if name:
            found = self._classes.get(name)
        else:
            defaults = [entry for entry in self._classes.values() if entry.global_default]
            found = max(defaults, key=lambda entry: (entry.value, entry.preemption_policy != PREEMPT_NEVER), default=None)
        if found is None:
            return SYSTEM_CLASSES.get(name, 0), True
        return found.value, found.preemption_policy != PREEMPT_NEVER


def preempts(label: str | None, default: str, of_spec: bool) -> bool:
    """Return whether a pod has others end: by its label if that is a policy, else by the default where one is set, else as its
    spec or its class says. Source: Koordinator's PreemptionPolicyTransformer."""
    policy = label if label in (PREEMPT_NEVER, PREEMPT_LOWER) else default
    return policy != PREEMPT_NEVER if policy else of_spec


def _meaning(found: PriorityClassObject) -> tuple[int, bool, str]:
    return found.value, found.global_default, found.preemption_policy

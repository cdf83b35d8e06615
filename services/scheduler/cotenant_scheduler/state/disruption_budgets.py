"""Disruption budgets: which pods cannot end without violating one.

In: the PodDisruptionBudget objects, whose status the gateway keeps current. Out: for pods in an order, which of them violate a
budget if all of them end.

The rule: each pod takes one disruption from every budget of its namespace whose selector selects it, unless the budget's status
already lists it as disrupted. A pod violates a budget that has no disruption left. A pod without labels, and a budget without a
selector, match nothing. Source: kube-scheduler's default preemption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cotenant.api.objects.selectors import selector_holds
from cotenant.domain.disruption_budgets import DisruptionBudget, decode_budget


class DisruptionBudgets:
    """Budgets by namespace and name."""

    def __init__(self) -> None:
        self.version = 0
        """Incremented whenever a result may have changed."""
        self._budgets: dict[str, dict[str, DisruptionBudget]] = {}

    def __bool__(self) -> bool:
        return any(self._budgets.values())

    def set(self, namespace: str, name: str, document: msgspec.Raw) -> None:
        """Take over a budget. Raises msgspec.DecodeError; the budget then covers no pod."""
        self.drop(namespace, name)
        self._budgets.setdefault(namespace, {})[name] = decode_budget(document)

    def drop(self, namespace: str, name: str) -> None:
        """Forget a budget."""
        self.version += 1
        self._budgets.get(namespace, {}).pop(name, None)

    def violating(self, pods: Iterable[tuple[str, str, Mapping[str, str]]]) -> list[bool]:
        """Return for each pod (namespace, name, labels) whether ending it violates a budget, given that all before it end too.
        """
        left: dict[tuple[str, str], int] = {}
        found = []
        for namespace, pod, labels in pods:
            violates = False
            for name, budget in self._budgets.get(namespace, {}).items():
                if not _covers(budget, pod, labels):
                    continue
                now = left[namespace, name] = left.get((namespace, name), budget.status.disruptions_allowed) - 1
                violates = violates or now < 0
            found.append(violates)
        return found


def _covers(budget: DisruptionBudget, pod: str, labels: Mapping[str, str]) -> bool:
    selector = budget.selector
    if selector is None or not labels or pod in budget.status.disrupted_pods:
        return False
    return bool(selector.match_labels or selector.match_expressions) and selector_holds(selector, labels)

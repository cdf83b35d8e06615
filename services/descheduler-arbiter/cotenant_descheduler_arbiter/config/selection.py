"""Label selectors of the configuration: can they be evaluated, and what do they select.

In: LabelSelector, a label map. Out: yes or no; an operator that does not exist is a SelectorError. No selector selects
everything. Source: Kubernetes label selectors.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.selectors import selector_holds

_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})


class SelectorError(ValueError):
    """The selector holds an expression that means nothing; the text says which."""


def check_selector(selector: LabelSelector) -> None:
    """Raise SelectorError if the selector cannot be evaluated."""
    for expression in selector.match_expressions:
        if expression.operator not in _OPERATORS:
            raise SelectorError(
                f"operator {expression.operator!r} of label {expression.key!r} is not one of {', '.join(sorted(_OPERATORS))}"
            )
        if expression.operator in ("In", "NotIn") and not expression.values:
            raise SelectorError(f"operator {expression.operator} of label {expression.key!r} needs values")


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether the selector selects the labels; no selector selects everything. Raises SelectorError."""
    if selector is None:
        return True
    check_selector(selector)
    return selector_holds(selector, labels)

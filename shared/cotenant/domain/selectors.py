"""Label selectors of configurations and objects: can they be evaluated, and what do they select.

In: a LabelSelector and a label map. Out: whether it selects, a predicate, or a SelectorError that says which expression is
malformed: an operator other than In, NotIn, Exists and DoesNotExist; In or NotIn without values; Exists or DoesNotExist with
values. An empty selector selects everything. What an absent one selects depends on the field, so each caller states it.

Source: Kubernetes label selectors (`LabelSelectorAsSelector`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.selectors import selector_holds

_WITH_VALUES = ("In", "NotIn")
_WITHOUT_VALUES = ("Exists", "DoesNotExist")
_OPERATORS = ", ".join(sorted((*_WITH_VALUES, *_WITHOUT_VALUES)))

Predicate = Callable[[Mapping[str, str]], bool]
"""Whether a label map is selected."""


class SelectorError(ValueError):
    """The selector cannot be evaluated; the text says which expression and why."""


def check_selector(selector: LabelSelector) -> None:
    """Raise SelectorError if the selector cannot be evaluated."""
    for expression in selector.match_expressions:
        operator, named = expression.operator, f"of label {expression.key!r}"
        if operator in _WITH_VALUES:
            if not expression.values:
                raise SelectorError(f"operator {operator} {named} needs values")
        elif operator not in _WITHOUT_VALUES:
            raise SelectorError(f"operator {operator!r} {named} is not one of {_OPERATORS}")
        elif expression.values:
            raise SelectorError(f"operator {operator} {named} takes no values")


def selects(selector: LabelSelector | None, labels: Mapping[str, str], *, absent: bool) -> bool:
    """Return whether the selector selects the labels; `absent` where there is no selector. Raises SelectorError."""
    if selector is None:
        return absent
    check_selector(selector)
    return selector_holds(selector, labels)


def selects_if_valid(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether the selector selects the labels; an absent or malformed one selects nothing."""
    try:
        return selects(selector, labels, absent=False)
    except SelectorError:
        return False


def predicate(selector: LabelSelector | None, *, absent: bool) -> Predicate:
    """Return the selector's test, checked once; `absent` for all labels where there is no selector. Raises SelectorError."""
    if selector is None:
        return lambda _labels: absent
    check_selector(selector)
    return lambda labels: selector_holds(selector, labels)

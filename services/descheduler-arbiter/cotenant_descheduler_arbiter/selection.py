"""Label selectors and node affinity: does a set of labels satisfy an expression.

In: LabelSelector, node selector terms, a label map. Out: yes or no; an operator that does not exist is a SelectorError.
A missing key satisfies NotIn and DoesNotExist. An empty LabelSelector selects everything; a node selector term without
expressions selects nothing, and so does a list without terms. Fields of a term know `metadata.name` only.

Source: Kubernetes label selectors and node affinity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.objects.metadata import LabelSelector, LabelSelectorRequirement
from cotenant.objects.pod import NodeSelectorTerm

_SELECTOR_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_NODE_OPERATORS = _SELECTOR_OPERATORS | {"Gt", "Lt"}


class SelectorError(ValueError):
    """The selector holds an expression that means nothing; the text says which."""


def check_selector(selector: LabelSelector) -> None:
    """Raise SelectorError if the selector cannot be evaluated."""
    for expression in selector.match_expressions:
        _check(expression, _SELECTOR_OPERATORS)


def _check(expression: LabelSelectorRequirement, operators: frozenset[str]) -> None:
    if expression.operator not in operators:
        raise SelectorError(
            f"operator {expression.operator!r} of label {expression.key!r} is not one of {', '.join(sorted(operators))}"
        )
    if expression.operator in ("In", "NotIn") and not expression.values:
        raise SelectorError(f"operator {expression.operator} of label {expression.key!r} needs values")


def _satisfies(expression: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return _compares(expression, value)


def _compares(expression: LabelSelectorRequirement, value: str | None) -> bool:
    if value is None or len(expression.values) != 1:
        return False
    try:
        have, bound = int(value), int(expression.values[0])
    except ValueError:
        return False
    return have > bound if expression.operator == "Gt" else have < bound


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether the selector selects the labels; no selector selects everything. Raises SelectorError."""
    if selector is None:
        return True
    check_selector(selector)
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _satisfies(expression, labels) for expression in selector.match_expressions
    )


def node_term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a node satisfies one term of a required node affinity. A term that cannot be read matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    for expression in (*term.match_expressions, *term.match_fields):
        if expression.operator not in _NODE_OPERATORS:
            return False
    return all(_satisfies(expression, labels) for expression in term.match_expressions) and all(
        expression.key == "metadata.name" and _satisfies(expression, {"metadata.name": name})
        for expression in term.match_fields
    )


def any_term_matches(terms: Sequence[NodeSelectorTerm], name: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a node satisfies some term."""
    return any(node_term_matches(term, name, labels) for term in terms)

"""Label selectors and node selector terms: whether they match a set of labels.

In: requirements, LabelSelector, node selector terms; labels and name. Out: yes or no. A missing key satisfies NotIn and
DoesNotExist. Gt and Lt compare whole numbers. An unknown operator never holds; callers that report it check it
before. An empty LabelSelector selects everything; a node selector term without expressions and fields selects nothing, and
so does a list without terms. The only field is `metadata.name`.

Source: Kubernetes label selectors and node affinity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement
from cotenant.api.objects.pod import NodeSelectorTerm

NODE_NAME_FIELD = "metadata.name"


def expression_holds(key: str, operator: str, values: Sequence[str], labels: Mapping[str, str]) -> bool:
    """Return whether one expression of a label selector holds for these labels."""
    value = labels.get(key)
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False


def requirement_holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether one expression holds for these labels; Gt and Lt, of node selectors, included."""
    if requirement.operator not in ("Gt", "Lt"):
        return expression_holds(requirement.key, requirement.operator, requirement.values, labels)
    number = _whole(labels.get(requirement.key))
    bound = _whole(requirement.values[0]) if len(requirement.values) == 1 else None
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def selector_holds(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether all labels and expressions of a selector hold."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        requirement_holds(requirement, labels) for requirement in selector.match_expressions
    )


def node_term_holds(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node selector term holds for a node."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(requirement_holds(expression, labels) for expression in term.match_expressions) and all(
        field.key == NODE_NAME_FIELD and requirement_holds(field, {NODE_NAME_FIELD: name}) for field in term.match_fields
    )


def any_node_term_holds(terms: Iterable[NodeSelectorTerm], name: str, labels: Mapping[str, str]) -> bool:
    """Return whether some node selector term holds for a node."""
    return any(node_term_holds(term, name, labels) for term in terms)


def _whole(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None

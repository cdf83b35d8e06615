"""Which node entry of a section applies to a node.

In: a label selector and a node's labels. Out: whether it selects. A missing selector selects nothing, an empty one
every node, one that is malformed (unknown operator, In without values, Exists with values) nothing. Source: Kubernetes
label selectors.
"""

from __future__ import annotations

from collections.abc import Mapping

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool | None:
    """Return whether one expression holds; None where it is malformed."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values if requirement.values else None
        case "NotIn":
            return value not in requirement.values if requirement.values else None
        case "Exists":
            return None if requirement.values else value is not None
        case "DoesNotExist":
            return None if requirement.values else value is None
        case _:
            return None


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether the selector selects a node with these labels."""
    if selector is None:
        return False
    verdicts = [_holds(requirement, labels) for requirement in selector.match_expressions]
    if None in verdicts:
        return False
    return all(verdicts) and all(labels.get(key) == value for key, value in selector.match_labels.items())

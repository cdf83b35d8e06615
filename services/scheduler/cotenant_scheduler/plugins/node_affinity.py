"""Node selector and node affinity.

Inputs: labels and name of the node; the pod's `nodeSelector`, required and preferred node affinity. Filter: every
selector label is equal, and one of the required terms holds (a term holds if all its expressions and fields do; a term
without any matches nothing). Operators: In, NotIn (true where the label is absent), Exists, DoesNotExist, Gt, Lt
(whole numbers); the only field is `metadata.name`. Score: the sum of the weights of the preferred terms that hold,
normalised to the highest. Source: kube-scheduler NodeAffinity, default weight 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cotenant.api.objects.selectors import any_node_term_holds, node_term_holds
from cotenant_scheduler.framework.plugin import Normalise, Refusal, row_count, row_numbers
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape, decoded_affinity

_ABSENT = 1
"""Code of a node that does not match."""


def matcher(shape: Shape) -> Callable[[Mapping[str, str], str], bool]:
    """Return the shape's filter as a function of labels and name."""
    selector = shape.node_selector
    affinity = decoded_affinity(shape)
    terms = affinity.required.node_selector_terms if affinity and affinity.required else None

    def matches(labels: Mapping[str, str], name: str) -> bool:
        return all(labels.get(key) == value for key, value in selector) and (
            terms is None or any_node_term_holds(terms, name, labels)
        )

    return matches


class NodeAffinityMatch:
    """Filter and score."""

    name = "NodeAffinity"
    static = True
    spanning = False
    in_columns = True
    preemptible = False
    weight = 2
    normalise = Normalise.HIGHEST
    wakes_on = ("objects.core.nodes._.*",)

    def concerns(self, shape: Shape) -> bool:
        return bool(shape.node_selector or shape.affinity)

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(row_count(rows), dtype=np.int32)
        if not shape.node_selector and not shape.affinity:
            return codes
        matches = matcher(shape)
        for index, row in enumerate(row_numbers(rows)):
            codes[index] = 0 if matches(nodes.labels[row], nodes.names[row]) else _ABSENT
        return codes

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        scores = np.zeros(row_count(rows), dtype=np.int64)
        affinity = decoded_affinity(shape)
        if affinity is None or not affinity.preferred:
            return scores
        for index, row in enumerate(row_numbers(rows)):
            name, labels = nodes.names[row], nodes.labels[row]
            scores[index] = sum(term.weight for term in affinity.preferred if node_term_holds(term.preference, name, labels))
        return scores

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        wanted = ", ".join(f"{key}={value}" for key, value in shape.node_selector)
        return Refusal(
            "node-affinity",
            "node(s) didn't match Pod's node affinity/selector",
            detail=f"node selector {wanted} does not match" if wanted else "node affinity does not match",
        )

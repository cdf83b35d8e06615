"""Node selector terms over arrays: which rows a term selects, without asking every node by itself.

In: the node table, terms. Out: a bool a row. Per label key the rows' values are numbered once; an expression is then asked
once for each distinct value, and the answers are looked up. Source of the operators: `cotenant.api.objects.selectors`.

Bounds: the keys that terms ask for; all are dropped when labels or nodes change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from cotenant.api.objects.metadata import LabelSelectorRequirement
from cotenant.api.objects.pod import NodeSelectorTerm
from cotenant.api.objects.selectors import expression_holds
from cotenant_scheduler.state.columns import BoolArray, IntArray
from cotenant_scheduler.state.nodes import NodeTable

Column = tuple[list[str], IntArray]
"""The distinct values of a label, and a row's number of one; the last number is that of rows without it."""


class LabelColumns:
    """The labels of one node table by key."""

    def __init__(self) -> None:
        self._stamp = (-1, -1)
        self._columns: dict[str, Column] = {}

    def stamp(self, nodes: NodeTable) -> tuple[int, int]:
        """Return a value that changes with labels and nodes."""
        return nodes.version, nodes.static_changes.position

    def any_term(self, nodes: NodeTable, terms: Iterable[NodeSelectorTerm]) -> BoolArray:
        """Return for each row whether one of the terms holds; a term without any requirement holds nowhere."""
        found = np.zeros(nodes.size, dtype=np.bool_)
        for term in terms:
            if not term.match_expressions and not term.match_fields:
                continue
            holds = np.ones(nodes.size, dtype=np.bool_)
            for expression in term.match_expressions:
                holds &= self._expression(nodes, expression)
            for field in term.match_fields:
                holds &= _field(nodes, field)
            found |= holds
        return found

    def where(self, nodes: NodeTable, key: str, holds: Callable[[str | None], bool]) -> BoolArray:
        """Return for each row whether something holds for its value of a label (None: it has none)."""
        values, numbers = self._column(nodes, key)
        answers = np.array([*(holds(value) for value in values), holds(None)], dtype=np.bool_)
        found: BoolArray = answers[numbers]
        return found

    def _expression(self, nodes: NodeTable, expression: LabelSelectorRequirement) -> BoolArray:
        key, operator, values = expression.key, expression.operator, expression.values
        return self.where(
            nodes, key, lambda value: expression_holds(key, operator, values, {} if value is None else {key: value})
        )

    def _column(self, nodes: NodeTable, key: str) -> Column:
        stamp = self.stamp(nodes)
        if stamp != self._stamp:
            self._stamp = stamp
            self._columns.clear()
        known = self._columns.get(key)
        if known is None:
            numbers: dict[str, int] = {}
            found = np.full(nodes.size, -1, dtype=np.int64)
            for row in range(nodes.size):
                value = nodes.labels[row].get(key)
                if value is not None:
                    found[row] = numbers.setdefault(value, len(numbers))
            found[found < 0] = len(numbers)
            known = self._columns[key] = list(numbers), found
        return known


def _field(nodes: NodeTable, field: LabelSelectorRequirement) -> BoolArray:
    """The only field is the node's name."""
    found = np.zeros(nodes.size, dtype=np.bool_)
    if field.key == "metadata.name":
        for row, name in enumerate(nodes.names):
            found[row] = expression_holds(field.key, field.operator, field.values, {field.key: name})
    return found

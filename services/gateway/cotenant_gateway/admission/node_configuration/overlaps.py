"""Which entries of a section select one node together.

In: the selectors of the entries, labels of nodes. Out: the places of the entries that select them, and a pair of entries that
select a node together, tried on nodes made from each entry's own labels and values (Koordinator's rule). An entry is looked at
only for labels that it needs: most entries name a label's values, so 256 entries of 100 host names each take milliseconds.

Bounds: MAX_SAMPLE_NODES nodes for an entry, MAX_TRIES selectors that are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import lcm

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.selectors import selector_holds

MAX_SAMPLE_NODES = 1_000
"""Sets of labels that are tried for one entry; the values of its expressions have too many combinations."""
MAX_TRIES = 500_000
"""Selectors that are checked against generated labels, for one section."""

Label = tuple[str, str]


class EntrySelectors:
    """The selectors of a section's entries, found by a label that each needs."""

    def __init__(self, selectors: Sequence[LabelSelector]) -> None:
        self._selectors = selectors
        self._by_label: dict[Label, list[int]] = {}
        self._others: list[int] = []
        for index, selector in enumerate(selectors):
            needed = _needed_labels(selector)
            if needed is None:
                self._others.append(index)
            for label in needed or ():
                self._by_label.setdefault(label, []).append(index)

    def candidates(self, labels: Mapping[str, str]) -> list[int]:
        """Return the places of the entries that may select a node with these labels."""
        return [*self._others, *(index for label in labels.items() for index in self._by_label.get(label, ()))]

    def selecting(self, labels: Mapping[str, str]) -> list[int]:
        """Return the places of the entries that select a node with these labels, ascending."""
        return sorted(index for index in self.candidates(labels) if selector_holds(self._selectors[index], labels))


def _needed_labels(selector: LabelSelector) -> Iterable[Label] | None:
    """Return labels of one key, one of which a node must have; None: nothing is known to be needed."""
    for label in selector.match_labels.items():
        return (label,)
    for expression in selector.match_expressions:
        if expression.operator == "In":
            return {(expression.key, value) for value in expression.values}
    return None


def overlap(selectors: Sequence[LabelSelector]) -> tuple[int, int] | None:
    """Return two entries that select the same node.

    The nodes tried have an entry's labels and, of each of its expressions with values, the next value in turn.
    """
    entries = EntrySelectors(selectors)
    left = MAX_TRIES
    for selector in selectors:
        for labels in _sample_nodes(selector):
            left -= 1 + len(entries.candidates(labels))
            if left < 0:
                return None
            selecting = entries.selecting(labels)
            if len(selecting) > 1:
                return selecting[0], selecting[1]
    return None


def _sample_nodes(selector: LabelSelector) -> Iterator[Mapping[str, str]]:
    expressions = [expression for expression in selector.match_expressions if expression.values]
    # The values are taken in turn, so after their least common multiple the same nodes come again.
    count = min(lcm(*(len(expression.values) for expression in expressions)), MAX_SAMPLE_NODES)
    for number in range(count):
        taken = {expression.key: expression.values[number % len(expression.values)] for expression in expressions}
        yield {**selector.match_labels, **taken}

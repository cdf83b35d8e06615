"""Results kept between decisions: one evaluation a shape, one set of static results a set of constraints.

They are caches: which of them are kept changes the cost of a decision, never the decision. Bounds: at most
EVALUATION_BYTES of evaluations and STATIC_CACHED sets of constraints; the least recently used go first.
"""

from __future__ import annotations

from collections import OrderedDict
from copy import deepcopy

from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.framework.static_results import StaticResults
from cotenant_scheduler.state.changed_columns import ChangedColumns
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

EVALUATION_BYTES = 96 << 20
STATIC_CACHED = 256


class CachedResults:
    """An LRU cache of results."""

    def __init__(self, nodes: NodeTable, profile: Profile) -> None:
        self._nodes = nodes
        self._profile = profile
        self._changed = ChangedColumns(nodes)
        self._evaluations: OrderedDict[Shape, Evaluation] = OrderedDict()
        self._evaluation_bytes = 0
        self._static: OrderedDict[tuple[object, ...], StaticResults] = OrderedDict()

    def __deepcopy__(self, memo: dict[int, object]) -> CachedResults:
        """A copy starts empty: results refer to the node table that they were computed for."""
        return CachedResults(deepcopy(self._nodes, memo), deepcopy(self._profile, memo))

    def evaluation(self, shape: Shape) -> Evaluation:
        """Return the shape's results, updated to the node table."""
        found = self._evaluations.get(shape)
        if found is None:
            found = Evaluation(self._nodes, shape, self._profile, self._static_results(shape), self._changed)
            self._evaluations[shape] = found
        else:
            self._evaluations.move_to_end(shape)
        before = found.cost_bytes
        found.refresh()
        self._evaluation_bytes += found.cost_bytes - before
        while self._evaluation_bytes > EVALUATION_BYTES and len(self._evaluations) > 1:
            _, dropped = self._evaluations.popitem(last=False)
            self._evaluation_bytes -= dropped.cost_bytes
        return found

    def _static_results(self, shape: Shape) -> StaticResults:
        key: tuple[object, ...] = (shape.node_selector, shape.affinity, shape.tolerations, shape.images)
        if shape.asks:
            key = (*key, *(shape.asks.get(name) for name in self._profile.static_readers))
        found = self._static.get(key)
        if found is None:
            found = self._static[key] = StaticResults(self._nodes, shape, self._profile)
            if len(self._static) > STATIC_CACHED:
                self._static.popitem(last=False)
        else:
            self._static.move_to_end(key)
        return found

"""The profile in force: which plugins run, in which order, with which weights. (As in kube-scheduler.)

In: the plugins in their order, the configured weights. Out: the plugins by interface. The order of filters is the order
in which a node's refusal is reported: the first one counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cotenant.events.allocations import Allocation, merged
from cotenant_scheduler.framework.plugin import Allocator, Filter, Grouping, Score, SpanningScore
from cotenant_scheduler.state.counting import PodCounter
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.pod_reader import PodReaderPlugin
from cotenant_scheduler.state.reading.shapes import Shape

CODES_PER_FILTER = 4096
"""Number of codes of one filter: those of `filters[i]` are shown to callers as `i * CODES_PER_FILTER + code`."""

NOT_DECLARED = -1
"""Code of a row without a declared node; it is not counted among the nodes."""


class Profile:
    """Plugins by interface. `weights` by name, instead of a score's default; 0 disables it."""

    def __init__(
        self,
        *,
        filters: Sequence[Filter],
        scores: Sequence[Score],
        spanning_scores: Sequence[SpanningScore] = (),
        counters: Sequence[PodCounter] = (),
        allocators: Sequence[Allocator] = (),
        readers: Sequence[PodReaderPlugin] = (),
        grouping: Grouping | None = None,
        weights: Mapping[str, int] | None = None,
    ) -> None:
        own = weights or {}
        self.filters = tuple(filters)
        self.scores = tuple(score for score in scores if own.get(score.name, score.weight))
        self.weights = tuple(own.get(score.name, score.weight) for score in self.scores)
        self.spanning_scores = tuple(
            (score, weight) for score in spanning_scores if (weight := own.get(score.name, score.weight))
        )
        self.counters = tuple(counters)
        self.allocators = tuple(allocators)
        self.readers = tuple(readers)
        self.static_readers = tuple(reader.name for reader in readers if getattr(reader, "static", False))
        """Readers whose results static filters and scores depend on."""
        self.grouping = grouping
        """Instead of gangs."""

    def allocate(self, nodes: NodeTable, shape: Shape, row: int) -> Allocation | None:
        """Return the units assigned to a pod of the shape on a row; None if it gets no units with identity."""
        if not self.allocators or not shape.asks:
            return None
        found = (allocator.allocate(nodes, shape, row) for allocator in self.allocators)
        return merged([fragment for fragment in found if fragment is not None])

"""The evictor: pods that strategies evict.

In: evictions as strategies order them, placements as they are folded. Out: the eviction of a pod while it is placed, which its
lifecycle carries out (`pod_lifecycle`). An order for a pod that is not placed, is terminating, has ended, or is already being
evicted is ignored, so a strategy may repeat it every cycle. Evictions do not survive a restart: the strategy must order an
unfinished one again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cotenant.events.placements import PlacementPhase
from cotenant.events.runs import RunStatus
from cotenant_node_executor.core.placed import Key
from cotenant_node_executor.core.placed_pods import PlacedPods
from cotenant_node_executor.strategies.strategy import Evict


class Evictions:
    """Bound: the placed pods."""

    def __init__(self) -> None:
        self._of_uid: dict[str, Evict] = {}

    def of(self, uid: str) -> Evict | None:
        """The eviction of a pod."""
        return self._of_uid.get(uid)

    def begin(
        self, ordered: Iterable[tuple[str, Evict]], pods: PlacedPods, last: Mapping[str, RunStatus]
    ) -> tuple[tuple[Key, str, Evict], ...]:
        """Begin the new evictions, and return each with its pod's name and strategy. `last`: the last reports by uid."""
        begun: list[tuple[Key, str, Evict]] = []
        for strategy, order in ordered:
            placed, report = pods.of_uid(order.uid), last.get(order.uid)
            if placed is None or placed.refusal or placed.placement.phase is PlacementPhase.TERMINATING:
                continue
            if order.uid in self._of_uid or (report is not None and report.phase.terminal):
                continue
            self._of_uid[order.uid] = order
            begun.append(((placed.placement.namespace, placed.placement.name), strategy, order))
        return tuple(begun)

    def forget(self, uid: str) -> None:
        """The pod is no longer placed."""
        self._of_uid.pop(uid, None)

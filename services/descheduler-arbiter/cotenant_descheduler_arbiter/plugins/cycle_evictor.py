"""The evictor of a cycle: the rules of eviction over one state, the limits of the cycle, and the results.

In: why a pod may not be evicted (the filter of evictable pods, the budgets), the counts of the cycle, the nodes. Out: evicted
pods, in order, and those that a plugin chose and that stay, at most MAX_KEPT of them with the reason.

With `node_fit` a pod is evicted only if another node of the list takes it. A cycle evicts at most MAX_EVICTIONS pods: jobs are
one batch with the record of the cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from cotenant_descheduler_arbiter.eviction.cycle_limits import CycleCounts
from cotenant_descheduler_arbiter.eviction.fit import misfit
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts

MAX_KEPT = 10
MAX_EVICTIONS = 500


class Evicted(msgspec.Struct, frozen=True):
    """A pod to evict, the plugin, and the reason."""

    pod: PodFacts
    plugin: str
    reason: str


class RefusedEviction(msgspec.Struct, frozen=True):
    """A pod that a plugin chose and that stays."""

    pod: PodFacts
    plugin: str
    reason: str


class CycleEvictor:
    """See the module; implements `plugins.view.Evictor` for the plugin that is named."""

    def __init__(
        self,
        why_not: Callable[[PodFacts], str | None],
        counts: CycleCounts,
        nodes: Sequence[NodeFacts],
        *,
        node_fit: bool,
        count_evicted: Callable[[PodFacts], None] = lambda _: None,
        most: int = MAX_EVICTIONS,
        dry_run: bool = False,
    ) -> None:
        """`count_evicted` is called for each evicted pod, before the next one is chosen; at most `most` are evicted."""
        self._most = most
        self._dry_run = dry_run
        self.plugin = ""
        self.evicted: list[Evicted] = []
        self.kept: list[RefusedEviction] = []
        self.kept_count = 0
        self._why_not = why_not
        self._counts = counts
        self._nodes = nodes
        self._node_fit = node_fit
        self._count_evicted = count_evicted
        self._going: set[str] = set()

    @property
    def jobs(self) -> Sequence[Evicted]:
        """The pods that get a job: none in a dry run, which counts them all the same."""
        return () if self._dry_run else self.evicted

    def why_not(self, pod: PodFacts) -> str | None:
        """Return why the pod stays, or None."""
        return "it goes already" if pod.key in self._going else self._why_not(pod)

    def why_not_elsewhere(self, pod: PodFacts) -> str | None:
        """Return why no other node takes the pod, or None; None too without `node_fit`."""
        if not self._node_fit:
            return None
        first = None
        for node in self._nodes:
            if node.name == pod.node:
                continue
            reason = misfit(pod, node)
            if reason is None:
                return None
            first = first or f"{node.name}: {reason}"
        return f"no other node takes it ({first or 'there is none'})"

    def evict(self, pod: PodFacts, reason: str) -> bool:
        """Evict the pod. Returns False if it stays."""
        if pod.key in self._going:
            return False
        if len(self.evicted) >= self._most:
            return self._keep(pod, f"this cycle has reached {self._most} evictions, the most of any cycle")
        refusal = self._counts.refusal(pod.node, pod.namespace) or self._why_not(pod)
        if refusal is not None:
            return self._keep(pod, refusal)
        self._counts.count(pod.node, pod.namespace)
        self._going.add(pod.key)
        self._count_evicted(pod)
        self.evicted.append(Evicted(pod, self.plugin, reason))
        return True

    def node_full(self, node: str) -> bool:
        """Whether the node has no eviction left in this cycle."""
        return self._counts.node_full(node)

    def _keep(self, pod: PodFacts, reason: str) -> bool:
        self.kept_count += 1
        if len(self.kept) < MAX_KEPT:
            self.kept.append(RefusedEviction(pod, self.plugin, reason))
        return False

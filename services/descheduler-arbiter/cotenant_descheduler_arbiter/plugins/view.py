"""The interface of plugins: the nodes and pods of a cycle, and whether a pod may be evicted.

`ClusterView` has the profile's nodes (ready and selected) by name, and the pods of every node by `namespace/name`. `Evictor`
holds the rules that all plugins share: `why_not` is the filter of evictable pods with the budgets of migrating pods,
`why_not_elsewhere` whether another node takes the pod (only with `nodeFit`), `evict` evicts within the limits of the cycle.

Source: kubernetes-sigs descheduler framework (handle, evictor filter, pre-eviction filter).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Protocol

import msgspec

from cotenant.domain.selectors import selects
from cotenant_descheduler_arbiter.config.plugin_args import CandidateArgs
from cotenant_descheduler_arbiter.eviction.evictable import namespace_refusal
from cotenant_descheduler_arbiter.eviction.order import creation_seconds
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts

Chosen = Callable[[PodFacts], bool]
"""Whether a plugin considers a pod."""


class ClusterView(msgspec.Struct, frozen=True):
    """The state at the beginning of a cycle."""

    nodes: tuple[NodeFacts, ...]
    pods: Mapping[str, tuple[PodFacts, ...]]
    """By node, those that have ended included."""
    now: datetime

    def all_on(self, node: str) -> tuple[PodFacts, ...]:
        """Return the pods of a node."""
        return self.pods.get(node, ())

    def active_on(self, node: str) -> tuple[PodFacts, ...]:
        """Return the pods of a node that have not ended."""
        return tuple(pod for pod in self.all_on(node) if not pod.ended)

    def age_seconds(self, pod: PodFacts) -> int:
        """Return a pod's age in whole seconds; 0 if it was created in the future (its clock is ahead)."""
        created = creation_seconds(pod.pod.metadata.creation_timestamp)
        return max(int(self.now.timestamp()) - created, 0)


class Evictor(Protocol):
    """The rules of eviction, the same for all plugins."""

    def why_not(self, pod: PodFacts) -> str | None:
        """Return why the pod stays, or None."""

    def why_not_elsewhere(self, pod: PodFacts) -> str | None:
        """Return why no other node takes the pod, or None; None too without `nodeFit`."""

    def evict(self, pod: PodFacts, reason: str) -> bool:
        """Evict the pod. Returns False if it stays."""

    def node_full(self, node: str) -> bool:
        """Whether the node has no eviction left in this cycle."""


def chosen_by(args: CandidateArgs) -> Chosen:
    """Return the test of namespaces and labels."""
    rule, selector = args.namespaces, args.label_selector

    def chosen(pod: PodFacts) -> bool:
        if rule is not None and namespace_refusal(rule, pod.namespace) is not None:
            return False
        return selects(selector, pod.pod.metadata.labels, absent=True)

    return chosen


def may_go(evictor: Evictor, pod: PodFacts) -> bool:
    """Whether both filters allow the eviction."""
    return evictor.why_not(pod) is None and evictor.why_not_elsewhere(pod) is None


def evict_on(evictor: Evictor, node: str, wanted: Iterator[tuple[PodFacts, str]]) -> None:
    """Evict the (pod, reason) of a node in turn, until its limit is reached."""
    for pod, reason in wanted:
        evictor.evict(pod, reason)
        if evictor.node_full(node):
            return

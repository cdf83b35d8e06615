"""Views of nodes for the rules: `cotenant.domain.node` over this service's fold, with the requests of their pods.

A node without a condition is ready. A node with an unreadable object has no pod slots, so it takes no pods.
"""

from __future__ import annotations

from cotenant.api.objects.metadata import LabelSelector
from cotenant.domain.node import NodeSources
from cotenant.domain.selectors import selects
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.quantities import QuantityError
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.measuring import add_amounts

_UNREADABLE = {RESOURCE_PODS: 0}


def node_names(fold: ClusterFold) -> list[str]:
    """Return the names of all nodes with an object, sorted."""
    return sorted(fold.nodes)


def is_ready(fold: ClusterFold, node: str) -> bool:
    """Whether the node is ready."""
    condition = fold.conditions.get(node)
    return condition is None or condition.value.ready


def cycle_nodes(fold: ClusterFold, selector: LabelSelector | None) -> list[str]:
    """Return the nodes that take part in a cycle, by name: ready and selected."""
    return [
        node
        for node in node_names(fold)
        if is_ready(fold, node) and selects(selector, node_labels(fold, node), absent=True)
    ]


def node_sources(fold: ClusterFold, node: str) -> NodeSources:
    """Return the node's sources from the fold."""
    known, executor = fold.nodes.get(node), fold.executors.get(node)
    resources, condition = fold.resources.get(node), fold.conditions.get(node)
    return NodeSources(
        known.value if known is not None else None,
        executor.value if executor is not None else None,
        resources.value if resources is not None else None,
        condition.value if condition is not None else None,
    )


def node_labels(fold: ClusterFold, node: str) -> dict[str, str]:
    """Return the node's labels."""
    return node_sources(fold, node).labels()


def _amounts(sources: NodeSources) -> tuple[dict[str, int], dict[str, int]]:
    """Return the node's allocatable and its raw amounts; no pod slots and none if its quantities are unreadable."""
    try:
        return sources.allocatable(), sources.raw_allocatable()
    except QuantityError:
        # The gateway refuses such an object; a node stored by another writer with malformed quantities takes no pods.
        return dict(_UNREADABLE), {}


def capacity_for_load(fold: ClusterFold, node: str) -> dict[str, int]:
    """Return the amounts of which load percentages are taken."""
    allocatable, raw = _amounts(node_sources(fold, node))
    return {**allocatable, **raw}


def node_facts(fold: ClusterFold, node: str, pods: list[PodFacts]) -> NodeFacts:
    """Return the node as a target, given its pods that have not ended."""
    sources = node_sources(fold, node)
    allocatable, raw = _amounts(sources)
    return NodeFacts(
        name=node,
        labels=sources.labels(),
        taints=sources.taints(),
        unschedulable=sources.unschedulable(),
        allocatable=allocatable,
        requested=add_amounts(*(pod.requests for pod in pods)),
        pod_count=len(pods),
        raw_allocatable=raw,
    )

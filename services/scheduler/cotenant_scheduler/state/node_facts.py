"""The state of the nodes, folded from their object, executor, resources, condition and metrics.

Out: a `NodeDescription` for the node table, a `NodeReport` for its load columns, and the references that a placement names as
causes. Allocatable, labels and taints are those of `cotenant.domain.node`. A node is declared by its object; other messages
about it are kept until the object arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter

from cotenant.api.objects.node import Node
from cotenant.domain.node import NodeSources
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus
from cotenant.model.bounds import saturated
from cotenant.model.names import CPU, MEMORY
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs, thresholds_of
from cotenant_scheduler.state.load.load_estimate import MICROSECONDS, NodeReport, ReportedPod, Vector, microseconds
from cotenant_scheduler.state.nodes import NodeDescription
from cotenant_scheduler.state.reading.pod_needs import image_name

_PERCENTILES = ("p50", "p90", "p95", "p99", "avg")
_NO_USAGE = Usage()


class NodeMessages:
    """All messages about one node, each with its sequence (0: none yet)."""

    __slots__ = (
        "_causes",
        "condition",
        "executor",
        "metric",
        "name",
        "node",
        "resources",
        "sequences",
        "terminating",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.terminating = False
        self.executor: ExecutorStatus | None = None
        self.resources: NodeResources | None = None
        self.condition: NodeCondition | None = None
        self.metric: NodeMetricComputed | None = None
        self.sequences: dict[str, int] = {}
        self._causes: tuple[str, ...] | None = None

    @property
    def causes(self) -> tuple[str, ...]:
        """The messages that the node's state follows from, in a stated order."""
        if self._causes is None:
            self._causes = tuple(
                f"LOG:{self.sequences[part]}"
                for part in ("object", "executor", "resources", "condition", "metric")
                if part in self.sequences
            )
        return self._causes

    def changing(self) -> None:
        """Invalidate the causes before the sequences change."""
        self._causes = None

    @property
    def empty(self) -> bool:
        """Whether no message about the node is left."""
        return not self.sequences


def sources_of(facts: NodeMessages) -> NodeSources:
    """Return what a node's allocatable, labels and taints follow from."""
    return NodeSources(facts.node, facts.executor, facts.resources, facts.condition)


def describe(facts: NodeMessages, args: LoadAwareArgs) -> NodeDescription | None:
    """Return the node as the scheduler sees it; None while it has no object. Raises QuantityError."""
    node = facts.node
    if node is None:
        return None
    sources = sources_of(facts)
    allocatable = sources.allocatable()
    return NodeDescription(
        name=facts.name,
        allocatable=allocatable,
        capacity_for_load=sources.capacity_for_load(allocatable),
        labels=sources.labels(),
        taints=sources.taints(),
        unschedulable=sources.unschedulable(),
        thresholds=thresholds_of(args, node.metadata.annotations),
        images={image_name(name): saturated(image.size_bytes) for image in node.status.images for name in image.names},
    )


@lru_cache(maxsize=16)
def vector_of(resources: tuple[str, ...]) -> Callable[[Usage], Vector]:
    """Return the function that gives a usage as one integer per tracked resource, 0 where it is not measured."""
    fields = {CPU: "cpu_milli", MEMORY: "memory_bytes"}
    if len(resources) > 1 and fields.keys() >= set(resources):
        return attrgetter(*(fields[resource] for resource in resources))
    return lambda usage: tuple(getattr(usage, fields[resource]) if resource in fields else 0 for resource in resources)


def report_of(metric: NodeMetricComputed, resources: tuple[str, ...]) -> NodeReport:
    """Return a node's metric as load-aware scheduling reads it; usages that are all zero count as not reported."""
    vector = vector_of(resources)
    aggregated = []
    for window in metric.aggregated_node_usages:
        for kind in _PERCENTILES:
            usage: Usage = getattr(window, kind)
            if usage != _NO_USAGE:
                aggregated.append(((kind, window.duration_seconds), vector(usage)))
    return NodeReport(
        update_us=microseconds(metric.update_time) if metric.update_time is not None else None,
        interval_us=metric.report_interval_seconds * MICROSECONDS,
        usage=vector(metric.node_usage) if metric.update_time is not None else None,
        system=vector(metric.system_usage),
        aggregated=tuple(aggregated),
        pods={
            (pod.namespace, pod.name): ReportedPod(vector(usage), pod.priority)
            for pod in metric.pods
            if (usage := pod.usage) != _NO_USAGE
        },
    )

"""What is known of the nodes, folded from their object, executor, resources, condition and metrics.

Out: a `NodeDescription` for the node table, a `NodeReport` for its load columns, and the references that a placement
names as causes. The rules:

    allocatable = the object's (its capacity where it has none; 110 pods where it does not say), overlaid by the executor's
                  report, overlaid by batch and mid resources of the resource calculator; less the node's reservation
    labels      = the executor's, overlaid by the object's;  taints = the object's, the executor's, the condition's
    load is judged on allocatable with `node.koordinator.sh/raw-allocatable` in its place where that is given
A node is declared by its object; everything else waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from operator import attrgetter

import msgspec

from cotenant.api.objects.node import Node, Taint
from cotenant.domain.reservation import parse_reservation, trim_allocatable
from cotenant.events.conditions import NodeCondition
from cotenant.events.metrics import NodeMetricComputed, Usage
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY, MID_CPU, MID_MEMORY, PODS
from cotenant.model.quantities import QuantityError, Scalar, resource_amount
from cotenant.model.tiers import RENAMED_RESOURCES
from cotenant_scheduler.state.load_aware_args import LoadAwareArgs, thresholds_of
from cotenant_scheduler.state.load_estimate import MICROSECONDS, NodeReport, ReportedPod, Vector, microseconds
from cotenant_scheduler.state.nodes import NodeDescription
from cotenant_scheduler.state.pod_needs import image_name

ANNOTATION_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"

DEFAULT_PODS = 110
"""Pods on a node that does not say how many it takes (the kubelet's default)."""

_QUANTITIES = msgspec.json.Decoder(dict[str, Scalar])
_PERCENTILES = ("p50", "p90", "p95", "p99", "avg")
_NO_USAGE = Usage()


class NodeFacts:
    """Everything said about one node, each with the sequence of its message (0: never said)."""

    __slots__ = (
        "_causes",
        "condition",
        "executor",
        "metric",
        "name",
        "node",
        "object_error",
        "resources",
        "sequences",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.object_error = ""
        self.executor: ExecutorStatus | None = None
        self.resources: NodeResources | None = None
        self.condition: NodeCondition | None = None
        self.metric: NodeMetricComputed | None = None
        self.sequences: dict[str, int] = {}
        self._causes: tuple[str, ...] | None = None

    @property
    def causes(self) -> tuple[str, ...]:
        """The messages that the node's state rests on, in a stated order."""
        if self._causes is None:
            self._causes = tuple(
                f"LOG:{self.sequences[part]}"
                for part in ("object", "executor", "resources", "condition", "metric")
                if part in self.sequences
            )
        return self._causes

    def changing(self) -> None:
        """The sequences are about to change."""
        self._causes = None

    @property
    def empty(self) -> bool:
        """Nothing is known any more."""
        return not self.sequences


def estimate_node_allocatable(
    allocatable: Mapping[str, Scalar], annotations: Mapping[str, str]
) -> Mapping[str, Scalar]:
    """Return allocatable with the raw (not amplified) values of the annotation in place; a bad one counts as none."""
    text = annotations.get(ANNOTATION_RAW_ALLOCATABLE)
    if not text:
        return allocatable
    try:
        raw = _QUANTITIES.decode(text)
        for name, quantity in raw.items():
            resource_amount(name, quantity)
    except (msgspec.DecodeError, QuantityError):
        return allocatable
    return {**allocatable, **raw}


def describe(facts: NodeFacts, args: LoadAwareArgs) -> NodeDescription | None:
    """Return the node as the scheduler sees it; None while it has no object. Raises QuantityError."""
    node = facts.node
    if node is None:
        return None
    declared = node.status.allocatable or node.status.capacity
    offered = {name: resource_amount(name, quantity) for name, quantity in declared.items()}
    if facts.executor is not None:
        offered.update(facts.executor.allocatable)
    for old, new in RENAMED_RESOURCES.items():
        if old in offered:
            offered.setdefault(new, offered[old])
    offered.setdefault(PODS, DEFAULT_PODS)
    if facts.resources is not None:
        offered[BATCH_CPU] = facts.resources.batch_cpu_milli
        offered[BATCH_MEMORY] = facts.resources.batch_memory_bytes
        offered[MID_CPU] = facts.resources.mid_cpu_milli
        offered[MID_MEMORY] = facts.resources.mid_memory_bytes
    annotations = node.metadata.annotations
    allocatable, _ = trim_allocatable(offered, parse_reservation(annotations))
    raw = estimate_node_allocatable({}, annotations)
    taints = list(node.spec.taints)
    executor_taints = facts.executor.taints if facts.executor else ()
    for key, value, effect in (*executor_taints, *(facts.condition.taints if facts.condition else ())):
        taint = Taint(key=key, value=value, effect=effect)
        if taint not in taints:
            taints.append(taint)
    return NodeDescription(
        name=facts.name,
        allocatable=allocatable,
        capacity_for_load={**allocatable, **{name: resource_amount(name, quantity) for name, quantity in raw.items()}},
        labels={**(facts.executor.labels if facts.executor else {}), **node.metadata.labels},
        taints=tuple(taints),
        unschedulable=node.spec.unschedulable,
        thresholds=thresholds_of(args, annotations),
        images={image_name(name): image.size_bytes for image in node.status.images for name in image.names},
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

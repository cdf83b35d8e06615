"""Nodes as the rules see them: labels, taints, allocatable, requests; put together from the state.

    labels      = hostname, executor's, then the object's own
    taints      = the object's, the executor's, those that follow from readiness
    allocatable = the object's status, overlaid by the executor's report and the batch and mid resources
    the annotation `node.koordinator.sh/raw-allocatable` says what percentages are taken of where allocatable is amplified

A node without a condition is ready.
"""

from __future__ import annotations

import msgspec

from cotenant.api.objects.node import Taint
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, LABEL_HOSTNAME, MID_CPU, MID_MEMORY
from cotenant.model.quantities import QuantityError, Scalar, resource_amount
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.measuring import add_amounts

ANNOTATION_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
_RAW_DECODER = msgspec.json.Decoder(dict[str, Scalar])


def node_names(fold: ClusterFold) -> list[str]:
    """Return the names of all nodes that have an object or an executor, sorted."""
    return sorted({*fold.nodes, *fold.executors})


def is_ready(fold: ClusterFold, node: str) -> bool:
    """Tell whether the node is ready."""
    condition = fold.conditions.get(node)
    return condition is None or condition.value.ready


def node_labels(fold: ClusterFold, node: str) -> dict[str, str]:
    """Return the node's labels."""
    labels = {LABEL_HOSTNAME: node}
    if (executor := fold.executors.get(node)) is not None:
        labels |= executor.value.labels
    if (known := fold.nodes.get(node)) is not None:
        labels |= known.value.metadata.labels
    return labels


def _taints(fold: ClusterFold, node: str) -> tuple[Taint, ...]:
    taints: list[Taint] = []
    if (known := fold.nodes.get(node)) is not None:
        taints += known.value.spec.taints
    if (executor := fold.executors.get(node)) is not None:
        taints += (Taint(key=key, value=value, effect=effect) for key, value, effect in executor.value.taints)
    if (condition := fold.conditions.get(node)) is not None:
        taints += (Taint(key=key, value=value, effect=effect) for key, value, effect in condition.value.taints)
    return tuple(taint for index, taint in enumerate(taints) if taint not in taints[:index])


def _amounts(quantities: dict[str, Scalar]) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, quantity in quantities.items():
        try:
            amounts[name] = resource_amount(name, quantity)
        except QuantityError:
            # The gateway refuses such an object; without the amount nothing fits and nothing is compared.
            amounts[name] = 0
    return amounts


def allocatable_of(fold: ClusterFold, node: str) -> dict[str, int]:
    """Return what pods may request of the node."""
    known = fold.nodes.get(node)
    allocatable = _amounts(known.value.status.allocatable) if known is not None else {}
    if (executor := fold.executors.get(node)) is not None:
        allocatable |= executor.value.allocatable
    if (extended := fold.resources.get(node)) is not None:
        resources = extended.value
        offered = {
            BATCH_CPU: resources.batch_cpu_milli,
            BATCH_MEMORY: resources.batch_memory_bytes,
            MID_CPU: resources.mid_cpu_milli,
            MID_MEMORY: resources.mid_memory_bytes,
        }
        allocatable |= {name: 0 if resources.withdrawn else amount for name, amount in offered.items()}
    return allocatable


def raw_allocatable_of(fold: ClusterFold, node: str) -> dict[str, int]:
    """Return what the annotation declares; nothing where it is absent or cannot be read."""
    known = fold.nodes.get(node)
    text = known.value.metadata.annotations.get(ANNOTATION_RAW_ALLOCATABLE) if known is not None else None
    if text is None:
        return {}
    try:
        return _amounts(_RAW_DECODER.decode(text))
    except msgspec.DecodeError:
        return {}


def node_facts(fold: ClusterFold, node: str, pods: list[PodFacts]) -> NodeFacts:
    """Return the node as a place for pods, given its pods that have not ended."""
    known = fold.nodes.get(node)
    return NodeFacts(
        name=node,
        labels=node_labels(fold, node),
        taints=_taints(fold, node),
        unschedulable=known is not None and known.value.spec.unschedulable,
        allocatable=allocatable_of(fold, node),
        requested=add_amounts(*(pod.requests for pod in pods)),
        pod_count=len(pods),
        raw_allocatable=raw_allocatable_of(fold, node),
    )

"""The figures on the screen of `cotenant up`, from reports of the gateway, the kernel and the demonstration.

In: documents of the API and readings of /proc/stat. Out: `Figures`, plain numbers with their units in their names. This module
does no I/O, so a screen can be tested from documents alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import QuantityError, parse_value
from cotenant_console.api.client import Document, Json, list_at, mapping_at, text_at, value_at

ENDED = ("Succeeded", "Failed")
MIB = 1024 * 1024


@dataclass(frozen=True)
class NodeFigures:
    """One node's batch resources: allocatable and requested."""

    name: str
    batch_cpu_milli: int
    batch_memory_mib: int
    batch_cpu_used_milli: int
    batch_memory_used_mib: int
    pods: int
    simulated: bool
    ready: bool


@dataclass(frozen=True)
class CpuReading:
    """The kernel's counters of the whole machine, in clock ticks."""

    busy: int
    total: int


def cpu_reading(proc_stat: str) -> CpuReading:
    """The first line of /proc/stat: everything but idle and iowait is busy (guest time is part of user time)."""
    ticks = [int(word) for word in proc_stat.splitlines()[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return CpuReading(sum(ticks) - idle, sum(ticks))


def cpu_percent(before: CpuReading, after: CpuReading) -> float:
    """Busy share between two readings, 0 if no time has passed."""
    passed = after.total - before.total
    return 100.0 * (after.busy - before.busy) / passed if passed > 0 else 0.0


def amount(document: Json, *path: str | int) -> int:
    """A quantity of a document in whole units; 0 where there is none or it is damaged."""
    found = value_at(document, *path)
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        return 0
    try:
        return parse_value(found)
    except QuantityError:
        return 0


def node_figures(nodes: Sequence[Json], pods: Sequence[Json]) -> list[NodeFigures]:
    """Every node's batch resources, in the order of the list."""
    return [_node_figures(node, [pod for pod in pods if _is_on(pod, text_at(node, "metadata", "name"))]) for node in nodes]


def _is_on(pod: Json, node: str) -> bool:
    return text_at(pod, "spec", "nodeName") == node and text_at(pod, "status", "phase") not in ENDED


def _node_figures(node: Json, pods: Sequence[Json]) -> NodeFigures:
    conditions = list_at(node, "status", "conditions")
    runtime = text_at(node, "status", "nodeInfo", "containerRuntimeVersion")
    return NodeFigures(
        name=text_at(node, "metadata", "name"),
        batch_cpu_milli=amount(node, "status", "allocatable", BATCH_CPU),
        batch_memory_mib=amount(node, "status", "allocatable", BATCH_MEMORY) // MIB,
        batch_cpu_used_milli=sum(requested(pod, BATCH_CPU) for pod in pods),
        batch_memory_used_mib=sum(requested(pod, BATCH_MEMORY) for pod in pods) // MIB,
        pods=len(pods),
        simulated=runtime.startswith("simulated"),
        ready=any(text_at(item, "type") == "Ready" and text_at(item, "status") == "True" for item in conditions),
    )


def requested(pod: Json, resource: str) -> int:
    """The sum of the requests of a pod's containers."""
    containers = list_at(pod, "spec", "containers")
    return sum(amount(container, "resources", "requests", resource) for container in containers)


def phase_counts(pods: Sequence[Json]) -> dict[str, int]:
    """Pods by phase, in a fixed order, without empty phases."""
    counts = dict.fromkeys(("Pending", "Running", "Succeeded", "Failed", "Unknown"), 0)
    for pod in pods:
        phase = "Terminating" if mapping_at(pod, "metadata").get("deletionTimestamp") else text_at(pod, "status", "phase")
        counts[phase] = counts.get(phase, 0) + 1
    return {phase: count for phase, count in counts.items() if count}


def number_at(document: Document, key: str) -> float | None:
    """A number of a report, None where there is none."""
    found = document.get(key)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None

"""Node = document + executor + resources + condition.

In: the node's document and the last executor report, overcommitment and readiness events of that node. Out: labels and
taints, capacity and allocatable (batch and mid resources included), the Ready condition, nodeInfo, addresses.
Without a condition event a node with an executor is ready; a node with neither executor nor condition keeps what its
document says.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.api.overlay import Overlay
from cotenant.api.splices import raw
from cotenant.events.conditions import NodeCondition
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, LABEL_HOSTNAME, MID_CPU, MID_MEMORY
from cotenant.model.quantities import format_amount
from cotenant_gateway.kinds.times import rfc3339
from cotenant_gateway.read_model.snapshots import Snapshot

MAX_CAPABILITIES_SHOWN = 64


def compose_node(snapshot: Snapshot) -> Overlay:
    """Return what executor, overcommitment and readiness add to the node."""
    executor: ExecutorStatus | None = None
    resources: NodeResources | None = None
    condition: NodeCondition | None = None
    reported_at: datetime | None = None
    for event in snapshot.parts.values():
        if event.tombstone:
            continue
        if isinstance(event.data, ExecutorStatus):
            executor, reported_at = event.data, event.time
        elif isinstance(event.data, NodeResources):
            resources = event.data
        elif isinstance(event.data, NodeCondition):
            condition = event.data
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: list[tuple[str, str, str]] = []
    status: dict[str, msgspec.Raw] = {}
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: list[dict[str, str]] = []
    if executor is not None:
        labels = {LABEL_HOSTNAME: snapshot.address.name, **executor.labels}
        taints += executor.taints
        capacity |= {name: format_amount(name, amount) for name, amount in sorted(executor.capacity.items())}
        allocatable |= {name: format_amount(name, amount) for name, amount in sorted(executor.allocatable.items())}
        annotations = _annotations(executor)
        status |= _machine(executor)
    if resources is not None and not resources.withdrawn:
        extended = {name: amount for name, amount in _extended(resources) if amount > 0 or name in _ALWAYS}
        capacity |= {name: format_amount(name, amount) for name, amount in extended.items()}
        allocatable |= {name: format_amount(name, amount) for name, amount in extended.items()}
    if condition is not None:
        taints += condition.taints
        conditions.append(_ready(condition.status, condition.since, condition.reason, condition.message))
    elif executor is not None:
        conditions.append(_ready("True", reported_at, "ExecutorReady", executor.message or "the executor reports"))
    merged = {name: texts for name, texts in (("capacity", capacity), ("allocatable", allocatable)) if texts}
    return Overlay(
        labels=labels,
        annotations=annotations,
        taints=tuple({"key": key, "value": value, "effect": effect} for key, value, effect in taints),
        status=status,
        merged_status=merged,
        conditions=tuple(conditions),
    )


_ALWAYS = (BATCH_CPU, BATCH_MEMORY)


def _extended(resources: NodeResources) -> list[tuple[str, int]]:
    return [
        (BATCH_CPU, resources.batch_cpu_milli),
        (BATCH_MEMORY, resources.batch_memory_bytes),
        (MID_CPU, resources.mid_cpu_milli),
        (MID_MEMORY, resources.mid_memory_bytes),
    ]


def _ready(status: str, since: datetime | None, reason: str, message: str) -> dict[str, str]:
    condition = {"type": "Ready", "status": status, "reason": reason or "NodeReady", "message": message}
    if since is not None:
        condition["lastTransitionTime"] = rfc3339(since)
    return condition


def _annotations(executor: ExecutorStatus) -> dict[str, str]:
    annotations = {"cotenant.io/sandbox": "true" if executor.sandbox else "false"}
    if executor.capabilities:
        shown = dict(sorted(executor.capabilities.items())[:MAX_CAPABILITIES_SHOWN])
        annotations["cotenant.io/capabilities"] = msgspec.json.encode(shown).decode()
    return annotations


def _machine(executor: ExecutorStatus) -> dict[str, msgspec.Raw]:
    runtime = "simulated" if executor.simulated else "process"
    info = {
        "kernelVersion": executor.kernel,
        "osImage": executor.operating_system,
        "operatingSystem": "linux",
        "architecture": executor.labels.get("kubernetes.io/arch", ""),
        "kubeletVersion": f"cotenant-{executor.version}" if executor.version else "cotenant",
        "containerRuntimeVersion": f"{runtime}://{executor.version}" if executor.version else runtime,
        "bootID": executor.boot,
        "machineID": "",
        "systemUUID": "",
        "kubeProxyVersion": "",
    }
    addresses = [{"type": "InternalIP", "address": address} for address in executor.addresses]
    return {
        "nodeInfo": raw(info),
        "addresses": raw([*addresses, {"type": "Hostname", "address": executor.node}]),
    }

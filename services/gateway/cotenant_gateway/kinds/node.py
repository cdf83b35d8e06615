"""Node = document + executor + resources + condition.

In: the node's document and the last executor report, overcommitment and readiness events of that node. Out: labels and
taints, capacity and allocatable (batch and mid resources included; allocatable is what `cotenant.domain.node` calls
offered: the reservation annotation is not taken off), the Ready condition, nodeInfo, addresses.
Without a condition event a node with an executor is ready; a node with neither executor nor condition keeps what its
document says.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from cotenant.api.objects.node import Node, decode_node
from cotenant.api.overlay import Overlay
from cotenant.api.splices import raw
from cotenant.domain.node import NodeSources, overcommitted_amounts
from cotenant.events.conditions import NodeCondition
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, LABEL_HOSTNAME
from cotenant.model.quantities import QuantityError, format_amount
from cotenant.model.tiers import OVERCOMMITTED
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
    conditions: list[dict[str, str]] = []
    if executor is not None:
        labels = {LABEL_HOSTNAME: snapshot.address.name, **executor.labels}
        taints += executor.taints
        capacity |= {name: format_amount(name, amount) for name, amount in sorted(executor.capacity.items())}
        annotations = _annotations(executor)
        status |= _machine(executor)
    sources = NodeSources(_declared(snapshot), executor, resources, condition)
    if resources is not None and not resources.withdrawn:
        shown = overcommitted_amounts(resources)
        capacity |= {name: format_amount(name, amount) for name, amount in shown.items() if amount > 0 or name in _ALWAYS}
    allocatable = _allocatable(sources)
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


def _declared(snapshot: Snapshot) -> Node:
    """Return the document; an empty one where there is none or it cannot be read (stored by another writer)."""
    if snapshot.stored is None:
        return Node()
    try:
        return decode_node(snapshot.stored.raw)
    except msgspec.DecodeError:
        return Node()


def _allocatable(sources: NodeSources) -> dict[str, str]:
    """Return what is laid over the document's allocatable: what others decide, and what it leaves open.

    Amounts that the document alone decides stay as written; overcommitted ones that are not offered appear only where it names
    them.
    """
    try:
        offered = sources.offered()
    except QuantityError:
        return {}
    declared = sources.node.status.allocatable if sources.node is not None else {}
    reported = sources.executor.allocatable if sources.executor is not None else {}
    resources = sources.resources
    shown: dict[str, str] = {}
    for name, amount in sorted(offered.items()):
        if resources is not None and name in OVERCOMMITTED:
            hidden = name not in declared and (resources.withdrawn or (amount == 0 and name not in _ALWAYS))
        else:
            hidden = name in declared and name not in reported
        if not hidden:
            shown[name] = format_amount(name, amount)
    return shown


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

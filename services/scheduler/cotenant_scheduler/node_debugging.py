"""A node as the scheduler counts it, for people who look for a fault: the fields of Koordinator's debug API.

In: the core between two decisions, a node's name. Out: documents.

    node    what the node offers, what is requested of it and left, its pods, those with affinity, ports, images and claims in
            use; amounts as kube-scheduler's Resource has them: milli-cores, bytes, pieces
    load    what its pods use beyond what is measured (`state.load.load_estimate`); nothing of a node that is not known

Of a pod it names namespace, name and uid, not the whole object. Reservations' reserve pods count as pods, as in Koordinator,
and have their name; room kept for nominated pods is part of what is requested. Bound: MOST_PODS pods of a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from cotenant.api.times import rfc3339
from cotenant.model.amounts import as_texts
from cotenant.model.names import CPU, MEMORY, RESOURCE_PODS
from cotenant_scheduler.core import SchedulerCore
from cotenant_scheduler.state.counting import CountedPod, PodKey, is_held, is_reserve
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.volumes.volumes import asked_of

MOST_PODS = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMED = {CPU: "MilliCPU", MEMORY: "Memory", "ephemeral-storage": "EphemeralStorage", RESOURCE_PODS: "AllowedPodNumber"}


def node_info(core: SchedulerCore, name: str) -> dict[str, Any] | None:
    """Return the node; None if it is not declared."""
    nodes = core.nodes
    if not nodes.is_declared(name):
        return None
    nodes.settle()
    row = nodes.rows[name]
    pods = dict(islice(_pods(core, row), MOST_PODS))
    allocatable = {resource: nodes.allocatable.item(dim, row) for resource, dim in nodes.dims.items()}
    requested = {resource: nodes.requested.item(dim, row) for resource, dim in nodes.dims.items()}
    nonzero = {CPU: nodes.nonzero.item(0, row), MEMORY: nodes.nonzero.item(1, row)}
    remaining = {resource: amount - requested[resource] for resource, amount in allocatable.items()}
    found: dict[str, Any] = {
        "node": {
            "metadata": {"name": name, "labels": nodes.labels[row]},
            "spec": {"unschedulable": bool(nodes.unschedulable[row]), "taints": msgspec.to_builtins(nodes.taints[row])},
        },
        "pods": [_info(core, name, key) for key in pods],
        "podsWithAffinity": [_info(core, name, key) for key, pod in pods.items() if _has_affinity(pod.shape)],
        "podsWithRequiredAntiAffinity": [
            _info(core, name, key) for key, pod in pods.items() if pod.shape.relations.anti_affinity
        ],
        "usedPorts": _ports(pods),
        "requested": _resource(requested),
        "nonZeroRequested": _resource(nonzero),
        "remaining": _resource(remaining),
        "allocatable": _resource(allocatable),
        "imageStates": {
            image: {"Size": sizes[row], "NumNodes": len(sizes)}
            for image, sizes in sorted(nodes.images.items())
            if row in sizes
        },
        "pvcRefCounts": _claims(pods),
    }
    return {member: value for member, value in found.items() if value}


def node_load(core: SchedulerCore, name: str) -> dict[str, Any]:
    """Return the estimates of a node's load; empty for one that is not known."""
    nodes = core.nodes
    row = nodes.rows.get(name)
    if row is None:
        return {}
    nodes.settle()
    sums = nodes.load.estimate(row, ((key, pod.assigned) for key, pod in nodes.pods[row].items()))
    found: dict[str, Any] = {
        "pods": [
            {"timestamp": rfc3339(_EPOCH + timedelta(microseconds=pod.assigned.assigned_us)), "pod": _identity(core, name, key)}
            for key, pod in islice(_pods(core, row), MOST_PODS)
            if not is_reserve(key)
        ]
    }
    of_node = {
        "prodUsage": sums.prod_usage,
        "nodeDelta": sums.node_delta,
        "prodDelta": sums.prod_delta,
        "nodeEstimated": sums.node_estimated,
    }
    found |= {member: as_texts(dict(zip(nodes.load.resources, sum_, strict=True))) for member, sum_ in of_node.items()}
    for member, keys in (
        ("nodeDeltaPods", sums.node_delta_pods),
        ("prodDeltaPods", sums.prod_delta_pods),
        ("nodeEstimatedPods", sums.node_estimated_pods),
    ):
        found[member] = sorted(key[1] if is_held(key) else "/".join(key) for key in keys)[:MOST_PODS]
    return {member: value for member, value in found.items() if value}


def _pods(core: SchedulerCore, row: int) -> Iterator[tuple[PodKey, CountedPod]]:
    """The pods on a row, by name."""
    return ((key, pod) for key, pod in sorted(core.nodes.pods[row].items(), key=lambda found: found[0]) if not is_held(key))


def _info(core: SchedulerCore, node: str, key: PodKey) -> dict[str, Any]:
    return {"Pod": _identity(core, node, key)}


def _identity(core: SchedulerCore, node: str, key: PodKey) -> dict[str, Any]:
    record = core.reservations.by_name.get(key[1]) if is_reserve(key) else core.pods.records.get(key)
    placed = record.placements.get(node) if record is not None else None
    names = {"name": key[1]} if is_reserve(key) else {"namespace": key[0], "name": key[1]}
    return {"metadata": names | ({"uid": placed.data.uid} if placed is not None else {})}


def _has_affinity(shape: Shape) -> bool:
    relations = shape.relations
    return bool(relations.each_affinity or relations.affinity or relations.anti_affinity or relations.preferred)


def _ports(pods: Mapping[PodKey, CountedPod]) -> dict[str, list[dict[str, Any]]]:
    """The ports in use, by address."""
    used = sorted({port for pod in pods.values() for port in pod.shape.host_ports})
    found: dict[str, list[dict[str, Any]]] = {}
    for protocol, number, address in used:
        found.setdefault(address, []).append({"Protocol": protocol, "Port": number})
    return found


def _claims(pods: Mapping[PodKey, CountedPod]) -> dict[str, int]:
    """How many of the pods use each claim."""
    counts: dict[str, int] = {}
    for pod in pods.values():
        asked = asked_of(pod.shape)
        for claim in asked.claims if asked is not None else ():
            counts["/".join(claim)] = counts.get("/".join(claim), 0) + 1
    return counts


def _resource(amounts: Mapping[str, int]) -> dict[str, Any]:
    """Amounts with the members of kube-scheduler's Resource; others below `ScalarResources`."""
    found: dict[str, Any] = {member: amounts.get(name, 0) for name, member in _NAMED.items()}
    scalars = {name: amount for name, amount in sorted(amounts.items()) if name not in _NAMED and amount}
    return {**found, "ScalarResources": scalars or None}

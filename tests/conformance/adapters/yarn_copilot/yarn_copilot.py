"""Vectors of the yarn-copilot page. They pin the units that Koordinator's operator sends, so capacities are asked for in
the compatible rounding; the service's default is the exact one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cotenant.domain.third_party import (
    HADOOP_YARN,
    KOORD_BATCH,
    ThirdPartyAllocation,
    ThirdPartyError,
    batch_total,
    parse_allocations,
    parse_origin,
    write_allocation,
    write_origin,
)
from cotenant.events import Event
from cotenant.events.node.metrics import Usage
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import format_binary, format_decimal, parse_value
from cotenant.model.subjects import node_subject
from cotenant_batch_resource_calculator.formulas.amounts import Amounts
from cotenant_batch_resource_calculator.formulas.placing import offer
from cotenant_yarn_copilot.capacity import BatchAmounts, Rounding, YarnResource, of_yarn, to_yarn
from cotenant_yarn_copilot.cluster_clients import ClusterClients
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER, NodeIdError, PodLabels, choose_nm_pod, yarn_node_of
from cotenant_yarn_copilot.nodes import KnownNode
from cotenant_yarn_copilot.rm_client import ResourceManagerError
from cotenant_yarn_copilot.rm_messages import RmNode
from cotenant_yarn_copilot.update_call import UpdateCall, update_steps
from tests.builders import stored
from tests.conformance.mended import mended
from tests.unit.yarn_copilot.builders_yarn_copilot import NOON, Bench, manager

Json = dict[str, Any]


def _pods(documents: list[Json] | None) -> list[PodLabels]:
    found = []
    for document in documents or []:
        metadata = document.get("metadata") or {}
        node = (document.get("spec") or {}).get("nodeName") or ""
        found.append(
            PodLabels(metadata.get("name") or "", node, metadata.get("labels") or {}, metadata.get("annotations") or {})
        )
    return found


def _reports(clusters: Json) -> dict[str, Sequence[RmNode]]:
    """The NodeManagers that each cluster lists, with a total that no node has, so that every total is set."""
    return {
        cluster: [
            manager(
                f"{report['nodeId']['host']}:{report['nodeId']['port']}",
                vcores=-1,
                used=((report.get("used") or {}).get("virtualCores", 0), (report.get("used") or {}).get("memory", 0)),
            )
            for report in reports or []
            if report.get("nodeId")
        ]
        for cluster, reports in clusters.items()
    }


def _resources(amounts: BatchAmounts) -> Json:
    return {BATCH_CPU: format_decimal(amounts.cpu_milli), BATCH_MEMORY: format_binary(amounts.memory_bytes)}


def yarn_node_id(given: Json, *, name: str) -> object:
    try:
        found = yarn_node_of(given["nodeName"] or "", _pods(given["pods"]))
    except NodeIdError:
        return {"error": True}
    return {"yarnNode": {"host": found.host, "port": found.port, "clusterID": found.cluster} if found is not None else None}


def nm_pod(given: Json, *, name: str) -> object:
    pod = choose_nm_pod(given["nodeName"] or "", _pods(given["pods"]))
    return {"pod": pod.name if pod is not None else None}


def yarn_capacity(given: Json, *, name: str) -> object:
    batch = BatchAmounts(parse_value(given["batchCPU"]), parse_value(given["batchMemory"]))
    total = to_yarn(batch, Rounding.COMPATIBLE)
    return {"vcores": total.vcores, "memoryMB": total.memory_mb}


def batch_source(given: Json, *, name: str) -> object:
    known = KnownNode()
    if given["node"] is not None:
        known.take_object(Event(subject=node_subject("n"), data=stored(given["node"])), stored(given["node"]))
    if known.unreadable:
        return {"error": True}
    found = known.origin() or BatchAmounts()
    return {"batchCPU": str(found.cpu_milli), "batchMemory": str(found.memory_bytes)}


def yarn_client_choice(given: Json, *, name: str) -> object:
    """The client of a NodeManager's cluster, named by its cluster and by whether it was there before."""
    cached = {cluster: f"cached:{cluster}" for cluster in given["cachedClusters"] or ()}
    if given["cachedDefault"]:
        cached[DEFAULT_CLUSTER] = "cached-default"

    def make(cluster: str) -> str:
        default = cluster == DEFAULT_CLUSTER
        if given["factory"].get("default" if default else cluster) != "ok":
            raise ResourceManagerError(f"no client for cluster {cluster}")
        return "new-default" if default else f"new:{cluster}"

    at = given["yarnNode"]
    try:
        return {"client": ClusterClients(cached, make).of(at["clusterID"] if at else "")}
    except ResourceManagerError:
        return {"error": True}


def yarn_update_call(given: Json, *, name: str) -> object:
    steps = update_steps(has_node=bool(given["yarnNode"]), has_client=given.get("client") == "ok")
    calls: list[str] = []
    try:
        step = next(steps)
        while True:
            calls.append(step.value)
            step = steps.send(step is not UpdateCall.UPDATE or given.get("update") == "ok")
    except StopIteration as end:
        return {"error": end.value, "calls": calls}


def _allocation_of(annotations: Mapping[str, str], name: str) -> ThirdPartyAllocation | None:
    return next((each for each in parse_allocations(annotations) if each.name == name), None)


def yarn_node_resource(given: Json, *, name: str) -> object:
    """One pass of the service over this node: match, set the total, publish YARN's usage. What it publishes stands on the node
    as the annotation."""
    bench = Bench(Rounding.COMPATIBLE)
    node = given["node"]
    metadata: Json = (node or {}).get("metadata") or {}
    where: str = metadata.get("name") or ""
    if node is not None:
        bench.store(node_subject(where), stored(node))
        status: Json = node.get("status") or {}
        if not metadata.get("annotations") and not status.get("allocatable"):
            # A missing figure is 0 upstream; here it is 0 once that is published, before that the total is unchanged.
            bench.has_batch(where, 0, 0)
    for pod in _pods(given["pods"]):
        bench.place(pod.node, pod.name, labels=pod.labels, annotations=pod.annotations)
    reports = _reports(given["clusters"])
    settings = bench.copilot.settings(bench.copilot.match(reports, NOON))
    failed = given.get("updateNodeResource") != "ok"
    failures = {setting.node: "failed" for setting in settings} if failed else {}
    published = bench.pass_over(reports, failures=failures).get(where)
    # A node without an event has no NodeManager: nothing is subtracted. One with a malformed id keeps its last usage.
    amounts = BatchAmounts() if node is not None else None
    failing = False
    if published is not None:
        known = bool(published.node_id)
        failing = known and bool(published.reason)
        amounts = BatchAmounts(published.used.cpu_milli, published.used.memory_bytes) if known else None
    result: Json = {
        "requeue": failing,
        "error": failing,
        "thirdParty": None if amounts is None else _resources(amounts),
    }
    for setting in settings:
        result["sent"] = {
            "host": setting.node_id.host,
            "port": setting.node_id.port,
            "vcores": setting.total.vcores,
            "memoryMB": setting.total.memory_mb,
        }
    if failing:
        return mended(result, "$.thirdParty", trap="9: YARN's usage is published although its total cannot be set")
    return result


def yarn_used(given: Json, *, name: str) -> object:
    at = given["yarnNode"]
    bench = Bench()
    bench.node("n")
    if at is not None:
        bench.place_node_manager("n", f"{at['host']}:{at['port']}", cluster=at.get("clusterID") or "")
    published = bench.pass_over(_reports(given["clusters"])).get("n")
    used = published.used if published is not None else Usage()
    return {"vcores": used.cpu_milli // 1000, "memoryMB": used.memory_bytes >> 20}


def k8s_batch_after_third_party(given: Json, *, name: str) -> object:
    annotations = given["node"]["metadata"].get("annotations") or {}
    calculated = given["calculated"] or {}
    batch = None if given["reset"] else Amounts(*(parse_value(calculated.get(key, 0)) for key in (BATCH_CPU, BATCH_MEMORY)))
    offered = offer(batch, 1.0, batch_total(parse_allocations(annotations)))
    left = offered.offered
    return {
        "allocatable": {} if left is None else {BATCH_CPU: str(left.cpu), BATCH_MEMORY: str(left.memory)},
        "origin": {BATCH_CPU: str(offered.origin.cpu), BATCH_MEMORY: str(offered.origin.memory)},
    }


def allocated_annotation(given: Json, *, name: str) -> object:
    resources = _resources(of_yarn(YarnResource(given["vcores"], given["memoryMB"])))
    return {"resources": resources, "name": HADOOP_YARN, "priority": KOORD_BATCH}


def origin_allocatable_parse(given: Json, *, name: str) -> object:
    try:
        return {"resources": parse_origin(given["annotations"] or {})}
    except ThirdPartyError:
        return {"error": True}


def origin_allocatable_write(given: Json, *, name: str) -> object:
    return {"annotations": write_origin(given["annotations"] or {}, given["resources"])}


def third_party_parse(given: Json, *, name: str) -> object:
    try:
        entry = _allocation_of(given["annotations"] or {}, given["name"])
    except ThirdPartyError:
        return {"error": True}
    return {"resources": dict(entry.resources or {}) if entry is not None else None}


def third_party_write(given: Json, *, name: str) -> object:
    allocation = ThirdPartyAllocation(
        given["name"], given["priority"], msgspec.convert(given["resources"], dict[str, str | int | float])
    )
    return {"annotations": write_allocation(given["annotations"] or {}, allocation)}

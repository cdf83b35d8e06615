"""Vectors of the yarn-copilot page. They pin the units that Koordinator's operator sends, so capacities are asked for in
the compatible rounding; the service's default is the exact one."""

from __future__ import annotations

from collections.abc import Mapping
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
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY
from cotenant.model.quantities import format_binary, format_decimal, parse_value
from cotenant_batch_resource_calculator.formulas.amounts import Amounts
from cotenant_batch_resource_calculator.formulas.placing import offer
from cotenant_yarn_copilot.batch_source import batch_of_node
from cotenant_yarn_copilot.capacity import BatchAmounts, Rounding, YarnResource, of_yarn, to_yarn
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER, NodeIdError, PodLabels, YarnNodeId, choose_nm_pod, yarn_node_of
from cotenant_yarn_copilot.reconcile import KubernetesNode, PlanKind, outcome_of, plan_node, used_of
from cotenant_yarn_copilot.update_call import UpdateCall, update_steps

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


def _node(document: Json | None) -> KubernetesNode | None:
    if document is None:
        return None
    metadata, status = document.get("metadata") or {}, document.get("status") or {}
    return KubernetesNode(metadata.get("name") or "", metadata.get("annotations") or {}, status.get("allocatable") or {})


def _node_id(document: Json | None) -> YarnNodeId | None:
    return (
        None
        if document is None
        else YarnNodeId(document["host"], document["port"], document.get("clusterID") or DEFAULT_CLUSTER)
    )


def _reports(clusters: Json) -> dict[str, dict[str, YarnResource]]:
    return {
        cluster: {
            f"{report['nodeId']['host']}:{report['nodeId']['port']}": YarnResource(
                (report.get("used") or {}).get("virtualCores", 0), (report.get("used") or {}).get("memory", 0)
            )
            for report in reports or []
            if report.get("nodeId")
        }
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
    node = _node(given["node"])
    if node is None:
        return {"batchCPU": "0", "batchMemory": "0"}
    try:
        found = batch_of_node(node.annotations, node.allocatable)
    except ThirdPartyError:
        return {"error": True}
    return {"batchCPU": str(found.cpu_milli), "batchMemory": str(found.memory_bytes)}


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
    node = _node(given["node"])
    plan = plan_node(node, _pods(given["pods"]), Rounding.COMPATIBLE)
    used = used_of(plan.node_id, _reports(given["clusters"]))
    outcome = outcome_of(plan, update_failed=given.get("updateNodeResource") != "ok", used=used)
    annotations = dict(node.annotations) if node is not None else {}
    if outcome.foreign is not None:
        annotations = write_allocation(annotations, ThirdPartyAllocation(HADOOP_YARN, KOORD_BATCH, _resources(outcome.foreign)))
    entry = _allocation_of(annotations, HADOOP_YARN)
    result: Json = {
        "requeue": outcome.again,
        "error": outcome.failed,
        "thirdParty": dict(entry.resources or {}) if entry is not None else None,
    }
    if plan.kind is PlanKind.GIVE and plan.node_id is not None:
        result["sent"] = {
            "host": plan.node_id.host,
            "port": plan.node_id.port,
            "vcores": plan.total.vcores,
            "memoryMB": plan.total.memory_mb,
        }
    return result


def yarn_used(given: Json, *, name: str) -> object:
    used = used_of(_node_id(given["yarnNode"]), _reports(given["clusters"]))
    return {"vcores": used.vcores, "memoryMB": used.memory_mb}


def k8s_batch_after_third_party(given: Json, *, name: str) -> object:
    node = _node(given["node"])
    assert node is not None
    calculated = given["calculated"] or {}
    batch = None if given["reset"] else Amounts(*(parse_value(calculated.get(key, 0)) for key in (BATCH_CPU, BATCH_MEMORY)))
    offered = offer(batch, 1.0, batch_total(parse_allocations(node.annotations)))
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

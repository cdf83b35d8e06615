"""node-executor vectors of memory, disks, cache and system settings."""

from __future__ import annotations

import json
from typing import Any

from cotenant.api.objects.node import decode_node
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant.model.quantities import parse_value
from cotenant_node_executor.strategies import pod_view, slo_sections
from cotenant_node_executor.strategies.memory import evict, qos_config, victims
from cotenant_node_executor.strategies.memory import qos as memory
from cotenant_node_executor.targets.interface import Knob

_INT64_MAX = 2**63 - 1
_FIELDS = (
    "enable",
    "minLimitPercent",
    "lowLimitPercent",
    "throttlingPercent",
    "wmarkRatio",
    "wmarkScalePermill",
    "wmarkMinAdj",
    "priorityEnable",
    "priority",
    "oomKillGroup",
)


def _pods(given: dict[str, Any]) -> list[Pod]:
    return [decode_pod(json.dumps(pod).encode()) for pod in given.get("pods") or []]


def _config(given: dict[str, Any] | None) -> qos_config.MemoryQOS:
    return slo_sections.fitted(slo_sections.lowered_object(json.dumps(given or {})), qos_config.MemoryQOS, "vector")


def _files(values: memory.Values) -> dict[str, int]:
    return {knob.value: _INT64_MAX if knob is Knob.MEMORY_HIGH and value == -1 else value for knob, value in values.items()}


def memory_qos(given: dict[str, Any]) -> object:
    if given["op"] == "merge":
        qos = QoSClass(given["qosClass"] or "")
        name = qos_config.class_of(qos, KubeQoS(given["kubeQOS"]) if given["kubeQOS"] else KubeQoS.BEST_EFFORT)
        merged = qos_config.effective(_config(given["nodeConfig"]), name, given["podAnnotation"])
        if merged == qos_config.MemoryQOS():
            return {"config": None}
        fields = zip(_FIELDS, merged.__struct_fields__, strict=True)
        return {"config": {shown: getattr(merged, field) for shown, field in fields}}
    lsr, ls, be, system = (_config(given["memoryQOSByClass"].get(name)) for name in ("LSR", "LS", "BE", "SYSTEM"))
    rule = qos_config.MemoryRule(lsr, ls, be, system, True)
    views = [pod_view.pod_view(pod) for pod in _pods(given)]
    node_bytes = parse_value(given["nodeAllocatableMemory"])
    planned = [(view, memory.pod_memory(view.shape, rule, node_bytes)) for view in views]
    classes = memory.class_memory([(view.kube_qos, values) for view, values in planned], rule)
    return {
        "qos": {kube.value: _files(values) for kube, values in classes.items()},
        "pods": {view.name: _files(values.pod) for view, values in planned},
        "containers": {
            f"{view.name}/{container.name}": _files(own)
            for view, values in planned
            for container, own in zip(view.manifest.spec.containers, values.containers, strict=True)
        },
    }


def memory_evict(given: dict[str, Any]) -> object:
    node = decode_node(json.dumps(given["node"]).encode())
    capacity = parse_value(node.status.capacity.get("memory", 0))
    config = slo_sections.fitted(slo_sections.lowered_object(json.dumps(given["config"])), evict.EvictConfig, "vector")
    used = {uid: parse_value(amount) for uid, amount in (given.get("podMemoryUsed") or {}).items()}
    node_used = given.get("nodeMemoryUsed")
    if node_used is None or not config.enable:
        return {"evicted": []}
    tasks = evict.usage_tasks(config, capacity, parse_value(node_used), frozenset((evict.BE_MEMORY_EVICT,)))
    pods = [
        victims.Candidate(
            pod.metadata.uid,
            pod.metadata.name,
            victims.traits(pod),
            {evict.USED: used[pod.metadata.uid]} if pod.metadata.uid in used else {},
        )
        for pod in _pods(given)
    ]
    return {"evicted": [victim.candidate.name for victim in evict.chosen(tasks, pods, frozenset())]}

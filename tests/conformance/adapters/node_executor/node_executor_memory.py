"""node-executor vectors of memory, disks, cache and system settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cotenant.api.objects.node import decode_node
from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant.model.quantities import parse_value
from cotenant_node_executor.strategies import pod_view, sections
from cotenant_node_executor.strategies import system_config as settings
from cotenant_node_executor.strategies.cache import schemata
from cotenant_node_executor.strategies.disk import blkio as disks
from cotenant_node_executor.strategies.disk import blkio_plan
from cotenant_node_executor.strategies.disk.pod_volumes import volumes_of
from cotenant_node_executor.strategies.memory import evict, qos_config, victims
from cotenant_node_executor.strategies.memory import qos as memory
from cotenant_node_executor.strategies.situation import ResctrlFacts
from cotenant_node_executor.targets.cgroup.files import holds
from cotenant_node_executor.targets.disks import Storage
from cotenant_node_executor.targets.interface import CgroupVersion, Knob
from cotenant_node_executor.targets.other.resctrl import new_tasks

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
    return sections.fitted(sections.lowered_object(json.dumps(given or {})), qos_config.MemoryQOS, "vector")


def _files(values: memory.Values) -> dict[str, int]:
    return {knob.value: _INT64_MAX if knob is Knob.MEMORY_HIGH and value == -1 else value for knob, value in values.items()}


def memory_qos(given: dict[str, Any]) -> object:
    if given["op"] == "merge":
        qos = QoSClass(given["qosClass"] or "")
        name = pod_view.config_class(qos, KubeQoS(given["kubeQOS"]) if given["kubeQOS"] else KubeQoS.BEST_EFFORT)
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
    config = sections.fitted(sections.lowered_object(json.dumps(given["config"])), evict.MemoryEvictConfig, "vector")
    used = {uid: parse_value(amount) for uid, amount in (given.get("podMemoryUsed") or {}).items()}
    node_used = given.get("nodeMemoryUsed")
    if node_used is None or not config.enable:
        return {"evicted": []}
    tasks = evict.usage_tasks(config, capacity, parse_value(node_used), frozenset((evict.BE_MEMORY_EVICT,)))
    pods = [
        victims.MemoryEvictionCandidate(
            pod.metadata.uid,
            pod.metadata.name,
            victims.traits(pod),
            {evict.USED: used[pod.metadata.uid]} if pod.metadata.uid in used else {},
        )
        for pod in _pods(given)
    ]
    return {"evicted": [victim.candidate.name for victim in evict.chosen(tasks, pods, frozenset())]}


def system_config(given: dict[str, Any]) -> object:
    raw = sections.lowered_object(json.dumps(given["systemStrategy"]))
    config = sections.fitted(raw, settings.SystemStrategy, "vector")
    values = settings.system_values(config, parse_value(given["nodeMemory"]))
    names = {
        settings.MIN_FREE: "min_free_kbytes",
        settings.WATERMARK: "watermark_scale_factor",
        settings.REAPER: "reap_background",
    }
    return {"writes": {names[place]: text for place, text in values.items() if place in names}}


def resctrl_schemata(given: dict[str, Any]) -> object:
    match given["op"]:
        case "l3_mask":
            return _or_error("mask", lambda: schemata.l3_mask(given["cbm"], given["startPercent"], given["endPercent"]))
        case "mba":
            return {"value": schemata.mba_value(given["vendor"], given["mbaPercent"])}
        case "new_tasks":
            return {"newTasks": new_tasks(given["ids"], given["groupTasks"])}
        case "schemata":
            mask, value, ids = given["l3Mask"], given["mbValue"], given["cacheIDs"]
            return {
                "l3": schemata.schemata_line("L3", ids, mask) if mask else None,
                "mb": schemata.schemata_line("MB", ids, value) if value else None,
            }
    facts = ResctrlFacts(given["rootSchemata"], given["cbm"], given["vendor"])
    raw = given["resctrlQOS"]
    config = raw and sections.fitted(sections.lowered_object(json.dumps(raw)), schemata.ResctrlQOS, "vector")
    lines = schemata.class_l3 if given["what"] == "l3" else schemata.class_mb
    return _or_error("written", lambda: lines(config, facts))


def _or_error(key: str, compute: Callable[[], str | None]) -> dict[str, object]:
    try:
        return {key: compute(), "error": False}
    except ValueError:
        return {key: None, "error": True}


def blkio(given: dict[str, Any]) -> object:
    if given["op"] == "need_write":
        knob = Knob(given["file"])
        return {"write": not holds(CgroupVersion.V1, knob, given["new"], given["current"])}
    level = blkio_plan.Level(given["level"])
    tables = given["storage"]
    storage = Storage(
        tables["diskNumberMap"],
        tables["partitionDiskMap"],
        tables["vgDiskMap"],
        tables["lvMapperVGMap"],
        tables["mountPointDiskMap"],
    )
    pod = decode_pod(json.dumps(given["pod"]).encode()) if given.get("pod") else None
    volumes = None
    if pod is not None:
        asked = disks.pod_blocks(pod)
        if asked.blocks is None or pod_view.pod_view(pod).qos is QoSClass.NONE or pod.status.phase != "Running":
            return {"set": {}, "reset": {}, "error": bool(asked.problem)}
        blocks = list(asked.blocks)
        volumes = volumes_of(pod, given.get("pvcToVolume") or {})
    else:
        raw = sections.lowered_object(json.dumps({"enable": given["enable"], "blocks": given["blocks"]}))
        blocks = disks.blocks_of(sections.fitted(raw, disks.BlkioQOS, "vector"))
    try:
        configs = blkio_plan.configured(blocks, storage, volumes)
        plan = blkio_plan.blkio_plan(level, configs, blkio_plan.listed(given["currentFiles"]))
    except ValueError:
        return {"error": True}
    return {
        key: {disk: {knob.value: line for knob, line in files.items()} for disk, files in lines.items()}
        for key, lines in (("set", plan.set_lines), ("reset", plan.reset_lines))
    }

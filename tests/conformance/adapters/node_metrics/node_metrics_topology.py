"""node-metrics vectors of a machine's topology and disks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cotenant.domain import cpu_packing, cpu_pools, topology
from cotenant.events.node.topology import CpuPool, LogicalCPU, NumaNode
from cotenant.model.cpu_lists import format_cpu_list, parse_cpu_list
from cotenant.model.quantities import format_milli, parse_milli
from cotenant_node_executor.sampling import cpu_info, disks, proc

Given = dict[str, Any]


def _attempt(function: Callable[[], object]) -> dict[str, object]:
    try:
        return {"value": function(), "error": False}
    except ValueError:
        return {"value": None, "error": True}


def _cpus(rows: list[dict[str, int]]) -> tuple[LogicalCPU, ...]:
    return tuple(LogicalCPU(cpu=row["id"], core=row["core"], socket=row["socket"], node=row["node"]) for row in rows)


def _pod(pod: Given) -> cpu_pools.HeldCpus:
    metadata = pod["metadata"]
    status = (metadata.get("annotations") or {}).get("scheduling.koordinator.sh/resource-status", "{}")
    try:
        cpus = cpu_pools.cpus_or_none(msgspec.json.decode(status).get("cpuset") or "")
    except msgspec.DecodeError:
        cpus = ()
    qos = (metadata.get("labels") or {}).get("koordinator.sh/qosClass", "")
    return cpu_pools.HeldCpus(metadata.get("namespace", ""), metadata["name"], metadata.get("uid", ""), qos, frozenset(cpus))


def _pools(pools: tuple[CpuPool, ...]) -> list[dict[str, object]]:
    return [{"socket": pool.socket, "node": pool.node, "cpuset": pool.cpuset} for pool in pools]


def _system(given: Given | None) -> cpu_pools.SystemQoS | None:
    return None if given is None else cpu_pools.system_qos(msgspec.json.encode(given).decode())


def _shared_pools(given: Given) -> object:
    shared, best_effort = cpu_pools.shared_pools(
        _cpus(given["cpus"]),
        frozenset(parse_cpu_list(given["kubelet_allocated"])),
        [_pod(pod) for pod in given["pods"]],
        frozenset(cpu_pools.cpus_or_none(given["node_reserved_cpus"])),
        _system(given["system_qos"]),
    )
    return {"cpu-shared-pools": _pools(shared), "be-cpu-shared-pools": _pools(best_effort)}


def _zones(given: Given) -> object:
    numa = []
    for each in given["numa"]:
        found = proc.hugepages_bytes(each.get("nr_hugepages") or {} if given["gate_HugePageReport"] else {})
        small, large = found["hugepages-2Mi"] >> 21, found["hugepages-1Gi"] >> 30
        memory = each["mem_total_kb"] * 1024
        numa.append(NumaNode(node=each["id"], memory_bytes=memory, hugepages_2mi=small, hugepages_1gi=large))
    return [
        {
            "name": zone.name,
            "type": "Node",
            "resources": [
                {
                    "name": name,
                    "capacity": format_milli(amount),
                    "allocatable": format_milli(zone.allocatable_milli[name]),
                    "available": format_milli(zone.allocatable_milli[name]),
                }
                for name, amount in sorted(zone.capacity_milli.items())
            ],
        }
        for zone in topology.zones({each["id"]: each["cpus"] for each in given["numa"]}, numa, {})
    ]


def _annotations_changed(given: Given) -> object:
    message = topology.annotations_changed(given["old"] or {}, given["new"] or {})
    return {"changed": bool(message), "message": message}


def _totals(given: Given) -> object:
    rows = [cpu_info.CpuRow(row["cpu"], row["core"], row["socket"], row["node"], "", row["l3"]) for row in given["processors"]]
    found = cpu_info.totals(rows)
    groups = {name: {str(key): cpus for key, cpus in getattr(found, name).items()} for name in ("core", "node", "socket", "l3")}
    return {"number_cpus": found.number_cpus, **groups}


def _manager_state(given: Given) -> object:
    allocations = cpu_pools.kubelet_allocations(given["content"], [_pod(pod) for pod in given["pods"]])
    return [{**msgspec.to_builtins(pod, str_keys=True), "managedByKubelet": True} for pod in allocations]


def _take(given: Given) -> str:
    available = frozenset(parse_cpu_list(given["available"]))
    return format_cpu_list(cpu_packing.take_cpus(_cpus(given["topology"]), available, given["count"]))


def _reserved(given: Given) -> object:
    annotation = given["annotation"]
    text = annotation if isinstance(annotation, str) else msgspec.json.encode(annotation).decode() if annotation else ""
    return msgspec.to_builtins(cpu_pools.node_reserved(_cpus(given["topology"]), text))


def cpu_topology(given: Given, *, name: str) -> object:
    def kubelet() -> str:
        config = msgspec.convert(given["kubelet_config"], cpu_pools.KubeletConfig)
        return cpu_pools.kubelet_reserved_cpus(_cpus(given["topology"]), config)

    def system() -> object:
        pools = tuple(msgspec.convert(pool, CpuPool) for pool in given["pools"])
        return _pools(cpu_pools.without_system_cpus(pools, _system(given["system_qos"])))

    functions: dict[str, Callable[[], object]] = {
        "lscpu": lambda: [msgspec.to_builtins(row) for row in cpu_info.parse_lscpu(given["content"])],
        "totals": lambda: _totals(given),
        "cpu_topology_annotation": lambda: topology.cpu_topology_json(_cpus(given["cpus"])),
        "shared_pools": lambda: _shared_pools(given),
        "remove_system_qos_cpus": system,
        "cpu_manager_state": lambda: _manager_state(given),
        "node_reserved": lambda: _reserved(given),
        "kubelet_reserved_cpus": kubelet,
        "take_cpus": lambda: _take(given),
        "topology_policy": lambda: topology.topology_policy(given["topologyManagerPolicy"], given["topologyManagerScope"]),
        "zones": lambda: _zones(given),
        "annotations_changed": lambda: _annotations_changed(given),
        "divide_by_numa": lambda: format_milli(topology.share_of_zone(parse_milli(given["quantity"]), given["count"])),
    }
    return _attempt(functions[given["fn"]])


def disk_parse(given: Given, *, name: str) -> object:
    functions: dict[str, Callable[[str], object]] = {
        "lsblk": disks.parse_lsblk,
        "findmnt": disks.parse_findmnt,
        "lvs": disks.parse_lvs,
    }
    return _attempt(lambda: msgspec.to_builtins(functions[given["fn"]](given["content"])))

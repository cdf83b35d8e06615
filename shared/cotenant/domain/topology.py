"""A machine's topology as NodeResourceTopology spells it: zones, annotations of CPUs, the kubelet's topology policy.

In: the parts of a `MachineTopology`. Out: zones and the texts of annotations. Source: koordlet's NodeResourceTopology reporter.

A zone is a NUMA node: `node-<id>`, with its CPUs, hugepages and memory without hugepages. If the node enables it, each
zone's allocatable is reduced by its share of the node's reservation: ceil(reserved / zones) of cpu (milli-cores) and of memory
(thousandths of a byte), at least 0 is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.events.node.topology import CpuBasicInfo, LogicalCPU, MachineTopology, NumaNode
from cotenant.model.names import (
    ANNOTATION_BE_CPU_SHARED_POOLS,
    ANNOTATION_CPU_BASIC_INFO,
    ANNOTATION_CPU_SHARED_POOLS,
    ANNOTATION_CPU_TOPOLOGY,
    ANNOTATION_KUBELET_CPU_POLICY,
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_POD_CPU_ALLOCS,
    ANNOTATION_SYSTEM_QOS_RESOURCE,
)

GIB, MIB = 1 << 30, 1 << 20
_NO_JSON: object = object()
NO_POLICY = "None"

_POLICIES = {"single-numa-node": "SingleNUMANode", "restricted": "Restricted", "best-effort": "BestEffort"}
_SCOPES = {"container": "ContainerLevel", "pod": "PodLevel"}

COMPARED = (
    ANNOTATION_CPU_BASIC_INFO,
    ANNOTATION_KUBELET_CPU_POLICY,
    ANNOTATION_CPU_SHARED_POOLS,
    ANNOTATION_BE_CPU_SHARED_POOLS,
    ANNOTATION_CPU_TOPOLOGY,
    ANNOTATION_POD_CPU_ALLOCS,
    ANNOTATION_NODE_RESERVATION,
    ANNOTATION_SYSTEM_QOS_RESOURCE,
)
"""Annotations in the order in which they are compared."""


class Zone(msgspec.Struct, frozen=True):
    """One NUMA node. Amounts in milli-units, so that a share of a reservation is exact: 2 CPUs are 2000, 1 KiB is 1024000."""

    name: str
    capacity_milli: dict[str, int]
    allocatable_milli: dict[str, int]


def zones_of(topology: MachineTopology) -> tuple[Zone, ...]:
    """Return the zones of a machine, by number of the NUMA node."""
    reserved = {}
    if topology.numa_reservation:
        reserved = {"cpu": topology.reserved_cpu_milli, "memory": topology.reserved_memory_bytes * 1000}
    return zones(Counter(cpu.node for cpu in topology.cpus), topology.numa_nodes, reserved)


def zones(cpus: Mapping[int, int], numa_nodes: Sequence[NumaNode], reserved_milli: Mapping[str, int]) -> tuple[Zone, ...]:
    """Return the zones of NUMA nodes; `cpus`: how many each has, by number; a node of memory alone has none.
    `reserved_milli`: of the whole machine, by resource."""
    found = []
    for numa in sorted(numa_nodes, key=lambda each: each.node):
        large, small = numa.hugepages_1gi * GIB, numa.hugepages_2mi * 2 * MIB
        amounts = {
            "cpu": cpus.get(numa.node, 0),
            "hugepages-1Gi": large,
            "hugepages-2Mi": small,
            "memory": max(numa.memory_bytes - large - small, 0),
        }
        capacity = {name: amount * 1000 for name, amount in amounts.items()}
        shares = {name: share_of_zone(reserved_milli.get(name, 0), len(numa_nodes)) for name in capacity}
        left = {name: max(amount - shares[name], 0) for name, amount in capacity.items()}
        found.append(Zone(f"node-{numa.node}", capacity, left))
    return tuple(found)


def share_of_zone(milli: int, count: int) -> int:
    """Return the share of each of `count` zones, rounded up; 0 where there are none."""
    return -(-milli // count) if count > 0 else 0


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def cpu_basic_info_json(cpu: CpuBasicInfo) -> str:
    """Return the text of annotation `cpu-basic-info`."""
    return _json(
        {
            "cpuModel": cpu.cpu_model,
            "hyperThreadEnabled": cpu.hyper_thread_enabled,
            "turboEnabled": cpu.turbo_enabled,
            "catL3CbmMask": cpu.cat_l3_cbm_mask,
            "vendorID": cpu.vendor_id,
        }
    )


def cpu_topology_json(cpus: Iterable[LogicalCPU]) -> str:
    """Return the text of annotation `cpu-topology`: the CPUs by number."""
    ordered = sorted(cpus, key=lambda cpu: cpu.cpu)
    return _json({"detail": [{"id": cpu.cpu, "core": cpu.core, "socket": cpu.socket, "node": cpu.node} for cpu in ordered]})


def topology_policy(policy: str, scope: str) -> str:
    """Return the kubelet's topology manager policy as NodeResourceTopology names it; None unless both are known."""
    if policy not in _POLICIES or scope not in _SCOPES:
        return NO_POLICY
    return _POLICIES[policy] + _SCOPES[scope]


def annotations_of(topology: MachineTopology) -> dict[str, str]:
    """Return the annotations of a machine's NodeResourceTopology."""
    kubelet = topology.kubelet
    policy: dict[str, object] = {"policy": kubelet.cpu_manager_policy}
    if kubelet.cpu_manager_options:
        policy["options"] = kubelet.cpu_manager_options
    if kubelet.reserved_cpus:
        policy["reservedCPUs"] = kubelet.reserved_cpus
    found = {
        ANNOTATION_CPU_BASIC_INFO: cpu_basic_info_json(topology.cpu),
        ANNOTATION_CPU_TOPOLOGY: cpu_topology_json(topology.cpus),
        ANNOTATION_KUBELET_CPU_POLICY: _json(policy),
        ANNOTATION_NODE_RESERVATION: topology.reservation or "{}",
        ANNOTATION_SYSTEM_QOS_RESOURCE: topology.system_qos or "{}",
    }
    pools = {
        ANNOTATION_CPU_SHARED_POOLS: topology.shared_pools,
        ANNOTATION_BE_CPU_SHARED_POOLS: topology.best_effort_pools,
    }
    for name, shown in pools.items():
        if shown:
            found[name] = _json([{"socket": pool.socket, "node": pool.node, "cpuset": pool.cpuset} for pool in shown])
    if topology.pod_cpus:
        found[ANNOTATION_POD_CPU_ALLOCS] = _json(
            [
                {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid, "cpuset": pod.cpuset, "managedByKubelet": True}
                for pod in topology.pod_cpus
            ]
        )
    return found


def annotations_changed(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return which annotation differs first, as a message; empty where none does. Texts compare as JSON values; one that is
    absent on both sides is the same, one that is absent on one side is not."""
    if not old:
        return "metadata changed"
    for key in COMPARED:
        if (key in old) != (key in new) or (key in old and not _same_json(old[key], new[key])):
            return f"annotations changed, key {key}"
    return ""


def _same_json(one: str, other: str) -> bool:
    return one == other or (_decoded(one) is not _NO_JSON and _decoded(one) == _decoded(other))


def _decoded(text: str) -> object:
    try:
        decoded: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return _NO_JSON
    return decoded


def topology_changed(old: MachineTopology | None, new: MachineTopology) -> str:
    """Return the first difference of a machine's topology as a message; empty without one."""
    if old == new:
        return ""
    if old is None:
        return "metadata changed"
    found = annotations_changed(annotations_of(old), annotations_of(new))
    if found:
        return found
    return "zones changed" if zones_of(old) != zones_of(new) else "facts of the machine changed"

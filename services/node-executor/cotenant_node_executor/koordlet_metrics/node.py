"""The node's metrics by koordlet's names: usage, NUMA nodes, CPU pools, caches, host applications, how reading went.

In: the newest sample, the newest readings of the slow collectors, the node's report of its machine. Out: values with labels.
Source: koordlet's metrics (v1.8); the usage of a NUMA node by the system is the rule of its collector:

    memory  max(used there - pages of pods there, 0); host applications are not subtracted
    cpu     the system's CPU, divided among NUMA nodes as the whole node's

Bound: NUMA nodes, caches and CPUs of the machine, host applications of the node SLO.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from cotenant.domain.node import overcommitted_amounts
from cotenant.domain.qos import QoSClass
from cotenant.events.node.topology import CpuPool, MachineTopology
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from cotenant.runtime.figures import Value
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.koordlet_metrics.values import Defined, OfCore, slow_of, snapshot_of, usage
from cotenant_node_executor.sampling.machine import DISKS
from cotenant_node_executor.sampling.slow.readings import FACTS, NUMA
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.targets.cpulist import parse_cpu_list

OVERCOMMITTED = {BATCH_CPU: "integer", MID_CPU: "integer", BATCH_MEMORY: "byte", MID_MEMORY: "byte"}
"""With their units: batch-cpu and mid-cpu count milli-CPU."""
CLASSES = frozenset((QoSClass.LSR.value, QoSClass.LS.value, QoSClass.BE.value))
"""Of which koordlet shows the caches: these have resctrl groups of their names."""

PoolsOf = Callable[[MachineTopology], Sequence[CpuPool]]


def _from_snapshot(read: Callable[[UsageSnapshot], Iterable[Value]]) -> OfCore:
    def values(core: ExecutorCore) -> Iterable[Value]:
        snapshot = snapshot_of(core)
        return read(snapshot) if snapshot is not None else ()

    return values


def _node_cpu(snapshot: UsageSnapshot) -> Iterator[Value]:
    if snapshot.node.cpu_milli is not None:
        yield snapshot.node.cpu_milli / 1000, {}


def _node_memory(snapshot: UsageSnapshot) -> Iterator[Value]:
    yield snapshot.node.memory_bytes, {}


def _node_usage(snapshot: UsageSnapshot) -> Iterator[Value]:
    return usage(snapshot.node.cpu_milli, snapshot.node.memory_bytes)


def _system_usage(snapshot: UsageSnapshot) -> Iterator[Value]:
    return usage(snapshot.system.cpu_milli, snapshot.system.memory_bytes)


def _numa_usage(core: ExecutorCore) -> Iterator[Value]:
    for each in slow_of(core).numa:
        for value, labels in usage(each.cpu_milli, each.memory_bytes):
            yield value, {"numa_node_id": str(each.node), **labels}


def _numa_system_usage(core: ExecutorCore) -> Iterator[Value]:
    snapshot, numa = snapshot_of(core), slow_of(core).numa
    system = snapshot.system.cpu_milli if snapshot is not None else None
    whole = sum(each.cpu_milli for each in numa)
    for each in numa:
        cpu = None if system is None else system * each.cpu_milli / whole if whole else 0
        memory = None if each.pods_bytes is None else max(each.memory_bytes - each.pods_bytes, 0)
        for value, labels in usage(cpu, memory):
            yield value, {"numa_node_id": str(each.node), **labels}


def _best_effort_memory(core: ExecutorCore) -> Iterator[Value]:
    for each in slow_of(core).numa:
        if each.best_effort_bytes is not None:
            yield each.best_effort_bytes, {"numa_node_id": str(each.node)}


def _applications(core: ExecutorCore) -> Iterator[Value]:
    snapshot = snapshot_of(core)
    found = snapshot.host_applications if snapshot is not None else {}
    for asked in core.wanted.host_applications:
        if asked.name in found:
            own = {"host_application_name": asked.name, "priority_class": asked.priority, "qos": asked.qos}
            used = found[asked.name].usage
            for value, labels in usage(used.cpu_milli, used.memory_bytes):
                yield value, {**own, "resource": labels["resource"]}


def _allocatable(core: ExecutorCore) -> Iterator[Value]:
    resources = core.resources
    offered = {} if resources is None or resources.withdrawn else overcommitted_amounts(resources)
    for name, unit in OVERCOMMITTED.items():
        yield offered.get(name, 0), {"resource": name, "unit": unit}


def _pool_cpus(of: PoolsOf, core: ExecutorCore) -> frozenset[int] | None:
    """None before the machine is known."""
    reported = core.topology.reported
    if reported is None:
        return None
    return frozenset(cpu for pool in of(reported) for cpu in parse_cpu_list(pool.cpuset))


def _pool_size(of: PoolsOf, core: ExecutorCore) -> Iterator[Value]:
    cpus = _pool_cpus(of, core)
    if cpus is not None:
        yield len(cpus), {}


def _pool_members(of: PoolsOf, core: ExecutorCore) -> Iterator[Value]:
    for cpu in sorted(_pool_cpus(of, core) or ()):
        yield 1, {"cpu": str(cpu)}


def _shared(topology: MachineTopology) -> Sequence[CpuPool]:
    return topology.shared_pools


def _best_effort(topology: MachineTopology) -> Sequence[CpuPool]:
    return topology.best_effort_pools


def _cache_occupancy(core: ExecutorCore) -> Iterator[Value]:
    for group in slow_of(core).resctrl:
        for cache in group.caches if group.group in CLASSES else ():
            if cache.llc_bytes is not None:
                yield cache.llc_bytes, {"cache_id": str(cache.cache), "qos": group.group}


def _memory_traffic(core: ExecutorCore) -> Iterator[Value]:
    """The counters as the processor has them, since its start: so does koordlet."""
    for group in slow_of(core).resctrl:
        for cache in group.caches if group.group in CLASSES else ():
            for kind, value in (("mbm_total_bytes", cache.total_bytes), ("mbm_local_bytes", cache.local_bytes)):
                if value is not None:
                    yield value, {"cache_id": str(cache.cache), "qos": group.group, "mb_type": kind}


def _collected(collector: str, core: ExecutorCore) -> Iterator[Value]:
    found = slow_of(core).collected.get(collector)
    if found is not None:
        yield found.succeeded, {"status": "succeeded"}
        yield found.failed, {"status": "failed"}


METRICS: tuple[Defined, ...] = (
    ("node_used_cpu_cores", "CPU that the node uses", _from_snapshot(_node_cpu)),
    ("node_used_memory_bytes", "Memory that the node uses, without page cache", _from_snapshot(_node_memory)),
    ("node_metric_node_usage", "Usage of the node by resource", _from_snapshot(_node_usage)),
    ("node_metric_system_usage", "Usage outside of pods and host applications", _from_snapshot(_system_usage)),
    ("node_metric_numa_node_usage", "Usage of each NUMA node", _numa_usage),
    ("node_metric_numa_system_usage", "Usage of each NUMA node outside of pods", _numa_system_usage),
    ("node_resource_allocatable", "Batch and mid resources that the node offers", _allocatable),
    ("be_numa_node_memory_bytes", "Memory of best-effort work on each NUMA node", _best_effort_memory),
    ("host_application_resource_usage", "CPU in cores and memory in bytes by host application", _applications),
    ("cpuset_share_pool_cpu_cores", "CPUs of the share pools", partial(_pool_size, _shared)),
    ("cpuset_be_share_pool_cpu_cores", "CPUs of the share pools of best-effort work", partial(_pool_size, _best_effort)),
    ("cpuset_share_pool_info", "Each CPU of the share pools", partial(_pool_members, _shared)),
    ("cpuset_be_share_pool_info", "Each CPU of the share pools of best-effort work", partial(_pool_members, _best_effort)),
    ("resctrl_llc_occupancy", "Bytes of each last-level cache that a QoS class occupies", _cache_occupancy),
    ("resctrl_memory_bandwidth", "Bytes that a QoS class moved between each cache and memory", _memory_traffic),
    ("collect_node_local_storage_info_status", "Readings of disks and mounts, by outcome", partial(_collected, DISKS)),
    ("collect_node_cpu_info_status", "Readings of the machine's facts, by outcome", partial(_collected, FACTS)),
    ("collect_node_numa_info_status", "Readings of the NUMA nodes, by outcome", partial(_collected, NUMA)),
)

"""CPUs that pods share, and exclusive ones: the pools, the node's reservation, a kubelet's assignments.

In: a machine's CPUs, its pods' CPUs, the texts of annotations and of the kubelet's files. Out: pools by NUMA node, CPU lists.
Source: koordlet's NodeResourceTopology reporter.

Pools: all CPUs without those that a kubelet assigned and those of pods; from the best-effort pool only LSE pods' CPUs
are removed. Then the node's reservation is removed from both, and system pods' CPUs where they are exclusive. A kubelet's own
reserved CPUs stay: bursting pods need somewhere to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set

import msgspec

from cotenant.domain.cpu_packing import take_cpus
from cotenant.events.node.topology import CpuPool, LogicalCPU, PodCpus
from cotenant.model.cpu_lists import format_cpu_list, parse_cpu_list
from cotenant.model.quantities import QuantityError, Scalar, parse_milli

LSE, LS, BE = "LSE", "LS", "BE"
STATIC = "static"


class HeldCpus(msgspec.Struct, frozen=True):
    """A pod as pools see it. `qos`: its label's text, empty where it has none. `cpus`: those it was given by the scheduler."""

    namespace: str
    name: str
    uid: str
    qos: str = ""
    cpus: frozenset[int] = frozenset()


class SystemQoS(msgspec.Struct, frozen=True, rename={"exclusive": "cpusetExclusive"}):
    """The node's annotation `node.koordinator.sh/system-qos-resource`."""

    cpuset: str = ""
    exclusive: bool | None = None


class NodeReserved(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of the node's reservation annotation, as NodeResourceTopology shows it."""

    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    resources: dict[str, Scalar] | None = None
    apply_policy: str = msgspec.field(default="", name="applyPolicy")


class KubeletConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a kubelet's configuration that concerns CPUs."""

    cpu_manager_policy: str = ""
    cpu_manager_policy_options: dict[str, str] = {}
    topology_manager_policy: str = ""
    topology_manager_scope: str = ""
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    system_reserved: dict[str, Scalar] = {}
    kube_reserved: dict[str, Scalar] = {}


class _ManagerState(msgspec.Struct, frozen=True):
    entries: dict[str, dict[str, str] | None] | None = None


def shared_pools(
    cpus: Sequence[LogicalCPU],
    kubelet_allocated: Set[int],
    pods: Iterable[HeldCpus],
    reserved: Set[int],
    system: SystemQoS | None,
) -> tuple[tuple[CpuPool, ...], tuple[CpuPool, ...]]:
    """Return the pool of latency-sensitive and that of best-effort pods."""
    shared = {cpu.cpu for cpu in cpus} - kubelet_allocated
    best_effort = set(shared)
    for pod in pods:
        shared -= pod.cpus
        if pod.qos == LSE:
            best_effort -= pod.cpus

    def pools(free: Set[int]) -> tuple[CpuPool, ...]:
        return without_system_cpus(_without(_by_node(cpus, free), reserved), system)

    return pools(shared), pools(best_effort)


def _by_node(cpus: Iterable[LogicalCPU], free: Set[int]) -> list[CpuPool]:
    nodes: dict[int, list[LogicalCPU]] = defaultdict(list)
    for cpu in cpus:
        if cpu.cpu in free:
            nodes[cpu.node].append(cpu)
    found = [
        CpuPool(socket=group[0].socket, node=node, cpuset=format_cpu_list(cpu.cpu for cpu in group))
        for node, group in nodes.items()
    ]
    return sorted(found, key=lambda pool: (pool.socket, pool.node))


def _without(pools: Iterable[CpuPool], taken: Set[int]) -> tuple[CpuPool, ...]:
    """A pool that is emptied here stays, with an empty list."""
    return tuple(
        msgspec.structs.replace(pool, cpuset=format_cpu_list(set(parse_cpu_list(pool.cpuset)) - taken)) if taken else pool
        for pool in pools
    )


def without_system_cpus(pools: Iterable[CpuPool], system: SystemQoS | None) -> tuple[CpuPool, ...]:
    """Return the pools without the CPUs of system pods: unless they are shared, or their list cannot be read."""
    if system is None or system.exclusive is False:
        return tuple(pools)
    return _without(pools, frozenset(cpus_or_none(system.cpuset)))


def cpus_or_none(text: str) -> tuple[int, ...]:
    """Return the CPUs of a list; none where it cannot be read."""
    try:
        return parse_cpu_list(text)
    except ValueError:
        return ()


def system_qos(text: str) -> SystemQoS | None:
    """Return the node's CPUs for system pods; None where there are none, or the annotation cannot be read."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=SystemQoS)
    except (msgspec.DecodeError, RecursionError):
        return None


def node_reserved(cpus: Sequence[LogicalCPU], text: str) -> NodeReserved:
    """Return what the node's annotation reserves: the CPUs that it names, or as many as it asks for. Nothing where it cannot be
    read, or asks for more CPUs than there are."""
    if not text:
        return NodeReserved()
    try:
        given = msgspec.json.decode(text, type=NodeReserved)
        if given.reserved_cpus:
            chosen = format_cpu_list(cpus_or_none(given.reserved_cpus))
        else:
            chosen = _packed(cpus, parse_milli((given.resources or {}).get("cpu", 0)))
    except (msgspec.DecodeError, RecursionError, QuantityError):
        return NodeReserved()
    return msgspec.structs.replace(given, reserved_cpus=chosen)


def _packed(cpus: Sequence[LogicalCPU], milli: int) -> str:
    try:
        return format_cpu_list(take_cpus(cpus, {cpu.cpu for cpu in cpus}, -(-milli // 1000)))
    except ValueError:
        return ""


def kubelet_reserved_cpus(cpus: Sequence[LogicalCPU], config: KubeletConfig) -> str:
    """Return the CPUs that a kubelet with the static policy keeps for the system. Raises ValueError where it keeps none, or its
    amounts cannot be read: such a kubelet does not start."""
    if config.cpu_manager_policy != STATIC:
        return ""
    if config.reserved_system_cpus:
        return format_cpu_list(parse_cpu_list(config.reserved_system_cpus))
    milli = sum(parse_milli(amounts.get("cpu", 0)) for amounts in (config.system_reserved, config.kube_reserved))
    count = -(-milli // 1000)
    if count < 1:
        raise ValueError("the kubelet's CPU manager policy is static and neither systemReserved nor kubeReserved has cpu")
    return format_cpu_list(take_cpus(cpus, {cpu.cpu for cpu in cpus}, count))


def kubelet_allocations(content: str, pods: Iterable[HeldCpus]) -> tuple[PodCpus, ...]:
    """Return the CPUs that a kubelet gave pods, by uid, from its `cpu_manager_state`. Pods with label LS or BE, and those whose
    CPUs the scheduler chose, are not the kubelet's. Raises ValueError for a text that is no such state."""
    try:
        entries = msgspec.json.decode(content, type=_ManagerState).entries or {}
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"cpu_manager_state: {error}") from error
    known = {pod.uid: pod for pod in pods}
    found = []
    for uid, containers in sorted(entries.items()):
        pod = known.get(uid)
        if pod is not None and (pod.qos in (LS, BE) or pod.cpus):
            continue
        given = {cpu for text in (containers or {}).values() for cpu in cpus_or_none(text)}
        if given:
            name = (pod.namespace, pod.name) if pod is not None else ("", "")
            found.append(PodCpus(namespace=name[0], name=name[1], uid=uid, cpuset=format_cpu_list(given)))
    return tuple(found)

"""The CPUs that a container may run on.

In: a pod's allocation, class and group, the node's pools of shared CPUs. Out: a CPU list as it is written, "" for a container
that is not pinned (and whose file stays as it is), None for no value. The first rule that applies:

    1 CPUs of its own: these
    2 CPU on NUMA nodes: the pools of these nodes; for batch pods, where batch CPUs are managed by NUMA node, the batch pools
    3 SYSTEM: the CPUs kept for system pods, where there are some
    4 LS: all share pools
    5 the best-effort group: not pinned, suppression sets it
    6 all share pools, except where the kubelet's static policy pins containers itself

Share pools leave out the CPUs of LSE and LSR pods, reserved ones and those kept for system pods; batch pools leave out those
of LSE pods, reserved and kept ones. Host applications labelled LS get all share pools. Source: cpuset hook, koordlet rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass
from cotenant_node_executor.strategies.situation import Processor
from cotenant_node_executor.targets.cgroup.paths import kube_qos_of_dir
from cotenant_node_executor.targets.cpulist import format_cpu_list

STATIC = "static"
NOT_PINNED = ""


class SharePool(Struct, frozen=True):
    """CPUs of one socket and NUMA node that pods share."""

    socket: int
    node: int
    cpuset: str


class CpuPools(Struct, frozen=True):
    """The node's CPUs for shared use. `manages_batch`: batch pods are bound to the NUMA nodes that they were given."""

    share: tuple[SharePool, ...] = ()
    batch: tuple[SharePool, ...] = ()
    system: str = ""
    kubelet_policy: str = ""
    manages_batch: bool = False


def container_cpuset(pools: CpuPools, qos: QoSClass, bound: str, nodes: Sequence[int], group: str) -> str | None:
    """The CPU list of a pod's containers. `bound`: its own CPUs; `nodes`: the NUMA nodes that it was given CPU of."""
    if bound:
        return bound
    batch = qos is QoSClass.BE
    if nodes and (pools.manages_batch or not batch):
        return _joined(pools.batch if batch else pools.share, nodes)
    if qos is QoSClass.SYSTEM and pools.system:
        return pools.system
    if qos is QoSClass.LS:
        return _joined(pools.share)
    if kube_qos_of_dir(group) is KubeQoS.BEST_EFFORT:
        return NOT_PINNED
    return None if pools.kubelet_policy == STATIC else _joined(pools.share)


def host_application_cpuset(pools: CpuPools, qos: str) -> str:
    """The CPU list of a host application. Raises ValueError for any class but LS."""
    if qos != QoSClass.LS:
        raise ValueError(f"host application of class {qos or 'none'}: only LS ones get CPUs of the share pools")
    return _joined(pools.share)


def _joined(pools: Sequence[SharePool], nodes: Sequence[int] | None = None) -> str:
    chosen = pools if nodes is None else [pool for node in nodes for pool in pools if pool.node == node]
    return ",".join(pool.cpuset for pool in chosen)


def pools_without(processors: Iterable[Processor], taken: frozenset[int]) -> tuple[SharePool, ...]:
    """The CPUs that are not taken, by NUMA node and socket; a pool without any CPU is left out."""
    found: dict[tuple[int, int], list[int]] = {}
    for processor in processors:
        if processor.cpu not in taken:
            found.setdefault((processor.node, processor.socket), []).append(processor.cpu)
    return tuple([SharePool(socket, node, format_cpu_list(found[node, socket])) for node, socket in sorted(found)])

"""Chooses CPUs for a requested number: kubelet's packed allocation.

In: the machine's CPUs, those that are free, how many. Out: the CPUs taken. Rule (kubelet's `takeByTopologyNUMAPacked`): whole
free sockets while they fit, then whole free NUMA nodes, whole free cores, single CPUs. Candidates are ordered by how many of
their CPUs are free, the fewest first, then by number: NUMA nodes within their sockets, cores within their NUMA nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set

from cotenant.events.node.topology import LogicalCPU

_Key = tuple[int, ...]


def take_cpus(topology: Iterable[LogicalCPU], available: Set[int], count: int) -> frozenset[int]:
    """Return `count` of the available CPUs; none for a count below 1. Raises ValueError where there are not as many."""
    if count < 1:
        return frozenset()
    if count > len(available):
        raise ValueError(f"{count} CPUs are asked for and {len(available)} are free")
    cpus = sorted(topology, key=lambda cpu: cpu.cpu)
    free = set(available)
    left = count
    for key_of in (_socket, _numa_node, _core):
        left = _take_whole(cpus, free, left, key_of)
    for core in _ordered(cpus, free, _core):
        for cpu in core:
            if left and cpu in free:
                free.discard(cpu)
                left -= 1
    if left:
        raise ValueError(f"{count} CPUs are asked for and {count - left} free ones are in the topology")
    return frozenset(available - free)


def _socket(cpu: LogicalCPU) -> _Key:
    return (cpu.socket,)


def _numa_node(cpu: LogicalCPU) -> _Key:
    return (cpu.socket, cpu.node)


def _core(cpu: LogicalCPU) -> _Key:
    return (cpu.socket, cpu.node, cpu.core)


def _take_whole(cpus: Sequence[LogicalCPU], free: set[int], left: int, key_of: Callable[[LogicalCPU], _Key]) -> int:
    """Take whole groups that are free as long as they fit; return what is left to take."""
    size: dict[_Key, int] = defaultdict(int)
    for cpu in cpus:
        size[key_of(cpu)] += 1
    whole = {key_of(cpu): True for cpu in cpus}
    for cpu in cpus:
        if cpu.cpu not in free:
            whole[key_of(cpu)] = False
    members = {cpu.cpu: key_of(cpu) for cpu in cpus}
    for group in _ordered(cpus, free, key_of):
        key = members[group[0]]
        if whole[key] and size[key] <= left:
            free.difference_update(group)
            left -= size[key]
    return left


def _ordered(
    cpus: Sequence[LogicalCPU], free: Set[int], key_of: Callable[[LogicalCPU], _Key]
) -> list[list[int]]:
    """Return the free CPUs by group, in the order of candidates; groups without a free CPU are left out."""
    free_of: dict[_Key, int] = defaultdict(int)
    groups: dict[_Key, list[int]] = defaultdict(list)
    for cpu in cpus:
        if cpu.cpu in free:
            key = key_of(cpu)
            groups[key].append(cpu.cpu)
            for length in range(1, len(key) + 1):
                free_of[key[:length]] += 1

    def rank(key: _Key) -> list[tuple[int, int]]:
        return [(free_of[key[:length]], key[length - 1]) for length in range(1, len(key) + 1)]

    return [groups[key] for key in sorted(groups, key=rank)]

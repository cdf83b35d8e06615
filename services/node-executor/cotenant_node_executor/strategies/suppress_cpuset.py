"""Suppression by cpuset: which CPUs batch work may run on.

In: the suppress quantity, the processors, the current set of the best-effort group, the CPUs that pods hold
exclusively, the CPUs that are reserved. Out: a new CPU list, or None where nothing is to be written.

    n = max(ceil(quantity / 1000), 2), growing by at most ceil(10 % of all processors) a cycle, shrinking at once;
    n is divided between CPUs of LSR pods (shared with batch) and free ones by their sizes; LSE and reserved CPUs are
    never used; whole physical cores first, round-robin over (NUMA node, socket).

Source: CPU suppress with the cpuset policy, koordlet rule. Where both parts are empty nothing is done.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cotenant.domain.qos import QoSClass
from cotenant_node_executor.strategies.situation import Processor
from cotenant_node_executor.targets.cpulist import format_cpu_list

MIN_CPUS = 2
DEAD_BAND_PERCENT = 1
"""Of the node: by so much the quantity passes what the present CPUs are before there is one more, as with the quota."""


def select_cpus(count: int, processors: Sequence[Processor]) -> list[int]:
    """`count` CPUs in the order of choice, or none at all where there are not enough.

    The bucket key may collide for unusual topologies; two (node, socket) pairs then share a bucket, harmlessly.
    """
    return list(_selected(count, tuple(processors)))


@lru_cache(maxsize=1024)
def _selected(count: int, processors: tuple[Processor, ...]) -> Sequence[int]:
    size = len(processors)
    if size < count or count <= 0:
        return []
    grouped: dict[int, list[Processor]] = {}
    for processor in processors:
        grouped.setdefault((processor.node + size) * (processor.socket + 1), []).append(processor)
    buckets = [sorted(bucket, key=lambda p: (p.core, p.cpu)) for bucket in grouped.values()]
    buckets.sort(key=lambda bucket: (-len(bucket), bucket[0].cpu))
    used: set[int] = set()
    chosen: list[int] = []
    at = _take_cores(count, buckets, used, chosen)
    _take_threads(count, buckets, at, used, chosen)
    return chosen


def _take_cores(count: int, buckets: list[list[Processor]], used: set[int], chosen: list[int]) -> int:
    """Pick whole cores round-robin; return the index of the next bucket."""
    at, before = 0, -1
    while count - len(chosen) > 1:
        need = count - len(chosen)
        if at == 0:
            if before == need:
                break
            before = need
        bucket = buckets[at]
        for first, second in itertools.pairwise(bucket):
            if first.cpu not in used and second.cpu not in used and first.core == second.core:
                used.update((first.cpu, second.cpu))
                chosen.extend((first.cpu, second.cpu))
                break
        at = (at + 1) % len(buckets)
    return at


def _take_threads(count: int, buckets: list[list[Processor]], at: int, used: set[int], chosen: list[int]) -> None:
    """Pick single CPUs round-robin from bucket `at` on."""
    start, before = at, -1
    while len(chosen) < count:
        need = count - len(chosen)
        if at == start:
            if before == need:
                return
            before = need
        for processor in buckets[at]:
            if processor.cpu not in used:
                used.add(processor.cpu)
                chosen.append(processor.cpu)
                break
        at = (at + 1) % len(buckets)


def steadied(quantity_milli: int, cpus: int, capacity_milli: int) -> int:
    """The quantity, or what so many present CPUs are if it is above that by less than the dead band: a load that lies where one
    CPU ends and the next begins does not widen and narrow the set each cycle."""
    above = quantity_milli - cpus * 1000
    return cpus * 1000 if above > 0 and above * 100 < capacity_milli * DEAD_BAND_PERCENT else quantity_milli


def next_cpuset(
    quantity_milli: int,
    processors: Sequence[Processor],
    current: frozenset[int],
    owners: Mapping[int, str],
    excluded: frozenset[int] = frozenset(),
) -> str | None:
    """The CPU list for the best-effort group, or None when nothing can be chosen."""
    exclusive: list[Processor] = []
    shared: list[Processor] = []
    for processor in processors:
        owner = owners.get(processor.cpu, "")
        if processor.cpu in excluded or owner == QoSClass.LSE:
            continue
        (exclusive if owner == QoSClass.LSR else shared).append(processor)
    usable = len(exclusive) + len(shared)
    if usable == 0:
        return None
    want = max(-(-quantity_milli // 1000), MIN_CPUS)
    step = -(-len(processors) // 10)
    want = min(want, len(current) + step)
    part = want * len(exclusive) // usable
    chosen = select_cpus(part, exclusive) + select_cpus(want - part, shared)
    return format_cpu_list(chosen) if chosen else None


def recover_cpuset(processors: Sequence[Processor], owners: Mapping[int, str], excluded: frozenset[int]) -> str:
    """The widest set that batch work may have: all CPUs but the reserved ones and those of LSE pods."""
    return format_cpu_list(
        p.cpu for p in processors if p.cpu not in excluded and owners.get(p.cpu, "") != QoSClass.LSE
    )


def cpuset_targets(
    new: str, recover: str, static_policy: bool, dirs_by_depth: Sequence[Sequence[str]]
) -> dict[str, str]:
    """The CPU list for each directory of the best-effort tree (depth 0 the class, 1 pods, 2 containers).

    Under a static CPU policy only containers are narrowed: the class and the pods must stay wide, or creating a
    container in them fails.
    """
    targets: dict[str, str] = {}
    for depth, names in enumerate(dirs_by_depth):
        for name in names:
            targets[name] = recover if static_policy and depth < 2 else new
    return targets

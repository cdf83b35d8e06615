"""Suppression by cpuset: the CPUs that batch work may run on.

In: the suppress quantity, the processors, the current set of the best-effort group, pods' exclusive CPUs, reserved CPUs.
Out: a new CPU list, or None for no write.

    n = max(ceil(quantity / 1000), 2), growing by at most ceil(10 % of all processors) per cycle, shrinking at once;
    n is divided between CPUs of LSR pods (shared with batch) and free ones in proportion; LSE and reserved CPUs are
    never used; whole physical cores first, round-robin over (NUMA node, socket).

Source: CPU suppress with the cpuset policy, koordlet rule. Nothing is written where both parts are empty.
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
"""Dead band as a share of the node: a CPU is added only if the quantity exceeds the present CPUs by it, as with the quota."""


def select_cpus(count: int, processors: Sequence[Processor]) -> list[int]:
    """Choose `count` CPUs in order of preference; empty if there are not enough.

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
    """Choose whole cores round-robin; return the index of the next bucket."""
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
    """Choose single CPUs round-robin, beginning with bucket `at`."""
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


def with_dead_band(quantity_milli: int, cpus: int, capacity_milli: int) -> int:
    """The quantity in milli-CPU, or the present CPUs' amount if the quantity exceeds it by less than the dead band. A load near
    a CPU boundary then does not change the set every cycle."""
    above = quantity_milli - cpus * 1000
    return cpus * 1000 if above > 0 and above * 100 < capacity_milli * DEAD_BAND_PERCENT else quantity_milli


def next_cpuset(
    quantity_milli: int,
    processors: Sequence[Processor],
    current: frozenset[int],
    owners: Mapping[int, str],
    excluded: frozenset[int] = frozenset(),
) -> str | None:
    """The CPU list for the best-effort group; None if no CPU can be chosen."""
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
    """The widest set for batch work: all CPUs except reserved ones and those of LSE pods."""
    return format_cpu_list(
        p.cpu for p in processors if p.cpu not in excluded and owners.get(p.cpu, "") != QoSClass.LSE
    )


def cpuset_targets(
    new: str, recover: str, static_policy: bool, dirs_by_depth: Sequence[Sequence[str]]
) -> dict[str, str]:
    """The CPU list for each directory of the best-effort tree (depth 0 the class, 1 pods, 2 containers).

    Under a static CPU policy only containers are narrowed: creating a container in a narrowed class or pod directory fails.
    """
    targets: dict[str, str] = {}
    for depth, names in enumerate(dirs_by_depth):
        for name in names:
            targets[name] = recover if static_policy and depth < 2 else new
    return targets

"""Busy threads on CPUs of their own.

In: what each thread used in the last sample, where the busy ones were put before, the CPUs. Out: where they are put now. Two
latency-sensitive threads that share a CPU while the next one runs best-effort work only cause most of the delay that cpu.idle
leaves. A thread keeps its CPU until it has been idle for IDLE_SAMPLES; a new one gets a free CPU, the first of each
physical core before its siblings. With more busy threads than CPUs none is pinned: the kernel's balancing then serves
them better than a fixed share.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from cotenant_node_executor.strategies.situation import Processor

BUSY_MILLI, IDLE_MILLI = 20, 5
IDLE_SAMPLES = 10


class Put(Struct, frozen=True):
    """A thread's CPU, and for how many samples it has been idle."""

    cpu: int
    idle: int = 0


def placed(usage: Mapping[int, int], before: Mapping[int, Put], cpus: Sequence[int]) -> dict[int, Put]:
    """The threads that have a CPU of their own. `usage`: milli-CPU by thread id; `cpus`: in order of use."""
    allowed = set(cpus)
    kept: dict[int, Put] = {}
    for tid, put in sorted(before.items()):
        idle = 0 if usage.get(tid, 0) >= IDLE_MILLI else put.idle + 1
        if tid in usage and idle < IDLE_SAMPLES and put.cpu in allowed:
            kept[tid] = Put(put.cpu, idle)
    busy = [tid for tid, milli in usage.items() if milli >= BUSY_MILLI and tid not in kept]
    new = sorted(busy, key=lambda tid: (-usage[tid], tid))
    taken = {put.cpu for put in kept.values()}
    free = [cpu for cpu in cpus if cpu not in taken]
    if len(taken) < len(kept) or len(new) > len(free):
        return {}
    return kept | {tid: Put(cpu) for tid, cpu in zip(new, free, strict=False)}


def spread_order(processors: Iterable[Processor], allowed: frozenset[int]) -> tuple[int, ...]:
    """The allowed CPUs, the first of each core before the second ones."""
    seen: dict[int, int] = defaultdict(int)
    ranked: list[tuple[int, int]] = []
    for each in sorted(processors, key=lambda each: each.cpu):
        if each.cpu in allowed:
            ranked.append((seen[each.core], each.cpu))
            seen[each.core] += 1
    return tuple(cpu for _, cpu in sorted(ranked))

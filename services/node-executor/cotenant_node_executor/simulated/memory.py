"""OOM kills on a simulated machine, by the kernel's rules.

In: each pod's memory, limit and oom_score_adj. Out: the killed pods in order, and whether the whole machine was out of memory.

    a pod above its limit is killed
    while the others use more than is available, the pod with the largest badness is killed
    badness = memory + adjustment * machine // 1000

A real group never exceeds its limit: the allocation that would exceed it gets a process killed. The model has one memory figure
per pod and not per process, so all its processes are killed. Source: Linux, cgroup v2's memory.max, oom_badness;
`runtime.oom_score`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct


class Holding(Struct, frozen=True):
    """A pod's memory in use. `limit_bytes` -1: no limit."""

    memory_bytes: int
    limit_bytes: int
    score_adj: int


def ended(pods: Mapping[str, Holding], free_bytes: int, machine_bytes: int) -> Iterator[tuple[str, bool]]:
    """Yield the uids of killed pods when `free_bytes` are available to all; True: the machine was out of memory."""
    left = dict(pods)
    for uid in [uid for uid, held in pods.items() if 0 <= held.limit_bytes < held.memory_bytes]:
        del left[uid]
        yield uid, False
    held = sum(holding.memory_bytes for holding in left.values())
    while left and held > free_bytes:
        worst = max(left, key=lambda uid: (left[uid].memory_bytes + left[uid].score_adj * machine_bytes // 1000, uid))
        held -= left.pop(worst).memory_bytes
        yield worst, True

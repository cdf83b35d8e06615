"""Who is ended where memory runs out on a simulated machine, by the kernel's rules.

In: what each pod holds, its limit, its score. Out: the pods that end, in order, and whether it was for the machine's want.

    a pod beyond its limit ends
    while the others hold more than there is, the one with the largest badness ends
    badness = memory + adjustment * machine // 1000

A real group never holds more than its limit: what would take it beyond that ends a process. The model knows a pod's memory and
not that of its processes, so all of them end. Source: Linux, cgroup v2's memory.max, oom_badness; `runtime.oom_score`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct


class Holding(Struct, frozen=True):
    """What a pod holds. `limit_bytes` -1: no limit."""

    memory_bytes: int
    limit_bytes: int
    score_adj: int


def ended(pods: Mapping[str, Holding], free_bytes: int, machine_bytes: int) -> Iterator[tuple[str, bool]]:
    """The uids of pods that end where `free_bytes` are there for all of them; True: for want of the machine's memory."""
    left = dict(pods)
    for uid in [uid for uid, held in pods.items() if 0 <= held.limit_bytes < held.memory_bytes]:
        del left[uid]
        yield uid, False
    held = sum(holding.memory_bytes for holding in left.values())
    while left and held > free_bytes:
        worst = max(left, key=lambda uid: (left[uid].memory_bytes + left[uid].score_adj * machine_bytes // 1000, uid))
        held -= left.pop(worst).memory_bytes
        yield worst, True

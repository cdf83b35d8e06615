"""The CPU time of the threads of pods' groups, for strategies that decide about single threads.

In: the groups to read. Out: each group's threads with their usage since the last reading, in milli-CPU, and how long they
waited for a CPU (run delay), in ms of each second. Only groups that used BUSY_MILLI within the last IDLE_NS are read: in
others no thread is relevant. A thread's first reading is 0.

Bound: MOST_THREADS of all groups together, the first by group and thread; further ones are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

BUSY_MILLI = 20
IDLE_NS = 30_000_000_000
MOST_THREADS = 1024


class ThreadUsage(Struct, frozen=True):
    """One thread."""

    tid: int
    milli: int
    waited_milli: int = 0


Threads = Mapping[str, tuple[ThreadUsage, ...]]
"""By group."""
NO_THREADS: Threads = {}


class ThreadSampler:
    """Keeps the last reading of each thread."""

    def __init__(self, threads_of: Callable[[str], Sequence[int]], proc: Path = Path("/proc")) -> None:
        self._threads_of = threads_of
        self._proc = proc
        self._busy_at: dict[str, int] = {}
        self._last: dict[int, tuple[int, int, int]] = {}

    def read(self, usage: Mapping[str, int | None], now_ns: int) -> Threads:
        """`usage`: the groups and their last usage, in milli-CPU. A group that is left out is dropped."""
        for group, milli in usage.items():
            if milli is not None and milli >= BUSY_MILLI:
                self._busy_at[group] = now_ns
        self._busy_at = {
            group: at for group, at in self._busy_at.items() if group in usage and now_ns - at < IDLE_NS
        }
        last: dict[int, tuple[int, int, int]] = {}
        found: dict[str, tuple[ThreadUsage, ...]] = {}
        for group in sorted(self._busy_at):
            threads: list[ThreadUsage] = []
            for tid in self._threads_of(group):
                counted = self._counted_ns(tid) if len(last) < MOST_THREADS else None
                if counted is None:
                    continue
                used, waited = counted
                before = self._last.get(tid)
                passed = now_ns - before[0] if before is not None else 0
                last[tid] = now_ns, used, waited
                if before is None or passed <= 0 or used < before[1] or waited < before[2]:
                    threads.append(ThreadUsage(tid, 0))
                else:
                    threads.append(ThreadUsage(tid, 1000 * (used - before[1]) // passed, 1000 * (waited - before[2]) // passed))
            found[group] = tuple(threads)
        self._last = last
        return found

    def _counted_ns(self, tid: int) -> tuple[int, int] | None:
        """The time that a thread ran, and that it waited."""
        try:
            ran, waited, *_ = (self._proc / str(tid) / "schedstat").read_bytes().split()
            return int(ran), int(waited)
        except (OSError, ValueError, IndexError):
            return None

"""The CPU time of the threads of pods' groups, for strategies that decide about single threads.

In: the groups to look at. Out: each group's threads with what they used since the last look, in milli-CPU. Only groups that
used BUSY_MILLI within the last IDLE_NS are looked at: in the others no thread can matter. A thread's first reading is 0.

Bound: MOST_THREADS of all groups together, the first by group and thread; what is beyond is not seen.
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


Threads = Mapping[str, tuple[ThreadUsage, ...]]
"""By group."""
NO_THREADS: Threads = {}


class ThreadSampler:
    """Keeps the last reading of each thread."""

    def __init__(self, threads_of: Callable[[str], Sequence[int]], proc: Path = Path("/proc")) -> None:
        self._threads_of = threads_of
        self._proc = proc
        self._busy_at: dict[str, int] = {}
        self._last: dict[int, tuple[int, int]] = {}

    def read(self, usage: Mapping[str, int | None], now_ns: int) -> Threads:
        """`usage`: the groups and what each used last, in milli-CPU. A group that is left out is forgotten."""
        for group, milli in usage.items():
            if milli is not None and milli >= BUSY_MILLI:
                self._busy_at[group] = now_ns
        self._busy_at = {
            group: at for group, at in self._busy_at.items() if group in usage and now_ns - at < IDLE_NS
        }
        last: dict[int, tuple[int, int]] = {}
        found: dict[str, tuple[ThreadUsage, ...]] = {}
        for group in sorted(self._busy_at):
            threads: list[ThreadUsage] = []
            for tid in self._threads_of(group):
                used = self._used_ns(tid) if len(last) < MOST_THREADS else None
                if used is None:
                    continue
                before = self._last.get(tid)
                passed = now_ns - before[0] if before is not None else 0
                milli = 1000 * (used - before[1]) // passed if before is not None and passed > 0 and used >= before[1] else 0
                last[tid] = now_ns, used
                threads.append(ThreadUsage(tid, milli))
            found[group] = tuple(threads)
        self._last = last
        return found

    def _used_ns(self, tid: int) -> int | None:
        try:
            return int((self._proc / str(tid) / "schedstat").read_bytes().split(None, 1)[0])
        except (OSError, ValueError, IndexError):
            return None

"""Whether services wait for CPU, read from their pressure files between two notifications of the kernel.

In: pressure files, polled together with the services' CPU. Out: whether some task of one of them waited for
STALL_US within WINDOW_NS: the condition of the trigger, which the kernel checks only every tenth of its window.

Bound: the first MOST_FILES; a reading of the window for each poll. Other files have their triggers only.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence

MOST_FILES = 8


class Stalls:
    """The files that were last passed."""

    def __init__(self, stall_us: int, window_ns: int) -> None:
        self._stall_us, self._window_ns = stall_us, window_ns
        self._files: dict[str, int] = {}
        """Descriptors by path."""
        self._readings: dict[str, deque[tuple[int, int]]] = {}
        """When, in monotonic ns, and the stalled µs, by path."""

    def watch(self, paths: Sequence[str]) -> None:
        """Read these from now on. One that cannot be opened is left out."""
        wanted = paths[:MOST_FILES]
        for path in [path for path in self._files if path not in wanted]:
            self._drop(path)
        for path in wanted:
            if path not in self._files:
                try:
                    self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:
                    continue
                self._readings[path] = deque()

    def found(self, now_ns: int) -> bool:
        """Poll every file; return whether one has stalled enough. Files of removed groups are skipped."""
        waited = False
        for path, descriptor in tuple(self._files.items()):
            try:
                total = total_us(descriptor)
            except (OSError, ValueError):
                self._drop(path)
                continue
            readings = self._readings[path]
            readings.append((now_ns, total))
            while now_ns - readings[0][0] > self._window_ns:
                readings.popleft()
            waited = waited or total - readings[0][1] >= self._stall_us
        return waited

    def _drop(self, path: str) -> None:
        os.close(self._files.pop(path))
        del self._readings[path]


def total_us(descriptor: int) -> int:
    """How long some task has waited so far, in µs. Raises OSError where the group has gone, ValueError."""
    line = os.pread(descriptor, 256, 0).partition(b"\n")[0]
    return int(line.rpartition(b"total=")[2])

"""Reclaim: the kernel frees memory that a group does not need, page cache first.

In: a group, how many bytes. Out: by how much its usage fell. On v2 `memory.reclaim` frees about the requested amount; on v1
`memory.force_empty` frees as much as possible of the whole group, however little is requested. Both block, so a separate thread
does it: one order at a time, one that comes meanwhile is dropped. Less than requested (EAGAIN) is no error.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from cotenant_node_executor.targets.cgroup.tree import read_file, write_file
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, Knob, Reclaimed, Stat


def reclaim_file(driver: CgroupDriver, group: str) -> Path | None:
    """Return the file of a group that reclaims; None without the memory controller."""
    limit = driver.path(group, Knob.MEMORY_LIMIT)
    if limit is None:
        return None
    return limit.with_name("memory.force_empty" if driver.version is CgroupVersion.V1 else "memory.reclaim")


class Reclaimer:
    """One worker, created with the first order."""

    def __init__(self, driver: CgroupDriver) -> None:
        self._driver = driver
        self._worker: ThreadPoolExecutor | None = None
        self._under_way: Future[Reclaimed] | None = None

    def begin(self, strategy: str, group: str, memory_bytes: int, why: str) -> None:
        """Begin an order; dropped while one is in progress or not yet fetched."""
        if self._under_way is not None:
            return
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, thread_name_prefix="reclaim")
        self._under_way = self._worker.submit(self._reclaim, strategy, group, memory_bytes, why)

    def finished(self) -> tuple[Reclaimed, ...]:
        """Return what has been reclaimed since the last call."""
        if self._under_way is None or not self._under_way.done():
            return ()
        done, self._under_way = self._under_way, None
        return (done.result(),)

    def _reclaim(self, strategy: str, group: str, memory_bytes: int, why: str) -> Reclaimed:
        before, error = self._usage(group), ""
        file = reclaim_file(self._driver, group)
        try:
            if file is None:
                raise FileNotFoundError(errno.ENOENT, "no memory controller")
            write_file(file, "0" if self._driver.version is CgroupVersion.V1 else str(memory_bytes))
        except OSError as refusal:
            if refusal.errno not in (errno.EAGAIN, errno.EBUSY):
                error = os.strerror(refusal.errno or 0)
        return Reclaimed(strategy, group, memory_bytes, max(before - self._usage(group), 0), why, error)

    def _usage(self, group: str) -> int:
        path = self._driver.stat_path(group, Stat.MEMORY_USAGE)
        with suppress(OSError, ValueError):
            return int(read_file(path) or 0) if path is not None else 0
        return 0

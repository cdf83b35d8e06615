"""Cold memory of the node, its pods and host applications: by kidled, by the page_idle bitmap, or by DAMON.

In: what is asked for, the driver's groups. Out: a ``ColdReading``. The first of the three that the kernel offers is used, from
when cold memory is requested until it is not. Cold is page cache that was not touched for five minutes. page_idle and DAMON
find cold frames, ``page_owners`` the owners of page cache in them; for a large memory that is an estimate from a sample.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Protocol

from cotenant_node_executor.sampling.slow.damon import Damon
from cotenant_node_executor.sampling.slow.kidled import Kidled
from cotenant_node_executor.sampling.slow.page_owners import BUDGET, PAGE_BYTES, PageOwners, frames, sampled, system_ram
from cotenant_node_executor.sampling.slow.readings import Asked, ColdReading, Unavailable
from cotenant_node_executor.targets.interface import CgroupDriver, Stat

IDLE_SECONDS = 300.0
DAMON_SECONDS = 60.0
KIDLED_SECONDS = 5.0
_IDLE_WORD_PAGES = 64
NO_WAY = "this kernel has neither kidled nor page_idle nor DAMON"


class Method(Protocol):
    """A way to find cold memory. ``seconds``: how often it has a new result."""

    seconds: float

    def read(self, asked: Asked) -> ColdReading | None:
        """Return cold memory; None if it is not known yet. Raises OSError if the kernel refuses."""
        ...

    def close(self) -> None:
        """Restore everything."""
        ...


class ByKidled(Kidled):
    """Anolis' kernel."""

    seconds = KIDLED_SECONDS


class ByDamon:
    """Mainline kernels."""

    seconds = DAMON_SECONDS

    def __init__(self, driver: CgroupDriver, proc: Path, sys: Path) -> None:
        self._driver = driver
        self._owners = PageOwners(proc)
        self._round = 0
        try:
            self._damon = Damon(sys, system_ram(proc))
        except Unavailable:
            self._owners.close()
            raise

    def read(self, asked: Asked) -> ColdReading | None:
        """Return the page cache in the ranges that are cold."""
        self._round += 1
        every, blocks = sampled(frames(self._damon.cold_ranges()), BUDGET, self._round)
        counted: Counter[int] = Counter()
        for block in blocks:
            counted.update(self._owners.in_block(block))
        return by_group(self._driver, asked, counted, every)

    def close(self) -> None:
        """End the kdamond."""
        self._damon.close()
        self._owners.close()


class ByPageIdle:
    """Kernels with the bitmap of idle pages: a sample of memory is marked as idle, and checked five minutes later."""

    seconds = IDLE_SECONDS

    def __init__(self, driver: CgroupDriver, proc: Path, sys: Path) -> None:
        self._driver = driver
        path = sys / "kernel/mm/page_idle/bitmap"
        if not path.exists():
            raise Unavailable("no page_idle")
        self._owners = PageOwners(proc)
        try:
            self._every, blocks = sampled(frames(system_ram(proc)), BUDGET)
            self._blocks = [block for block in blocks if not (block[0] % _IDLE_WORD_PAGES or block[1] % _IDLE_WORD_PAGES)]
            self._bitmap = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except (OSError, Unavailable) as error:
            self._owners.close()
            raise Unavailable(f"page_idle: {error}") from error
        self._marked = False

    def read(self, asked: Asked) -> ColdReading | None:
        """Return the page cache that is idle since the last look, and mark the sample again."""
        counted: Counter[int] = Counter()
        for first, behind in self._blocks:
            where, length = first // 8, (behind - first) // 8
            if self._marked:
                idle = os.pread(self._bitmap, length, where)
                if len(idle) == length and any(idle):
                    counted.update(self._owners.in_block((first, behind), idle))
            os.pwrite(self._bitmap, b"\xff" * length, where)
        known, self._marked = self._marked, True
        return by_group(self._driver, asked, counted, self._every) if known else None

    def close(self) -> None:
        """Close the files; marks are hints, which the next access clears."""
        os.close(self._bitmap)
        self._owners.close()


def by_group(driver: CgroupDriver, asked: Asked, counted: Counter[int], every: int) -> ColdReading:
    """Return the pages of inodes as bytes of pods and host applications, including groups below theirs."""

    def bytes_below(path: Path | None) -> int:
        return sum(counted[inode] for inode in _inodes(path)) * every * PAGE_BYTES if path is not None and counted else 0

    return ColdReading(
        counted.total() * every * PAGE_BYTES,
        {uid: bytes_below(_folder(driver.stat_path(group, Stat.MEMORY_STAT))) for uid, group in asked.pods},
        {name: bytes_below(_folder(driver.host_stat_path(place, Stat.MEMORY_STAT))) for name, place in asked.applications},
    )


def _folder(file: Path | None) -> Path | None:
    return file.parent if file is not None else None


def _inodes(top: Path) -> list[int]:
    """Return the inodes of a group and those below; none where it is gone."""
    try:
        return [os.stat(folder).st_ino for folder, _, _ in os.walk(top)]
    except FileNotFoundError:
        return []


def cold_memory_ways(sys: Path) -> tuple[str, ...]:
    """Return the kernel's ways to find cold memory, without switching anything on."""
    places = {"kidled": "kidled", "page_idle": "page_idle/bitmap", "damon": "damon/admin"}
    return tuple(name for name, place in places.items() if (sys / "kernel/mm" / place).exists())


def open_cold_memory(driver: CgroupDriver, proc: Path, sys: Path) -> Method:
    """Return the first way that works. Raises Unavailable with why none of them does."""
    reasons: list[str] = []
    for make in (
        lambda: ByKidled(driver, sys),
        lambda: ByPageIdle(driver, proc, sys),
        lambda: ByDamon(driver, proc, sys),
    ):
        try:
            method: Method = make()
        except Unavailable as error:
            reasons.append(str(error))
        else:
            return method
    raise Unavailable("; ".join(reasons))

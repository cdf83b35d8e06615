"""Last-level cache occupancy and memory bandwidth of resctrl groups.

In: `mon_data` below /sys/fs/resctrl and below each group. Out: a ``ResctrlReading`` a group, with each of its caches; the root
is ``/``. Occupancy and bytes are sums over all caches; a cache that says `Unavailable` is left out. Bandwidth is the difference
of `mbm_total_bytes` over the time between two readings: none at the first, and where the counter went backwards.

Bound: MOST_GROUPS groups, MOST_CACHES caches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cotenant_node_executor.sampling.slow.readings import CacheReading, ResctrlReading, Unavailable
from cotenant_node_executor.targets.cgroup.tree import read_file

SECONDS = 10.0
ROOT = "/"
MOST_GROUPS = 64
MOST_CACHES = 64
_CACHE = re.compile(r"mon_L3_(\d{1,4})", re.ASCII)
_NO_GROUPS = frozenset({"info", "mon_data", "mon_groups"})


def parse_counter(content: str) -> int | None:
    """Return a counter's value; None for `Unavailable` and `Error`."""
    text = content.strip()
    return int(text) if text.isascii() and text.isdecimal() else None


class Resctrl:
    """Reads all groups, and remembers their last counters. Raises Unavailable where nothing is monitored."""

    def __init__(self, sys: Path) -> None:
        self._root = sys / "fs/resctrl"
        if not (self._root / "schemata").exists():
            raise Unavailable("/sys/fs/resctrl is not mounted" if self._root.is_dir() else "no resctrl")
        if not (self._root / "mon_data").is_dir():
            raise Unavailable("this processor's caches are not monitored")
        self._last: dict[str, tuple[int, float]] = {}

    def read(self, now: float) -> tuple[ResctrlReading, ...]:
        """Return a reading of each group; `now` in seconds of a monotonic clock."""
        found: list[ResctrlReading] = []
        fresh: dict[str, tuple[int, float]] = {}
        for name in self._groups():
            folder = self._root if name == ROOT else self._root / name
            caches = self._caches(folder)
            llc = _sum(cache.llc_bytes for cache in caches)
            total = _sum(cache.total_bytes for cache in caches)
            if llc is None and total is None:
                continue
            bandwidth = 0
            if total is not None:
                last, at = self._last.get(name, (total, now))
                bandwidth = round((total - last) / (now - at)) if now > at and total >= last else 0
                fresh[name] = (total, now)
            found.append(ResctrlReading(name, llc or 0, bandwidth, caches))
        self._last = fresh
        return tuple(found)

    def _groups(self) -> list[str]:
        names = [path.name for path in self._root.iterdir() if path.name not in _NO_GROUPS and (path / "mon_data").is_dir()]
        return [ROOT, *sorted(names)[:MOST_GROUPS]]

    def _caches(self, folder: Path) -> tuple[CacheReading, ...]:
        """The group's figures in each cache, by its number."""
        found = {int(match[1]): path for path in (folder / "mon_data").iterdir() if (match := _CACHE.fullmatch(path.name))}
        return tuple([
            CacheReading(number, *(_counter(path / name) for name in ("llc_occupancy", "mbm_total_bytes", "mbm_local_bytes")))
            for number, path in sorted(found.items())[:MOST_CACHES]
        ])


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum over all caches; None where no cache has a figure."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _counter(path: Path) -> int | None:
    try:
        content = read_file(path)
    except OSError:
        return None  # EIO where the hardware has no answer
    return parse_counter(content) if content is not None else None

"""Last-level cache occupancy and memory bandwidth of resctrl groups.

In: `mon_data` below /sys/fs/resctrl and below each group. Out: a ``ResctrlReading`` a group; the root is ``/``. Occupancy and
bytes are sums over all caches; a cache that says `Unavailable` is left out. Bandwidth is the difference of `mbm_total_bytes`
over the time between two readings: none at the first, and where the counter went backwards.
"""

from __future__ import annotations

from pathlib import Path

from cotenant_node_executor.sampling.slow.readings import ResctrlReading, Unavailable
from cotenant_node_executor.targets.cgroup.tree import read_file

SECONDS = 10.0
ROOT = "/"
MOST_GROUPS = 64
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
            llc = self._sum(folder, "llc_occupancy")
            total = self._sum(folder, "mbm_total_bytes")
            if llc is None and total is None:
                continue
            bandwidth = 0
            if total is not None:
                last, at = self._last.get(name, (total, now))
                bandwidth = round((total - last) / (now - at)) if now > at and total >= last else 0
                fresh[name] = (total, now)
            found.append(ResctrlReading(name, llc or 0, bandwidth))
        self._last = fresh
        return tuple(found)

    def _groups(self) -> list[str]:
        names = [path.name for path in self._root.iterdir() if path.name not in _NO_GROUPS and (path / "mon_data").is_dir()]
        return [ROOT, *sorted(names)[:MOST_GROUPS]]

    def _sum(self, folder: Path, counter: str) -> int | None:
        """The sum over all caches; None where no cache has a figure."""
        values = [
            value
            for cache in sorted((folder / "mon_data").glob("mon_L3_*"))
            if (content := _content(cache / counter)) is not None and (value := parse_counter(content)) is not None
        ]
        return sum(values) if values else None


def _content(path: Path) -> str | None:
    try:
        return read_file(path)
    except OSError:
        return None  # EIO where the hardware has no answer

"""kidled: the Anolis kernel's own scan for idle pages, by control group.

In: the groups' `memory.idle_page_stats`. Out: a ``ColdReading``. The scan is switched on, every 5 s and for whole subtrees,
and restored at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cotenant_node_executor.sampling.idle_pages import IDLE_STATS, is_supported, parse_idle_page_stats
from cotenant_node_executor.sampling.slow.readings import Asked, ColdReading, Unavailable
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import CgroupDriver, Stat

SCAN_SECONDS, HIERARCHY = "5", "1"


class Kidled:
    """Switches the scan on, reads groups, and restores the switches."""

    def __init__(self, driver: CgroupDriver, sys: Path) -> None:
        folder = sys / "kernel/mm/kidled"
        self._period, self._hierarchy = folder / "scan_period_in_seconds", folder / "use_hierarchy"
        if not is_supported(self._period.exists(), self._hierarchy.exists()):
            raise Unavailable("no kidled")
        self._driver = driver
        self._before = [(path, (read_file(path) or "0").strip()) for path in (self._period, self._hierarchy)]
        try:
            self._period.write_text(SCAN_SECONDS)
            self._hierarchy.write_text(HIERARCHY)
        except OSError as error:
            self.close()
            raise Unavailable(f"kidled: {error}") from error

    def read(self, asked: Asked) -> ColdReading | None:
        """Return cold memory; None if not even the node's own file can be read. A group without a file is left out."""
        node = self._cold(lambda: self._driver.host_stat_path("", Stat.MEMORY_STAT))
        if node is None:
            return None
        pods = ((uid, self._of_group(group)) for uid, group in asked.pods)
        applications = ((name, self._of_directory(directory)) for name, directory in asked.applications)
        return ColdReading(
            node,
            {uid: cold for uid, cold in pods if cold is not None},
            {name: cold for name, cold in applications if cold is not None},
        )

    def _of_group(self, group: str) -> int | None:
        return self._cold(lambda: self._driver.stat_path(group, Stat.MEMORY_STAT))

    def _of_directory(self, directory: str) -> int | None:
        return self._cold(lambda: self._driver.host_stat_path(directory, Stat.MEMORY_STAT))

    def _cold(self, where: Callable[[], Path | None]) -> int | None:
        path = where()
        if path is None:
            return None
        try:
            content = read_file(path.with_name(IDLE_STATS))
            return None if content is None else parse_idle_page_stats(content).cold_bytes
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Restore the switches."""
        for path, text in self._before:
            try:
                path.write_text(text)
            except OSError:
                continue

"""Usage by NUMA node: CPU from the lines of /proc/stat, memory from each node's meminfo, that of pods from their groups.

In: which CPUs belong to which node. Out: a ``NumaReading`` a node. Memory in use is MemTotal - (MemFree + Active(file) +
Inactive(file) + SReclaimable); of groups what their memory.numa_stat counts, with page cache and the groups below: on v1 that
is the line hierarchical_total, as total counts a group's own pages. The first reading has no CPU, so it is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from cotenant_node_executor.sampling.proc import numa_usage_bytes, parse_busy_ticks_per_cpu, parse_numa_meminfo_kb
from cotenant_node_executor.sampling.sampler import JIFFY_NS
from cotenant_node_executor.sampling.slow.readings import Asked, NumaReading, Unavailable
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import BESTEFFORT, CgroupDriver, Stat
from cotenant_node_executor.targets.parse import NUMA_PAGE_BYTES, parse_numa_stat

SECONDS = 15.0
NOTHING_ASKED = Asked()
HIERARCHICAL = "hierarchical_"


class NumaReader:
    """Reads all nodes, and remembers their last ticks."""

    def __init__(self, driver: CgroupDriver, proc: Path, sys: Path, node_of_cpu: Mapping[int, int]) -> None:
        self._driver = driver
        self._proc, self._folder = proc, sys / "devices/system/node"
        self._node_of_cpu = node_of_cpu
        self._last: tuple[Counter[int], int] | None = None
        if not any(self._folder.glob("node[0-9]*")):
            raise Unavailable("this kernel reports no NUMA node")

    def read(self, now_ns: int, asked: Asked = NOTHING_ASKED) -> tuple[NumaReading, ...]:
        """Return a reading of each node with memory. Raises ValueError for a file of another form."""
        ticks: Counter[int] = Counter()
        for cpu, busy in parse_busy_ticks_per_cpu((self._proc / "stat").read_text()).items():
            ticks[self._node_of_cpu.get(cpu, 0)] += busy
        last, self._last = self._last, (ticks, now_ns)
        if last is None or now_ns <= last[1]:
            return ()
        of_batch, of_pods = self._pages(BESTEFFORT), self._pods(asked)
        found: list[NumaReading] = []
        for path in sorted(self._folder.glob("node[0-9]*"), key=lambda path: int(path.name.removeprefix("node"))):
            node = int(path.name.removeprefix("node"))
            memory = parse_numa_meminfo_kb(read_file(path / "meminfo") or "")
            if "MemTotal" in memory:
                passed = max(ticks[node] - last[0][node], 0)
                milli = passed * JIFFY_NS * 1000 // (now_ns - last[1])
                found.append(NumaReading(node, milli, numa_usage_bytes(memory), of_batch.get(node), of_pods.get(node)))
        return tuple(found)

    def _pods(self, asked: Asked) -> Counter[int]:
        """Bytes of all pods by node; empty where none has a figure."""
        found: Counter[int] = Counter()
        for _, group in asked.pods:
            found.update(self._pages(group))
        return found

    def _pages(self, group: str) -> dict[int, int]:
        """Bytes of a group by node; empty where it, or its file, is missing or of another form."""
        path = self._driver.stat_path(group, Stat.MEMORY_NUMA)
        content = _with_groups_below(read_file(path) or "") if path is not None else ""
        try:
            pages = parse_numa_stat(self._driver.version, content) if content else ()
        except ValueError:
            pages = ()
        return {each.numa: each.pages * NUMA_PAGE_BYTES for each in pages}


def _with_groups_below(content: str) -> str:
    """The line of v1 that counts the groups below too, as if it were the first; other content as it is."""
    line = next((line for line in content.splitlines() if line.startswith(HIERARCHICAL + "total=")), None)
    return content if line is None else line.removeprefix(HIERARCHICAL)

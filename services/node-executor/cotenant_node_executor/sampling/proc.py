"""/proc/stat, /proc/meminfo and their per-NUMA-node counterparts: text in, integers out.

Busy ticks are user + nice + system + irq + softirq. Idle, iowait and steal do not count, so time that the hypervisor
steals looks idle (koordlet's rule). Memory in use is MemTotal - MemAvailable; with page cache,
MemTotal - MemFree.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant_node_executor.targets.parse import parse_unsigned

_BUSY_WORDS = (1, 2, 3, 6, 7)
HUGEPAGE_KB = {"hugepages-1048576kB": (1048576, "hugepages-1Gi"), "hugepages-2048kB": (2048, "hugepages-2Mi")}


def _busy(words: list[str]) -> int:
    if len(words) <= _BUSY_WORDS[-1]:
        raise ValueError(f"/proc/stat: line {words[0]} has {len(words)} words, expected more than {_BUSY_WORDS[-1]}")
    return sum(parse_unsigned(words[index], f"/proc/stat {words[0]}") for index in _BUSY_WORDS)


def parse_busy_ticks(content: str) -> int:
    """Busy ticks of all CPUs: the line whose first word is exactly ``cpu``."""
    for line in content.split("\n"):
        if line.startswith("cpu "):
            return _busy(line.split())
    raise ValueError("/proc/stat: no line 'cpu'")


def parse_busy_ticks_per_cpu(content: str) -> dict[int, int]:
    lines = (line.split() for line in content.split("\n") if line.startswith("cpu"))
    ticks = {int(words[0][3:]): _busy(words) for words in lines if words[0][3:].isdecimal()}
    if not ticks:
        raise ValueError("/proc/stat: no line 'cpu<number>'")
    return ticks


def parse_meminfo(content: str, words_before: int = 0) -> dict[str, int]:
    """``key: number [kB]`` by key. A NUMA node's lines begin with two more words, ``Node <i>``. No number counts as 0."""
    values: dict[str, int] = {}
    for line in content.split("\n"):
        words = line.split()[words_before:]
        if len(words) >= 2 and words[0].endswith(":"):
            values[words[0][:-1]] = int(words[1]) if words[1].isascii() and words[1].isdecimal() else 0
    return values


class MemInfo(msgspec.Struct, frozen=True):
    total_bytes: int
    available_bytes: int
    free_bytes: int

    @property
    def usage_bytes(self) -> int:
        return max(self.total_bytes - self.available_bytes, 0)

    @property
    def usage_with_page_cache_bytes(self) -> int:
        return max(self.total_bytes - self.free_bytes, 0)


def parse_node_meminfo(content: str) -> MemInfo:
    values = parse_meminfo(content)
    if "MemTotal" not in values:
        raise ValueError("/proc/meminfo: no line 'MemTotal:'")
    kilobytes = (values.get(key, 0) for key in ("MemTotal", "MemAvailable", "MemFree"))
    return MemInfo(*(number * 1024 for number in kilobytes))


def parse_numa_meminfo_kb(content: str) -> dict[str, int]:
    return parse_meminfo(content, words_before=2)


def numa_usage_bytes(meminfo_kb: Mapping[str, int]) -> int:
    """A NUMA node has no MemAvailable, so reclaimable memory is subtracted here."""
    droppable = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
    return max(meminfo_kb["MemTotal"] - sum(meminfo_kb.get(key, 0) for key in droppable), 0) * 1024


def hugepages_bytes(counts: Mapping[str, int]) -> dict[str, int]:
    """``nr_hugepages`` by directory name to bytes by resource name; one unreadable size makes all of them 0."""
    known = all(directory in counts for directory in HUGEPAGE_KB)
    return {
        resource: counts[directory] * size_kb * 1024 if known else 0 for directory, (size_kb, resource) in HUGEPAGE_KB.items()
    }

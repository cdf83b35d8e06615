"""Parses the kernel's cgroup files: text in, integers out; malformed text raises ValueError with the file's name.

Only newlines at both ends are stripped. Key/value files: lines with fewer than two words are ignored, a repeated
key keeps its last value, unknown keys are ignored. Times are nanoseconds, memory bytes, on both versions.
"""

from __future__ import annotations

import re

import msgspec

from cotenant_node_executor.targets.convert import parse_int, period_of_cpu_max, quota_of_cpu_max, weight_to_shares
from cotenant_node_executor.targets.interface import CgroupVersion

NUMA_PAGE_BYTES = 4096


class CpuStat(msgspec.Struct, frozen=True):
    nr_periods: int
    nr_throttled: int
    throttled_ns: int


class MemoryStat(msgspec.Struct, frozen=True):
    cache: int
    rss: int
    inactive_file: int
    active_file: int
    inactive_anon: int
    active_anon: int
    unevictable: int

    @property
    def without_page_cache(self) -> int:
        """The working set: memory that the kernel cannot drop."""
        return self.inactive_anon + self.active_anon + self.unevictable

    @property
    def with_page_cache(self) -> int:
        return self.without_page_cache + self.active_file + self.inactive_file


class NumaPages(msgspec.Struct, frozen=True):
    numa: int
    pages: int


_MEMORY_KEYS = {
    CgroupVersion.V1: (
        "total_cache",
        "total_rss",
        "total_inactive_file",
        "total_active_file",
        "total_inactive_anon",
        "total_active_anon",
        "total_unevictable",
    ),
    CgroupVersion.V2: (
        "file",
        "anon",
        "inactive_file",
        "active_file",
        "inactive_anon",
        "active_anon",
        "unevictable",
    ),
}

_MEMORY_LINES = {
    version: re.compile(rf"^({'|'.join(keys)})[ \t]+([0-9]+)$", re.MULTILINE) for version, keys in _MEMORY_KEYS.items()
}


def parse_key_values(content: str) -> dict[str, str]:
    words = (line.split() for line in content.strip("\n").split("\n"))
    return {line[0]: line[1] for line in words if len(line) >= 2}


def _number(values: dict[str, str], key: str, what: str) -> int:
    text = values.get(key)
    if text is None:
        raise ValueError(f"{what}: no line {key!r}")
    return parse_unsigned(text, f"{what} {key}")


def parse_unsigned(text: str, what: str) -> int:
    value = parse_int(text, what)
    if value < 0:
        raise ValueError(f"{what}: {value} is negative")
    return value


def parse_cpu_stat(version: CgroupVersion, content: str) -> CpuStat:
    values = parse_key_values(content)
    key, factor = ("throttled_time", 1) if version is CgroupVersion.V1 else ("throttled_usec", 1000)
    return CpuStat(
        _number(values, "nr_periods", "cpu.stat"),
        _number(values, "nr_throttled", "cpu.stat"),
        _number(values, key, "cpu.stat") * factor,
    )


def parse_cpu_usage_ns(version: CgroupVersion, content: str) -> int:
    """From cpuacct.usage on v1; v2's cpu.stat has it even with the cpu controller disabled."""
    if version is CgroupVersion.V1:
        return parse_unsigned(content, "cpuacct.usage")
    return _number(parse_key_values(content), "usage_usec", "cpu.stat") * 1000


def parse_cpu_shares(version: CgroupVersion, content: str) -> int:
    if version is CgroupVersion.V1:
        return parse_int(content, "cpu.shares")
    return weight_to_shares(parse_int(content, "cpu.weight"))


def parse_cfs_quota(version: CgroupVersion, content: str) -> int:
    return parse_int(content, "cpu.cfs_quota_us") if version is CgroupVersion.V1 else quota_of_cpu_max(content)


def parse_cfs_period(version: CgroupVersion, content: str) -> int:
    return parse_int(content, "cpu.cfs_period_us") if version is CgroupVersion.V1 else period_of_cpu_max(content)


def parse_memory_stat(version: CgroupVersion, content: str) -> MemoryStat:
    """On v1 from the hierarchical totals, as the plain keys exclude child groups."""
    values = dict(_MEMORY_LINES[version].findall(content))
    try:
        return MemoryStat(*(int(values[key]) for key in _MEMORY_KEYS[version]))
    except KeyError as error:
        raise ValueError(f"memory.stat: no line {error.args[0]!r} with a number") from error


def _numa_tokens(line: str, head: str) -> dict[int, int]:
    words = line.split()
    if not words or words[0].partition("=")[0] != head:
        raise ValueError(f"memory.numa_stat: expected a line beginning with {head!r}, not {line!r}")
    tokens = [words[0].removeprefix(f"{head}="), *words[1:]] if "=" in words[0] else words[1:]
    sums: dict[int, int] = {}
    for token in tokens:
        name, equals, number = token.partition("=")
        if not equals and token == tokens[0] and "=" in words[0]:
            continue  # "total=123": the sum over all NUMA nodes
        if not equals or name[:1] != "N":
            raise ValueError(f"memory.numa_stat: {token!r} is not N<id>=<number>")
        sums[parse_unsigned(name[1:], "memory.numa_stat id")] = parse_unsigned(number, "memory.numa_stat")
    return sums


def parse_numa_stat(version: CgroupVersion, content: str) -> tuple[NumaPages, ...]:
    """Pages by NUMA node: v1's total line; v2's anon and file lines, whose ids must be 0, 1, 2 ... in order."""
    lines = content.strip("\n").split("\n")
    if version is CgroupVersion.V1:
        return tuple(NumaPages(numa, pages) for numa, pages in _numa_tokens(lines[0], "total").items())
    if len(lines) < 2:
        raise ValueError("memory.numa_stat: expected the lines anon and file")
    anon, file = _numa_tokens(lines[0], "anon"), _numa_tokens(lines[1], "file")
    if list(anon) != list(range(len(anon))) or list(anon) != list(file):
        raise ValueError("memory.numa_stat: NUMA ids of anon and file are not 0, 1, 2 ... in order")
    return tuple(NumaPages(i, anon[i] // NUMA_PAGE_BYTES + file[i] // NUMA_PAGE_BYTES) for i in anon)


def parse_pids(content: str) -> tuple[int, ...]:
    """cgroup.procs and tasks: one number a line; an empty file has none."""
    return tuple(parse_unsigned(line, "cgroup.procs") for line in content.split("\n") if line)

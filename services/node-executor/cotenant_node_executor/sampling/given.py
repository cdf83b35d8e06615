"""The part of this machine that a node may use: its CPUs, the CPU time and memory that the groups around it allow.

In: the kernel's control groups around the node's subtree, this process's affinity. Out: ``GivenMachine``. In a container, or
under a systemd slice with limits, that is less than the machine: capacity and usage must refer to the same part.

CPUs      those of the surrounding group's cpuset on which this process may run
CPU time  the smallest quota / period of the groups around; below the CPUs it counts, and that group's usage is the node's
memory    the smallest limit of the groups around; below the machine's it counts, and that group's usage is the node's
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from cotenant.model.cpu_lists import parse_cpu_list
from cotenant_node_executor.targets.cgroup.hierarchy import Hierarchies
from cotenant_node_executor.targets.cgroup.tree import parents, read_file
from cotenant_node_executor.targets.convert import memory_limit_v1, memory_limit_v2
from cotenant_node_executor.targets.interface import CgroupVersion
from cotenant_node_executor.targets.parse import parse_cfs_period, parse_cfs_quota


class GivenMachine(msgspec.Struct, frozen=True):
    """``whole``: its CPUs are all that are online. ``cpu_usage`` and ``memory_stat``: the files of the limiting groups that
    hold the node's usage; empty if the machine's own do."""

    cpus: tuple[int, ...]
    capacity_milli: int
    memory_bytes: int
    version: CgroupVersion = CgroupVersion.V2
    whole: bool = True
    cpu_usage: str = ""
    memory_stat: str = ""


def given_machine(
    hierarchies: Hierarchies, groups: Mapping[str, str], affinity: frozenset[int], online: frozenset[int], memory_bytes: int
) -> GivenMachine:
    """Return what the groups leave. `groups`: the group that surrounds the node, by controller, "" for v2; relative to the
    mount."""
    version = hierarchies.version or CgroupVersion.V2
    cpus = affinity & (_effective_cpus(hierarchies, groups) or affinity) or affinity
    capacity, usage = len(cpus) * 1000, ""
    for folder, group in _upwards(hierarchies, groups, "cpu"):
        quota = _quota_milli(version, folder)
        if quota is not None and quota < capacity:
            capacity, usage = quota, str(_file(hierarchies, "cpuacct", group, "cpuacct.usage", "cpu.stat") or "")
    memory, stat = memory_bytes, ""
    for folder, _ in _upwards(hierarchies, groups, "memory"):
        limit = _memory_limit(version, folder)
        if limit is not None and 0 < limit < memory:
            memory, stat = limit, str(folder / "memory.stat")
    return GivenMachine(
        cpus=tuple(sorted(cpus)),
        capacity_milli=max(capacity, 1),
        memory_bytes=memory,
        version=version,
        whole=cpus >= online,
        cpu_usage=usage,
        memory_stat=stat,
    )


def _mount(hierarchies: Hierarchies, controller: str) -> Path | None:
    return hierarchies.v1.get(controller) if hierarchies.version is CgroupVersion.V1 else hierarchies.v2


def _group(groups: Mapping[str, str], controller: str) -> str:
    return groups.get(controller, groups.get("", ""))


def _file(hierarchies: Hierarchies, controller: str, group: str, v1: str, v2: str) -> Path | None:
    mount = _mount(hierarchies, controller)
    return None if mount is None else mount / group / (v1 if hierarchies.version is CgroupVersion.V1 else v2)


def _upwards(hierarchies: Hierarchies, groups: Mapping[str, str], controller: str) -> Iterator[tuple[Path, str]]:
    """Walk the folder of the surrounding group and of those above it, up to the mount: a container's own group is there."""
    mount = _mount(hierarchies, controller)
    if mount is not None:
        for group in (*reversed(parents(_group(groups, controller))), ""):
            yield mount / group, group


def _quota_milli(version: CgroupVersion, folder: Path) -> int | None:
    if version is CgroupVersion.V1:
        texts = read_file(folder / "cpu.cfs_quota_us"), read_file(folder / "cpu.cfs_period_us")
    else:
        texts = (read_file(folder / "cpu.max"),) * 2
    if texts[0] is None or texts[1] is None:
        return None
    try:
        quota, period = parse_cfs_quota(version, texts[0]), parse_cfs_period(version, texts[1])
    except ValueError:
        return None
    return quota * 1000 // period if quota > 0 and period > 0 else None


def _memory_limit(version: CgroupVersion, folder: Path) -> int | None:
    text = read_file(folder / ("memory.limit_in_bytes" if version is CgroupVersion.V1 else "memory.max"))
    if text is None:
        return None
    try:
        return memory_limit_v1(text.strip()) if version is CgroupVersion.V1 else memory_limit_v2(text.strip())
    except ValueError:
        return None


def _effective_cpus(hierarchies: Hierarchies, groups: Mapping[str, str]) -> frozenset[int]:
    """Return the CPUs of the nearest group around that has a cpuset; none where no group has."""
    v1 = hierarchies.version is CgroupVersion.V1
    names = ("cpuset.effective_cpus", "cpuset.cpus") if v1 else ("cpuset.cpus.effective",)
    for folder, _ in _upwards(hierarchies, groups, "cpuset"):
        for name in names:
            try:
                cpus = parse_cpu_list(read_file(folder / name) or "")
            except ValueError:
                continue
            if cpus:
                return frozenset(cpus)
    return frozenset()

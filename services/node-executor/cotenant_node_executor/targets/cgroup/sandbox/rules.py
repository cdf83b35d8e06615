"""Imitates the kernel's refusals: checks a write to a group's file against its parent's and children's files. Pure.

| refusal | version |
|---|---|
| EINVAL: quota or period below 1 ms, burst above the quota | v1, v2 |
| EINVAL: cpu.weight or cpu.shares while cpu.idle is 1, CPUs that the machine lacks | v1, v2 |
| EINVAL: a group's quota ratio above its parent's, a parent's below a child's | v1 |
| EACCES: a child's cpuset outside its parent's; EBUSY: a parent's cpuset without a child's CPUs | v1 |

Verified against Linux 6.12 and 6.18.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping

from cotenant_node_executor.targets.convert import MIN_QUOTA_US, parse_int, period_of_cpu_max, quota_of_cpu_max
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import CgroupVersion

Files = Mapping[str, str]  # file name -> text, of one group

V2_DEFAULTS: dict[str, str] = {
    "cgroup.procs": "",
    "cpu.weight": "100",
    "cpu.max": "max 100000",
    "cpu.max.burst": "0",
    "cpu.idle": "0",
    "cpu.stat": "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0",
    "cpuset.cpus": "",
    "cpuset.mems": "",
    "memory.max": "max",
    "memory.high": "max",
    "memory.low": "0",
    "memory.min": "0",
    "memory.oom.group": "0",
    "memory.current": "0",
    "memory.stat": "file 0\nanon 0\ninactive_file 0\nactive_file 0\ninactive_anon 0\nactive_anon 0\nunevictable 0",
    "pids.max": "max",
}
V1_DEFAULTS: dict[str, str] = {
    "cgroup.procs": "",
    "cpu.shares": "1024",
    "cpu.cfs_quota_us": "-1",
    "cpu.cfs_period_us": "100000",
    "cpu.cfs_burst_us": "0",
    "cpu.idle": "0",
    "cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0",
    "cpuacct.usage": "0",
    "cpuset.cpus": "",
    "cpuset.mems": "",
    "memory.limit_in_bytes": "9223372036854771712",
    "memory.usage_in_bytes": "0",
    "memory.stat": "total_cache 0\ntotal_rss 0\ntotal_inactive_file 0\ntotal_active_file 0\ntotal_inactive_anon 0\n"
    "total_active_anon 0\ntotal_unevictable 0",
    "pids.max": "max",
}


class KernelRefusal(Exception):  # noqa: N818 - the kernel's answer, not a fault
    """The error that the kernel would return."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.errno = number


def defaults(version: CgroupVersion) -> dict[str, str]:
    return V1_DEFAULTS if version is CgroupVersion.V1 else V2_DEFAULTS


def _bandwidth(version: CgroupVersion, files: Files) -> tuple[int, int]:
    """Quota (-1 unlimited) and period."""
    if version is CgroupVersion.V1:
        return int(files["cpu.cfs_quota_us"]), int(files["cpu.cfs_period_us"])
    return quota_of_cpu_max(files["cpu.max"]), period_of_cpu_max(files["cpu.max"])


def _burst_file(version: CgroupVersion) -> str:
    return "cpu.cfs_burst_us" if version is CgroupVersion.V1 else "cpu.max.burst"


def merge_text(files: Files, file: str, text: str) -> str:
    """The file's content after a write: cpu.max written with a quota alone keeps its period."""
    if file != "cpu.max":
        return text
    fields = text.split()
    return " ".join((fields[0], fields[1] if len(fields) > 1 else files["cpu.max"].split()[1]))


def check_write(
    version: CgroupVersion,
    file: str,
    group: Files,
    parent: Files | None,
    children: Iterable[Files],
    cpus: tuple[int, ...],
) -> None:
    """Check a write. ``group``: its files as after the write; ``parent``: None for the executor's root. Raises Refusal."""
    if file in ("cpu.weight", "cpu.shares") and group["cpu.idle"] == "1":
        raise KernelRefusal(errno.EINVAL, f"{file} while cpu.idle is 1")
    if file in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us", _burst_file(version)):
        _check_bandwidth(version, group, parent, children)
    if file == "cpuset.cpus":
        _check_cpuset(version, group, parent, children, cpus)


def _check_bandwidth(version: CgroupVersion, group: Files, parent: Files | None, children: Iterable[Files]) -> None:
    quota, period = _bandwidth(version, group)
    if period < 1000 or (quota != -1 and quota < MIN_QUOTA_US):
        raise KernelRefusal(errno.EINVAL, "quota or period below 1 ms")
    if quota != -1 and parse_int(group[_burst_file(version)], "burst") > quota:
        raise KernelRefusal(errno.EINVAL, "burst above the quota")
    if version is CgroupVersion.V2:
        return  # v2 allows a child's value above its parent's: the smaller one applies
    for upper, lower in ((parent, group), *((group, child) for child in children)):
        if upper is not None and _ratio_above(_bandwidth(version, lower), _bandwidth(version, upper)):
            raise KernelRefusal(errno.EINVAL, "a parent's quota ratio below a child's")


def _ratio_above(lower: tuple[int, int], upper: tuple[int, int]) -> bool:
    return -1 not in (lower[0], upper[0]) and lower[0] * upper[1] > upper[0] * lower[1]


def _check_cpuset(
    version: CgroupVersion, group: Files, parent: Files | None, children: Iterable[Files], cpus: tuple[int, ...]
) -> None:
    wanted = set(parse_cpu_list(group["cpuset.cpus"]))
    if not wanted <= set(cpus):
        raise KernelRefusal(errno.EINVAL, "CPUs that this machine does not have")
    if version is CgroupVersion.V2:
        return  # v2 leaves CPUs that the parent lacks out of cpuset.cpus.effective
    if parent is not None and not wanted <= set(parse_cpu_list(parent["cpuset.cpus"])):
        raise KernelRefusal(errno.EACCES, "CPUs outside the parent's cpuset")
    for child in children:
        if not set(parse_cpu_list(child["cpuset.cpus"])) <= wanted:
            raise KernelRefusal(errno.EBUSY, "CPUs that a child's cpuset has are missing")


def effective_cpus(configured: str, parents_effective: tuple[int, ...]) -> tuple[int, ...]:
    """cpuset.cpus.effective on v2: the configured CPUs within the parent's; all of the parent's if that is empty."""
    common = tuple(cpu for cpu in parse_cpu_list(configured) if cpu in parents_effective)
    return common or parents_effective

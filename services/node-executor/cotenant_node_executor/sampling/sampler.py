"""Read the node and all groups once, and convert the counters into one snapshot.

In: the driver's groups, /proc/stat, /proc/meminfo, /proc/pressure, and the directories of host applications (read only); where
the node may use a part of the machine only (`given`), the lines of its CPUs, and the counters of the groups that limit it. Out:
``UsageSnapshot``. Between cycles only the last counters of existing groups are kept. A group that disappears while it is read
is skipped with the reason, and so are its containers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from cotenant_node_executor.sampling.counters import CounterFiles, counter_files, read_counters, read_pressure, read_pressures
from cotenant_node_executor.sampling.given import GivenMachine
from cotenant_node_executor.sampling.host_applications import refusal
from cotenant_node_executor.sampling.proc import MemInfo, parse_busy_ticks, parse_busy_ticks_per_cpu, parse_node_meminfo
from cotenant_node_executor.sampling.snapshot import (
    ContainerUsage,
    GroupUsage,
    HostApplicationSample,
    NodeUsage,
    PodSample,
    PressureSet,
    Skipped,
    SystemUsage,
    UsageSnapshot,
)
from cotenant_node_executor.sampling.usage import CumulativeCounter, group_milli, throttled_ratio
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP, CgroupDriver
from cotenant_node_executor.targets.parse import parse_cpu_stat, parse_cpu_usage_ns, parse_memory_stat

JIFFY_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
TIERS = (BURSTABLE, BESTEFFORT)
_NO_PRESSURE = PressureSet()


class _Last(msgspec.Struct, frozen=True):
    cpu: CumulativeCounter
    periods: tuple[int, int] | None
    files: CounterFiles


class Sampler:
    def __init__(
        self,
        driver: CgroupDriver,
        *,
        group_pressure: bool,
        proc: Path = Path("/proc"),
        cpu_capacity_milli: int | None = None,
        given: GivenMachine | None = None,
        lone_containers: bool = False,
    ) -> None:
        """``group_pressure``: whether groups have pressure files (the capability "psi.group"). ``given``: the part of the
        machine that is measured; None: all of it. ``lone_containers``: the only group in a pod's group holds all of the pod's
        processes, so that its usage is the pod's, read once."""
        self._lone_containers = lone_containers
        self._driver = driver
        self._group_pressure = group_pressure
        self._proc = proc
        self._given = given
        whole_milli = given.capacity_milli if given is not None else (os.cpu_count() or 1) * 1000
        self._capacity_milli = cpu_capacity_milli or whole_milli
        self._last_ticks: CumulativeCounter | None = None
        self._last: dict[str, _Last] = {}
        self._last_ns: int | None = None

    def snapshot(self, now_monotonic_ns: int, host_applications: Mapping[str, str] | None = None) -> UsageSnapshot:
        """``host_applications``: name -> directory below the mount.

        Raises OSError or ValueError only where the node's own files cannot be read.
        """
        now = now_monotonic_ns
        self._driver.refresh()
        node = self._read_node(now)
        fresh: dict[str, _Last] = {}
        skipped: list[Skipped] = []
        pods, tiers = self._read_groups(now, fresh, skipped)
        applications, unmeasured = self._read_applications(now, host_applications or {}, fresh)
        interval = None if self._last_ns is None or now <= self._last_ns else now - self._last_ns
        self._last, self._last_ns = fresh, now
        return UsageSnapshot(
            monotonic_ns=now,
            interval_ns=interval,
            node=node,
            system=system_usage(node, pods, applications),
            pods=pods,
            tiers=tiers,
            host_applications=applications,
            unmeasured_applications=unmeasured,
            skipped=tuple(skipped),
        )

    def _read_node(self, now: int) -> NodeUsage:
        used, unit_ns = self._read_cpu()
        ticks = CumulativeCounter(used, now)
        memory = self._read_memory()
        cpu_milli = group_milli(self._last_ticks, ticks, unit_ns)
        self._last_ticks = ticks
        stalls = (read_pressure(f"{self._proc}/pressure/{name}") for name in ("cpu", "memory", "io"))
        return NodeUsage(
            cpu_milli=cpu_milli,
            cpu_capacity_milli=self._capacity_milli,
            memory_bytes=memory.usage_bytes,
            memory_with_page_cache_bytes=memory.usage_with_page_cache_bytes,
            memory_total_bytes=memory.total_bytes,
            pressure=PressureSet(*stalls),
        )

    def _read_cpu(self) -> tuple[int, int]:
        """A counter of the node's CPU time, and its unit in ns."""
        given = self._given
        if given is not None and given.cpu_usage:
            return parse_cpu_usage_ns(given.version, Path(given.cpu_usage).read_text()), 1
        stat = (self._proc / "stat").read_text()
        if given is None or given.whole:
            return parse_busy_ticks(stat), JIFFY_NS
        by_cpu = parse_busy_ticks_per_cpu(stat)
        return sum(by_cpu.get(cpu, 0) for cpu in given.cpus), JIFFY_NS

    def _read_memory(self) -> MemInfo:
        given = self._given
        if given is None or not given.memory_stat:
            return parse_node_meminfo((self._proc / "meminfo").read_text())
        stat = parse_memory_stat(given.version, Path(given.memory_stat).read_text())
        total = given.memory_bytes
        return MemInfo(total, max(total - stat.without_page_cache, 0), max(total - stat.with_page_cache, 0))

    def _read_groups(
        self, now: int, fresh: dict[str, _Last], skipped: list[Skipped]
    ) -> tuple[dict[str, PodSample], dict[str, GroupUsage]]:
        children: dict[str, list[str]] = {}
        for group in self._driver.groups():
            children.setdefault(group.rpartition("/")[0], []).append(group)
        tiers: dict[str, GroupUsage] = {}
        found: dict[str, PodSample] = {}
        for tier in (ROOT_GROUP, *TIERS):
            if tier in children.get(ROOT_GROUP, ()):
                usage = self._read(tier, now, fresh, skipped)
                if usage is not None:
                    tiers[tier] = usage
            for group in children.get(tier, ()):
                name = group.rpartition("/")[2]
                if not name.startswith("pod"):
                    continue
                usage = self._read(group, now, fresh, skipped)
                if usage is not None:
                    containers = self._read_containers(children.get(group, ()), usage, now, fresh, skipped)
                    uid = name.removeprefix("pod")
                    found[uid] = PodSample(uid, tier or "guaranteed", usage, containers)
        return dict(sorted(found.items())), tiers

    def _read_containers(
        self, groups: list[str] | tuple[()], pod: GroupUsage, now: int, fresh: dict[str, _Last], skipped: list[Skipped]
    ) -> tuple[ContainerUsage, ...]:
        if self._lone_containers and len(groups) == 1:
            lone = self._read_lone(groups[0], pod, now, fresh, skipped)
            return (ContainerUsage(groups[0].rpartition("/")[2], lone),) if lone is not None else ()
        read = ((group, self._read(group, now, fresh, skipped, pressure=False)) for group in groups)
        return tuple(ContainerUsage(group.rpartition("/")[2], usage) for group, usage in read if usage is not None)

    def _read_lone(
        self, group: str, pod: GroupUsage, now: int, fresh: dict[str, _Last], skipped: list[Skipped]
    ) -> GroupUsage | None:
        """The only container of a pod: its pod's usage, and the throttling by its own quota."""
        key = f"own:{group}"
        last, of_pod = self._last.get(key), fresh[f"own:{pod.group}"]
        files = last.files if last else counter_files(self._driver.stat_path, group)
        text = read_file(files.stat) if files.stat else None
        if text is None:
            return self._read(group, now, fresh, skipped, pressure=False)
        try:
            stat = parse_cpu_stat(self._driver.version, text) if "nr_periods" in text else None
        except ValueError as error:
            skipped.append(Skipped(group, str(error)))
            return None
        periods = None if stat is None else (stat.nr_periods, stat.nr_throttled)
        fresh[key] = _Last(of_pod.cpu, periods, files)
        ratio = throttled_ratio(last.periods if last else None, periods) if periods else None
        return replace(pod, group=group, throttled_ratio=ratio, pressure=_NO_PRESSURE)

    def _read_applications(
        self, now: int, applications: Mapping[str, str], fresh: dict[str, _Last]
    ) -> tuple[dict[str, HostApplicationSample], dict[str, str]]:
        """The usage of each application, and why those that are left out have none."""
        found: dict[str, HostApplicationSample] = {}
        unmeasured: dict[str, str] = {}
        for name, directory in sorted(applications.items()):
            skipped: list[Skipped] = []
            if why := refusal(directory):
                unmeasured[name] = why
                continue
            usage = self._read(directory, now, fresh, skipped, foreign=True)
            if usage is not None:
                found[name] = HostApplicationSample(name, usage)
            else:
                unmeasured[name] = skipped[0].reason
        return found, unmeasured

    def _read(
        self,
        group: str,
        now: int,
        fresh: dict[str, _Last],
        skipped: list[Skipped],
        *,
        pressure: bool = True,
        foreign: bool = False,
    ) -> GroupUsage | None:
        version = self._driver.version
        key = f"{'host' if foreign else 'own'}:{group}"
        last = self._last.get(key)
        path_of = self._driver.host_stat_path if foreign else self._driver.stat_path
        try:
            files = last.files if last else counter_files(path_of, group)
            texts = read_counters(files)
            if texts is None:
                skipped.append(Skipped(group, f"there is no control group {group}" if foreign else "the group has gone"))
                return None
            used = CumulativeCounter(parse_cpu_usage_ns(version, texts.usage), now)
            stat = parse_cpu_stat(version, texts.stat) if "nr_periods" in texts.stat else None
            memory = parse_memory_stat(version, texts.memory) if texts.memory else None
            stalls = read_pressures(files) if pressure and self._group_pressure else _NO_PRESSURE
        except (OSError, ValueError) as error:
            skipped.append(Skipped(group, str(error)))
            return None
        periods = None if stat is None else (stat.nr_periods, stat.nr_throttled)
        fresh[key] = _Last(used, periods, files)
        return GroupUsage(
            group=group,
            cpu_milli=group_milli(last.cpu if last else None, used),
            memory_bytes=memory.without_page_cache if memory else None,
            memory_with_page_cache_bytes=memory.with_page_cache if memory else None,
            throttled_ratio=throttled_ratio(last.periods if last else None, periods) if periods else None,
            pressure=stalls,
        )


def system_usage(
    node: NodeUsage, pods: Mapping[str, PodSample], applications: Mapping[str, HostApplicationSample]
) -> SystemUsage:
    """max(node - Σ pods - host applications, 0), for CPU and for memory; no CPU where the node has none yet."""
    usages = [pod.usage for pod in pods.values()] + [application.usage for application in applications.values()]
    cpu = None if node.cpu_milli is None else max(node.cpu_milli - sum(each.cpu_milli or 0 for each in usages), 0)
    return SystemUsage(cpu, max(node.memory_bytes - sum(each.memory_bytes or 0 for each in usages), 0))

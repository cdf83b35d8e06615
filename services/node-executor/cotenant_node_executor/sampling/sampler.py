"""Read the node and all groups once, and turn the counters into one snapshot.

In: the driver's groups, /proc/stat, /proc/meminfo, /proc/pressure, and the directories of host applications (read only).
Out: ``Snapshot``. Between rounds only the last counters are kept, and only those of groups that are still there. A group
that vanishes while it is read is left out with the reason, and its containers with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ..kernel.files import PRESSURE_STATS
from ..kernel.interface import ROOT_GROUP, CgroupDriver, Stat
from ..kernel.parse import parse_cpu_stat, parse_cpu_usage_ns, parse_memory_stat
from ..kernel.psi import Pressure, parse_pressure
from ..kernel.tree import read_file
from .proc import parse_busy_ticks, parse_node_meminfo
from .snapshot import (
    ContainerUsage,
    GroupUsage,
    HostApplicationUsage,
    NodeUsage,
    PodUsage,
    PressureSet,
    Skipped,
    Snapshot,
    SystemUsage,
)
from .usage import Counter, group_milli, throttled_ratio

JIFFY_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
TIERS = ("burstable", "besteffort")
_NO_PRESSURE = PressureSet()
PathOf = Callable[[str, Stat], Path | None]


class _Last(msgspec.Struct, frozen=True):
    cpu: Counter
    periods: tuple[int, int] | None


class Sampler:
    def __init__(
        self,
        driver: CgroupDriver,
        *,
        group_pressure: bool,
        proc: Path = Path("/proc"),
        cpu_capacity_milli: int | None = None,
    ) -> None:
        """``group_pressure``: whether groups have pressure files (the capability "psi.group")."""
        self._driver = driver
        self._group_pressure = group_pressure
        self._proc = proc
        self._capacity_milli = cpu_capacity_milli or (os.cpu_count() or 1) * 1000
        self._last_ticks: Counter | None = None
        self._last: dict[str, _Last] = {}
        self._last_ns: int | None = None

    def snapshot(self, now_monotonic_ns: int, host_applications: Mapping[str, str] | None = None) -> Snapshot:
        """``host_applications``: name -> directory below the mount. Raises OSError or ValueError only for the node's own files."""
        now = now_monotonic_ns
        self._driver.refresh()
        node = self._read_node(now)
        fresh: dict[str, _Last] = {}
        skipped: list[Skipped] = []
        pods, tiers = self._read_groups(now, fresh, skipped)
        applications = self._read_applications(now, host_applications or {}, fresh, skipped)
        interval = None if self._last_ns is None or now <= self._last_ns else now - self._last_ns
        self._last, self._last_ns = fresh, now
        return Snapshot(
            monotonic_ns=now,
            interval_ns=interval,
            node=node,
            system=_system(node, pods, applications),
            pods=pods,
            tiers=tiers,
            host_applications=applications,
            skipped=tuple(skipped),
        )

    def _read_node(self, now: int) -> NodeUsage:
        ticks = Counter(parse_busy_ticks((self._proc / "stat").read_text()), now)
        memory = parse_node_meminfo((self._proc / "meminfo").read_text())
        cpu_milli = group_milli(self._last_ticks, ticks, JIFFY_NS)
        self._last_ticks = ticks
        paths = (self._proc / "pressure" / name for name in ("cpu", "memory", "io"))
        return NodeUsage(
            cpu_milli=cpu_milli,
            cpu_capacity_milli=self._capacity_milli,
            memory_bytes=memory.usage_bytes,
            memory_with_page_cache_bytes=memory.usage_with_page_cache_bytes,
            memory_total_bytes=memory.total_bytes,
            pressure=PressureSet(*(_pressure(path) for path in paths)),
        )

    def _read_groups(
        self, now: int, fresh: dict[str, _Last], skipped: list[Skipped]
    ) -> tuple[dict[str, PodUsage], dict[str, GroupUsage]]:
        children: dict[str, list[str]] = {}
        for group in self._driver.groups():
            children.setdefault(group.rpartition("/")[0], []).append(group)
        tiers: dict[str, GroupUsage] = {}
        found: dict[str, PodUsage] = {}
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
                    containers = self._read_containers(children.get(group, ()), now, fresh, skipped)
                    uid = name.removeprefix("pod")
                    found[uid] = PodUsage(uid, tier or "guaranteed", usage, containers)
        return dict(sorted(found.items())), tiers

    def _read_containers(
        self, groups: list[str] | tuple[()], now: int, fresh: dict[str, _Last], skipped: list[Skipped]
    ) -> tuple[ContainerUsage, ...]:
        read = ((group, self._read(group, now, fresh, skipped, pressure=False)) for group in groups)
        return tuple(ContainerUsage(group.rpartition("/")[2], usage) for group, usage in read if usage is not None)

    def _read_applications(
        self, now: int, applications: Mapping[str, str], fresh: dict[str, _Last], skipped: list[Skipped]
    ) -> dict[str, HostApplicationUsage]:
        found: dict[str, HostApplicationUsage] = {}
        for name, directory in sorted(applications.items()):
            usage = self._read(directory, now, fresh, skipped, path_of=self._driver.host_stat_path)
            if usage is not None:
                found[name] = HostApplicationUsage(name, usage)
        return found

    def _read(
        self,
        group: str,
        now: int,
        fresh: dict[str, _Last],
        skipped: list[Skipped],
        *,
        pressure: bool = True,
        path_of: PathOf | None = None,
    ) -> GroupUsage | None:
        path_of = path_of or self._driver.stat_path
        key = f"{'own' if path_of == self._driver.stat_path else 'host'}:{group}"
        version = self._driver.version
        try:
            texts = _read_texts(path_of, group)
            if texts is None:
                skipped.append(Skipped(group, "the group has gone"))
                return None
            used = Counter(parse_cpu_usage_ns(version, texts.usage), now)
            stat = parse_cpu_stat(version, texts.stat) if "nr_periods" in texts.stat else None
            memory = parse_memory_stat(version, texts.memory) if texts.memory else None
            stalls = _group_pressures(path_of, group) if pressure and self._group_pressure else _NO_PRESSURE
        except (OSError, ValueError) as error:
            skipped.append(Skipped(group, str(error)))
            return None
        periods = None if stat is None else (stat.nr_periods, stat.nr_throttled)
        last = self._last.get(key)
        fresh[key] = _Last(used, periods)
        return GroupUsage(
            group=group,
            cpu_milli=group_milli(last.cpu if last else None, used),
            cpu_usage_ns=used.value,
            memory_bytes=memory.without_page_cache if memory else None,
            memory_with_page_cache_bytes=memory.with_page_cache if memory else None,
            throttled_ratio=throttled_ratio(last.periods if last else None, periods) if periods else None,
            throttled_ns=stat.throttled_ns if stat else None,
            pressure=stalls,
        )


class _Texts(msgspec.Struct, frozen=True):
    usage: str
    stat: str  # "" where the group has none
    memory: str


def _read_texts(path_of: PathOf, group: str) -> _Texts | None:
    """None where the group has gone. On v2 usage and throttling stand in one file, which is read once."""
    usage_path, stat_path = path_of(group, Stat.CPU_USAGE), path_of(group, Stat.CPU_STAT)
    memory_path = path_of(group, Stat.MEMORY_STAT)
    usage = None if usage_path is None else read_file(usage_path)
    if usage is None:
        return None
    same = stat_path == usage_path
    stat = usage if same else (None if stat_path is None else read_file(stat_path))
    memory = None if memory_path is None else read_file(memory_path)
    return _Texts(usage, stat or "", memory or "")


def _group_pressures(path_of: PathOf, group: str) -> PressureSet:
    paths = (path_of(group, stat) for stat in PRESSURE_STATS)
    return PressureSet(*(None if path is None else _pressure(path) for path in paths))


def _pressure(path: Path) -> Pressure | None:
    content = read_file(path)
    return parse_pressure(content) if content else None


def _system(node: NodeUsage, pods: Mapping[str, PodUsage], applications: Mapping[str, HostApplicationUsage]) -> SystemUsage:
    usages = [pod.usage for pod in pods.values()] + [application.usage for application in applications.values()]
    cpu = None if node.cpu_milli is None else max(node.cpu_milli - sum(each.cpu_milli or 0 for each in usages), 0)
    return SystemUsage(cpu, max(node.memory_bytes - sum(each.memory_bytes or 0 for each in usages), 0))

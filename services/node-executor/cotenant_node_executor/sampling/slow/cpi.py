"""Cycles and instructions of pods: hardware counters by control group, through perf_event_open.

In: the groups of pods' containers, the online CPUs. Out: a ``CpiReading`` a container; a pod's is their sum. Rule (koordlet):
on each CPU a pair of counters that count while a thread of the group runs there, for WINDOW_SECONDS of PERIOD_SECONDS; each
value is raw / (running / enabled), as counters may be shared, or raw where either is 0; their sum over all CPUs counts. A pod
whose containers are not known is counted by its own group, which includes theirs.

Bound: MOST_FILES counters are open at a time, at least those of one pod; further pods are measured in the next period.
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from cotenant_node_executor.sampling.slow.readings import Asked, CpiReading, Unavailable
from cotenant_node_executor.targets.interface import CgroupDriver, Stat

PERIOD_SECONDS, WINDOW_SECONDS = 60.0, 10.0
MOST_FILES = 1024
_SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241, "s390x": 331, "ppc64le": 319}
_HARDWARE = 0
CYCLES, INSTRUCTIONS = (_HARDWARE, 0), (_HARDWARE, 1)
_ENABLED, _RUNNING, _GROUP = 1, 2, 8
_READ_FORMAT = _ENABLED | _RUNNING | _GROUP
_PID_CGROUP, _CLOEXEC = 1 << 2, 1 << 3
_ATTRIBUTES_BYTES = 64
"""The first version of perf_event_attr, which every kernel takes."""
_READ = struct.Struct("=QQQQQ")
Event = tuple[int, int]
"""Type and config of perf_event_attr."""


class CpuCount(msgspec.Struct, frozen=True):
    """One group's counters on one CPU."""

    time_enabled: int
    time_running: int
    cycles: int
    instructions: int


def scaled(count: CpuCount) -> tuple[float, float]:
    """Return cycles and instructions as if the counters had not been shared."""
    if not count.time_enabled or not count.time_running:
        return float(count.cycles), float(count.instructions)
    share = count.time_running / count.time_enabled
    return count.cycles / share, count.instructions / share


def summed(counts: Iterable[CpuCount]) -> CpiReading:
    """Return a group's reading over all CPUs."""
    cycles = instructions = 0.0
    for count in counts:
        of_cpu = scaled(count)
        cycles, instructions = cycles + of_cpu[0], instructions + of_cpu[1]
    return CpiReading(cycles, instructions)


def parse_count(content: bytes) -> CpuCount:
    """Parse what a pair of counters reads as: how many, enabled, running, two values. Raises ValueError."""
    if len(content) != _READ.size:
        raise ValueError(f"perf: {len(content)} bytes, expected {_READ.size}")
    number, enabled, running, cycles, instructions = _READ.unpack(content)
    if number != 2:
        raise ValueError(f"perf: {number} counters, expected 2")
    return CpuCount(enabled, running, cycles, instructions)


def by_pod(asked: Asked, counted: Mapping[str, CpiReading]) -> dict[str, CpiReading]:
    """Return the readings of pods by uid, from those of groups."""
    containers, found = asked.groups_of(), {}
    for uid, group in asked.pods:
        own = [counted[each] for each in (group, *containers.get(group, ())) if each in counted]
        if own:
            found[uid] = CpiReading(sum(each.cycles for each in own), sum(each.instructions for each in own))
    return found


class Counters:
    """The counters of one window. Raises Unavailable where this machine has none, or they may not be opened."""

    def __init__(self, driver: CgroupDriver, sys: Path, events: tuple[Event, Event] = (CYCLES, INSTRUCTIONS)) -> None:
        self._driver = driver
        self._events = events
        if events[0][0] == _HARDWARE and not (sys / "bus/event_source/devices/cpu").exists():
            raise Unavailable("this machine has no hardware counters")
        self._number = _SYSCALL.get(platform.machine(), 0)
        if not self._number:
            raise Unavailable(f"perf_event_open has no known number on {platform.machine()}")
        import ctypes  # costs a megabyte of memory, which only machines with counters need

        self._ctypes = ctypes
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._open: dict[str, list[tuple[int, int]]] = {}
        self._next = 0

    def begin(self, asked: Asked, cpus: Sequence[int]) -> None:
        """Open the counters of as many pods as the bound allows. A group that has gone is left out. Raises Unavailable where
        the kernel refuses counters as such."""
        for group in self._batch(asked, MOST_FILES // max(2 * len(cpus), 1)):
            file = self._driver.stat_path(group, Stat.CPU_PRESSURE)
            if file is None or not file.parent.is_dir():
                continue
            folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened = self._open.setdefault(group, [])
            try:
                for cpu in cpus:
                    leader = self._event(self._events[0], folder, cpu, -1)
                    opened.append((leader, -1))
                    opened[-1] = (leader, self._event(self._events[1], folder, cpu, leader))
            except OSError as error:
                self.close()
                raise Unavailable(f"perf_event_open: {error.strerror}") from error
            finally:
                os.close(folder)

    def _batch(self, asked: Asked, most: int) -> list[str]:
        """The groups of this window: those of whole pods, as many as the bound allows, from where the last window ended."""
        containers = asked.groups_of()
        pods = [containers.get(group) or (group,) for _, group in asked.pods]
        first = self._next if self._next < len(pods) else 0
        found: list[str] = []
        self._next = first
        for groups in pods[first:]:
            if found and len(found) + len(groups) > most:
                break
            found += groups
            self._next += 1
        return found

    def _event(self, event: Event, folder: int, cpu: int, leader: int) -> int:
        ctypes = self._ctypes
        attributes = struct.pack(
            "=IIQQQQQIIQ", event[0], _ATTRIBUTES_BYTES, event[1], 0, 0, _READ_FORMAT, 0, 0, 0, 0
        )
        text = ctypes.create_string_buffer(attributes, _ATTRIBUTES_BYTES)
        found = int(
            self._libc.syscall(
                ctypes.c_long(self._number),
                ctypes.byref(text),
                ctypes.c_int(folder),
                ctypes.c_int(cpu),
                ctypes.c_int(leader),
                ctypes.c_ulong(_PID_CGROUP | _CLOEXEC),
            )
        )
        if found < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return found

    def end(self) -> dict[str, CpiReading]:
        """Read and close the counters of the window; readings by group."""
        found: dict[str, CpiReading] = {}
        try:
            for group, files in self._open.items():
                try:
                    found[group] = summed(parse_count(os.read(leader, _READ.size)) for leader, _ in files)
                except (OSError, ValueError):
                    continue  # missing in this period
        finally:
            self.close()
        return found

    def close(self) -> None:
        """Close what is open."""
        for files in self._open.values():
            for pair in files:
                for file in pair:
                    if file >= 0:
                        os.close(file)
        self._open = {}

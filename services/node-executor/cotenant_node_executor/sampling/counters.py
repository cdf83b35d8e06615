"""Paths of one group's counter files, computed once, and their contents in this cycle.

A cycle over 50 pods reads some 450 files every second: joining their paths again would cost as much as reading them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from cotenant_node_executor.sampling.snapshot import PressureSet
from cotenant_node_executor.targets.cgroup.files import PRESSURE_STATS
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import Stat
from cotenant_node_executor.targets.psi import PsiStats, parse_pressure

PathOf = Callable[[str, Stat], Path | None]


class CounterFiles(msgspec.Struct, frozen=True):
    """Absolute paths; "" where this kernel has no such file."""

    usage: str
    stat: str
    memory: str
    pressures: tuple[str, str, str]


class CounterTexts(msgspec.Struct, frozen=True):
    usage: str
    stat: str  # "" where the group has none
    memory: str


def counter_files(path_of: PathOf, group: str) -> CounterFiles:
    def where(stat: Stat) -> str:
        return str(path_of(group, stat) or "")

    cpu, memory, io = (where(stat) for stat in PRESSURE_STATS)
    return CounterFiles(where(Stat.CPU_USAGE), where(Stat.CPU_STAT), where(Stat.MEMORY_STAT), (cpu, memory, io))


def read_counters(files: CounterFiles) -> CounterTexts | None:
    """None where the group is gone. On v2 one file holds usage and throttling, and is read once."""
    usage = read_file(files.usage) if files.usage else None
    if usage is None:
        return None
    stat = usage if files.stat == files.usage else _read(files.stat)
    return CounterTexts(usage, stat, _read(files.memory))


def _read(path: str) -> str:
    return (read_file(path) or "") if path else ""


def read_pressure(path: str) -> PsiStats | None:
    content = _read(path)
    return parse_pressure(content) if content else None


def read_pressures(files: CounterFiles) -> PressureSet:
    return PressureSet(*(read_pressure(path) for path in files.pressures))

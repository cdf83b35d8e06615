"""Usage of the processes of an imitated group, read from /proc: a plain directory has no counters.

Members of a group are the processes listed in its cgroup.procs, their descendants, and the processes in their sessions. A
listed pid counts only if the process started before the file was written, as pids are reused.
A group's CPU time grows by the increase of the sum over its running members (own time and that of waited-for children).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
START_SLACK_SECONDS = 2.0  # /proc gives the boot time in whole seconds


class ProcessRow(msgspec.Struct, frozen=True):
    pid: int
    parent: int
    session: int
    started: float  # start time in seconds since the epoch
    cpu_ns: int  # its own time and that of waited-for children


class GroupMemory(msgspec.Struct, frozen=True):
    anonymous: int
    file: int


def parse_process(pid: int, content: str, boot_time: float) -> ProcessRow:
    """Parse /proc/<pid>/stat; the command in parentheses may contain blanks and parentheses."""
    fields = content[content.rindex(")") + 2 :].split()
    ticks = sum(int(field) for field in fields[11:15])
    started = boot_time + int(fields[19]) * TICK_NS / 1e9
    return ProcessRow(pid, int(fields[1]), int(fields[3]), started, ticks * TICK_NS)


def read_processes(proc: Path) -> dict[int, ProcessRow]:
    """All processes except zombies and those that exit while they are read."""
    boot_time = _boot_time((proc / "stat").read_text())
    rows: dict[int, ProcessRow] = {}
    for name in os.listdir(proc):
        if name.isdecimal():
            try:
                content = (proc / name / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if content[content.rindex(")") + 2] not in "ZX":
                rows[int(name)] = parse_process(int(name), content, boot_time)
    return rows


def _boot_time(stat: str) -> float:
    return float(next(line.split()[1] for line in stat.splitlines() if line.startswith("btime ")))


def members(rows: dict[int, ProcessRow], roots: Iterable[int], written: float) -> set[int]:
    """The pids in a group whose cgroup.procs, written at ``written``, lists ``roots``."""
    trusted = {pid for pid in roots if pid not in rows or rows[pid].started <= written + START_SLACK_SECONDS}
    found: set[int] = set()
    for row in rows.values():
        chain, at = [row.pid], row
        while at.pid not in trusted and at.session not in trusted and at.parent in rows and at.parent != at.pid:
            at = rows[at.parent]
            chain.append(at.pid)
        if at.pid in trusted or at.session in trusted:
            found.update(chain)
    return found


def memory_of(proc: Path, pids: Iterable[int]) -> GroupMemory:
    anonymous = file = 0
    for pid in pids:
        try:
            _, resident, shared, *_ = (proc / str(pid) / "statm").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        anonymous += (int(resident) - int(shared)) * PAGE
        file += int(shared) * PAGE
    return GroupMemory(anonymous, file)

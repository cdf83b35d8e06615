"""What the rest of node-executor knows of the kernel: knobs, a driver, capabilities, the report of a cycle's writes.

In: groups as relative paths below the executor's own root ("" is that root), laid out like kubepods: "pod<uid>" for a
guaranteed pod, "burstable/pod<uid>", "besteffort/pod<uid>", containers one level below their pod. Values are texts in
cgroup v1's terms (shares 2..262144, quota in microseconds or -1); a driver converts for v2. Out: the same terms.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Protocol

import msgspec

from cotenant_node_executor.targets.address import Attribute, Place
from cotenant_node_executor.targets.address import Knob as Knob

ROOT_GROUP = ""
UNLIMITED = "-1"


class CgroupVersion(Enum):
    V1 = "v1"
    V2 = "v2"


class Stat(Enum):
    """A file that is only read: counters and pressure of one group."""

    CPU_USAGE = "cpuacct.usage"
    CPU_STAT = "cpu.stat"
    MEMORY_USAGE = "memory.usage_in_bytes"
    MEMORY_STAT = "memory.stat"
    CPU_PRESSURE = "cpu.pressure"
    MEMORY_PRESSURE = "memory.pressure"
    IO_PRESSURE = "io.pressure"


class InvalidValueError(ValueError):
    """A value that no kernel would take; nothing was written."""


class CgroupDriver(Protocol):
    """One subtree of control groups that belongs to this executor alone. OSError carries the kernel's own refusal."""

    @property
    def version(self) -> CgroupVersion: ...

    @property
    def sandbox(self) -> bool:
        """True where the tree is plain files with the kernel's rules imitated: nothing is enforced."""
        ...

    @property
    def root_group(self) -> str:
        """Where the own root lies below the mount, e.g. "cotenant/node-1"; for people and events, never for calls."""
        ...

    @property
    def why_sandbox(self) -> str:
        """What kept the kernel's own tree from being used; "" where it is used, or where a sandbox was asked for."""
        ...

    @property
    def controllers(self) -> tuple[str, ...]: ...

    @property
    def refused_controllers(self) -> dict[str, str]:
        """Controllers that exist but could not be switched on for the own subtree, with the kernel's answer."""
        ...

    def create(self, group: str) -> None:
        """Make the group and the groups above it, ready to take processes; nothing happens if it exists."""
        ...

    def remove(self, group: str) -> None:
        """Remove the group and all below it, bottom-up. Raises OSError(EBUSY) while processes are left in it."""
        ...

    def exists(self, group: str) -> bool: ...

    def groups(self) -> list[str]:
        """All groups below the own root, sorted, so parents come first. From memory, kept true by create/remove."""
        ...

    def rescan(self) -> list[str]:
        """The same, read from the kernel: what is found after a restart is adopted."""
        ...

    def procs_paths(self, group: str) -> list[Path]:
        """The files into which a starting process writes its own pid, all of them: one per hierarchy."""
        ...

    def pids(self, group: str) -> list[int]:
        """Processes in the group and below, sorted."""
        ...

    def path(self, group: str, knob: Knob) -> Path | None:
        """The knob's file, whether it exists or not; None where this version or machine has no such file."""
        ...

    def stat_path(self, group: str, stat: Stat) -> Path | None: ...

    def host_stat_path(self, directory: str, stat: Stat) -> Path | None:
        """The same for a directory below the mount that is not ours (a host application): to be read only."""
        ...

    def read(self, group: str, knob: Knob) -> str | None:
        """The present value in v1 terms; None where the file or the group is missing."""
        ...

    def write(self, group: str, knob: Knob, value: str) -> None:
        """Raises InvalidValueError before the kernel is asked, OSError as the kernel refuses."""
        ...

    def kill(self, group: str) -> list[int]:
        """SIGKILL to every process in the group and below; returns whom. They may take a moment to go."""
        ...

    def refresh(self) -> None:
        """Called once before a cycle's reads: a sandbox brings its counters up to date, a kernel needs nothing."""
        ...

    def close(self) -> bool:
        """Remove the own subtree and undo what was prepared for it; False, leaving it, where processes still run in it."""
        ...


class KnobSupport(msgspec.Struct, frozen=True):
    supported: bool
    why: str = ""  # where it is not supported: what is missing, in words


class Capabilities(msgspec.Struct, frozen=True):
    """What this node can do, found out once at start."""

    version: CgroupVersion
    controllers: tuple[str, ...]
    sandbox: bool
    root: str  # where the own subtree lies
    knobs: dict[str, KnobSupport]  # Knob values, and facilities: "psi.node", "psi.group", "resctrl", "core_sched", ...
    kernel: str = ""  # release, e.g. "6.12.1"
    why_sandbox: str = ""

    def supports(self, knob: Knob | str) -> bool:
        found = self.knobs.get(knob.value if isinstance(knob, Knob) else knob)
        return found is not None and found.supported


class Written(msgspec.Struct, frozen=True, gc=False):
    place: Place
    attribute: Attribute
    file: str
    old: str  # in v1 terms, as read before the write; "" where it could not be read
    new: str  # as read back after the write


class Refused(msgspec.Struct, frozen=True, gc=False):
    place: Place
    attribute: Attribute
    file: str
    value: str
    errno: int  # 0 where the value was invalid or read back differently
    message: str


class WriteReport(msgspec.Struct, frozen=True, gc=False):
    written: tuple[Written, ...] = ()
    refused: tuple[Refused, ...] = ()
    unchanged: int = 0
    skipped: int = 0  # knobs this kernel lacks, groups that have gone, shares that cpu.idle locks
    still_refused: int = 0  # refusals reported before, tried again in vain

    def and_also(self, other: WriteReport) -> WriteReport:
        """Both reports in one."""
        return WriteReport(
            self.written + other.written,
            self.refused + other.refused,
            self.unchanged + other.unchanged,
            self.skipped + other.skipped,
            self.still_refused + other.still_refused,
        )

"""The interface to the kernel for the rest of node-executor: knobs, a driver, capabilities, the report of a cycle's writes.

Groups are relative paths below the executor's own root ("" is that root), laid out like kubepods: "pod<uid>" for a
guaranteed pod, "burstable/pod<uid>", "besteffort/pod<uid>", containers one level below their pod. Values are texts in
cgroup v1's units (shares 2..262144, quota in microseconds or -1), for reads and writes; the v2 driver converts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Protocol

import msgspec

from cotenant.model.values import Value
from cotenant_node_executor.targets.address import Attribute, Place
from cotenant_node_executor.targets.address import Knob as Knob

ROOT_GROUP, BURSTABLE, BESTEFFORT = "", "burstable", "besteffort"
"""The tiers: guaranteed pods lie in the root."""
LARGE_BURSTS = "cpu.burst.above_quota"
"""The capability of kernels that take bursts above the quota."""
UNLIMITED_TEXT = "-1"
THREADS, SLICES = "sched.affinity", "sched.slice"
"""The capabilities to move single threads to CPUs, and to give them slices of their own."""
RECLAIM = "memory.reclaim"
"""The capability to reclaim memory of a group, on v1 by memory.force_empty."""


class CgroupVersion(Enum):
    V1 = "v1"
    V2 = "v2"


class Stat(Enum):
    """A read-only file: counters or pressure of one group."""

    CPU_USAGE = "cpuacct.usage"
    CPU_STAT = "cpu.stat"
    MEMORY_USAGE = "memory.usage_in_bytes"
    MEMORY_STAT = "memory.stat"
    MEMORY_NUMA = "memory.numa_stat"
    CPU_PRESSURE = "cpu.pressure"
    MEMORY_PRESSURE = "memory.pressure"
    IO_PRESSURE = "io.pressure"


class InvalidValueError(ValueError):
    """A value that is invalid on every kernel; nothing was written."""


class CgroupDriver(Protocol):
    """One subtree of control groups that only this executor uses. OSError carries the kernel's refusal."""

    @property
    def version(self) -> CgroupVersion: ...

    @property
    def sandbox(self) -> bool:
        """True for a tree of plain files that imitates the kernel's rules: nothing is enforced."""
        ...

    @property
    def root_group(self) -> str:
        """Path of the executor's root below the mount, e.g. "cotenant/node-1"; for logs and events, not for calls."""
        ...

    @property
    def why_sandbox(self) -> str:
        """Why the kernel's tree is not used; "" where it is, or where a sandbox was requested."""
        ...

    @property
    def controllers(self) -> tuple[str, ...]: ...

    @property
    def refused_controllers(self) -> dict[str, str]:
        """Controllers that exist but could not be enabled for the executor's subtree, with the kernel's error."""
        ...

    def create(self, group: str) -> None:
        """Create the group and its parents, ready for processes; no effect if it exists."""
        ...

    def remove(self, group: str) -> None:
        """Remove the group and its descendants, bottom-up. Raises OSError(EBUSY) while it contains processes."""
        ...

    def exists(self, group: str) -> bool: ...

    def groups(self) -> list[str]:
        """All groups below the executor's root, sorted, so parents come first. Cached; create and remove update the cache."""
        ...

    def rescan(self) -> list[str]:
        """The same, read from the kernel: groups found after a restart are adopted."""
        ...

    def procs_paths(self, group: str) -> list[Path]:
        """The files, one per hierarchy, into which a starting process writes its own pid."""
        ...

    def pids(self, group: str) -> list[int]:
        """Processes in the group and below, sorted."""
        ...

    def threads(self, group: str) -> list[int]:
        """Threads in the group and below, sorted."""
        ...

    def path(self, group: str, knob: Knob) -> Path | None:
        """The knob's file, whether it exists or not; None where this version or machine has no such file."""
        ...

    def stat_path(self, group: str, stat: Stat) -> Path | None: ...

    def host_stat_path(self, directory: str, stat: Stat) -> Path | None:
        """The same for a directory of a host application below the mount; read-only."""
        ...

    def read(self, group: str, knob: Knob) -> str | None:
        """The present value in v1's units; None where the file or the group is missing."""
        ...

    def write(self, group: str, knob: Knob, value: str) -> None:
        """Write a value. Raises InvalidValueError before any write, OSError if the kernel refuses."""
        ...

    def kill(self, group: str) -> list[int]:
        """Send SIGKILL to every process in the group and below; return their pids. They may take a moment to exit."""
        ...

    def refresh(self) -> None:
        """Called once before a cycle's reads: a sandbox updates its counters; no effect on a kernel."""
        ...

    def close(self) -> bool:
        """Remove the own subtree and undo its preparation; False, leaving it, if processes still run in it."""
        ...


class KnobSupport(msgspec.Struct, frozen=True):
    supported: bool
    why: str = ""  # where it is not supported: what is missing, in words


class NodeCapabilities(msgspec.Struct, frozen=True):
    """The node's capabilities, probed once at start."""

    version: CgroupVersion
    controllers: tuple[str, ...]
    sandbox: bool
    root: str  # the own subtree
    knobs: dict[str, KnobSupport]  # Knob values, and facilities: "psi.node", "psi.group", "resctrl", "core_sched", ...
    kernel: str = ""  # release, e.g. "6.12.1"
    why_sandbox: str = ""

    def supports(self, knob: Knob | str) -> bool:
        found = self.knobs.get(knob.value if isinstance(knob, Knob) else knob)
        return found is not None and found.supported


class WrittenValue(Value, frozen=True):
    place: Place
    attribute: Attribute
    file: str
    old: str  # in v1 terms, as read before the write; "" where it could not be read
    new: str  # as read back after the write


class RefusedValue(Value, frozen=True):
    place: Place
    attribute: Attribute
    file: str
    value: str
    errno: int  # 0 where the value was invalid or read back differently
    message: str


class Reclaimed(Value, frozen=True):
    """The result of an order to reclaim memory. `freed_bytes`: by how much the group's usage fell meanwhile."""

    strategy: str
    group: str
    asked_bytes: int
    freed_bytes: int
    why: str
    error: str = ""


class WriteReport(Value, frozen=True):
    written: tuple[WrittenValue, ...] = ()
    refused: tuple[RefusedValue, ...] = ()
    unchanged: int = 0
    skipped: int = 0  # knobs this kernel lacks, groups that have gone, shares that cpu.idle locks
    still_refused: int = 0  # refusals reported before, retried without success

    def and_also(self, other: WriteReport) -> WriteReport:
        """Both reports in one."""
        return WriteReport(
            self.written + other.written,
            self.refused + other.refused,
            self.unchanged + other.unchanged,
            self.skipped + other.skipped,
            self.still_refused + other.still_refused,
        )


class HeldCookie(msgspec.Struct, frozen=True):
    """The core-scheduling group of a container, and its cookie."""

    group: str
    cookie: int


class CookieOutcome(msgspec.Struct, frozen=True):
    """How often processes were put into a group, and how often the kernel refused it."""

    succeeded: int = 0
    failed: int = 0


class CoreGroups(msgspec.Struct, frozen=True):
    """The cookies of containers by control group, as last checked; the outcomes by core-scheduling group."""

    cookies: Mapping[str, HeldCookie] = {}
    outcomes: Mapping[str, CookieOutcome] = {}


NO_CORE_GROUPS = CoreGroups()

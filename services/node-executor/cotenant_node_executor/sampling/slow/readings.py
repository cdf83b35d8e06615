"""Results of the slow collectors; each keeps its last reading until the next one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.events.node.topology import MachineTopology

COLD_MEMORY, CPI, RESCTRL, NUMA = "cold-memory", "cpi", "resctrl", "numa"
COLLECTORS = (COLD_MEMORY, CPI, RESCTRL, NUMA)


class NumaReading(msgspec.Struct, frozen=True):
    """Usage of one NUMA node: CPU of its processors since the last reading, memory that cannot be reclaimed.

    `best_effort_bytes`: memory of the best-effort group that lies there, page cache included; None where the kernel does not
    say it.
    """

    node: int
    cpu_milli: int
    memory_bytes: int
    best_effort_bytes: int | None = None


class ColdReading(msgspec.Struct, frozen=True):
    """Page cache that was not accessed for five minutes: of the node, of pods by uid, of host applications by name."""

    node_bytes: int
    pods: Mapping[str, int] = {}
    applications: Mapping[str, int] = {}


class CpiReading(msgspec.Struct, frozen=True):
    """Of one pod over one window, scaled up where the counters were shared. ``cpi`` is None without instructions."""

    cycles: float
    instructions: float

    @property
    def cpi(self) -> float | None:
        return self.cycles / self.instructions if self.instructions else None


class ResctrlReading(msgspec.Struct, frozen=True):
    """One resctrl group: its occupancy of the last-level caches, and its memory bandwidth since the last reading."""

    group: str
    llc_bytes: int
    bandwidth_bytes_per_second: int


class SlowReadings(msgspec.Struct, frozen=True):
    """The newest reading of each collector. ``unavailable``: why a collector has none, by its name."""

    cold: ColdReading | None = None
    cpi: Mapping[str, CpiReading] = {}  # by pod uid
    resctrl: tuple[ResctrlReading, ...] = ()
    numa: tuple[NumaReading, ...] = ()
    unavailable: Mapping[str, str] = {}


class MachineFacts(msgspec.Struct, frozen=True):
    """The facts of a machine. ``kubelet_state``: the kubelet's `cpu_manager_state`, empty where there is none."""

    topology: MachineTopology
    kubelet_state: str = ""


class Asked(msgspec.Struct, frozen=True):
    """What to measure. ``pods``: uid and group below the executor's root; ``applications``: name and directory."""

    pods: tuple[tuple[str, str], ...] = ()
    applications: tuple[tuple[str, str], ...] = ()
    cold_memory: bool = False


class Unavailable(Exception):  # noqa: N818 - it says what cannot be had
    """A collector has nothing to read from here; the text says why."""

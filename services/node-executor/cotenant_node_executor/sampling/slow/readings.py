"""Results of the slow collectors; each keeps its last reading until the next one."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.events.node.topology import MachineTopology
from cotenant_node_executor.sampling.snapshot import PressureSet

COLD_MEMORY, CPI, RESCTRL, NUMA = "cold-memory", "cpi", "resctrl", "numa"
FACTS, STALLS = "facts", "stalls"
COLLECTORS = (COLD_MEMORY, CPI, RESCTRL, NUMA)


class NumaReading(msgspec.Struct, frozen=True):
    """Usage of one NUMA node: CPU of its processors since the last reading, memory that cannot be reclaimed.

    `best_effort_bytes`: memory of the best-effort group that lies there, page cache included; None where the kernel does not
    say it. `pods_bytes`: of all pods, likewise.
    """

    node: int
    cpu_milli: int
    memory_bytes: int
    best_effort_bytes: int | None = None
    pods_bytes: int | None = None


class ColdReading(msgspec.Struct, frozen=True):
    """Page cache that was not accessed for five minutes: of the node, of pods by uid, of host applications by name."""

    node_bytes: int
    pods: Mapping[str, int] = {}
    applications: Mapping[str, int] = {}


class CpiReading(msgspec.Struct, frozen=True):
    """Of a pod or container over one window, scaled up where the counters were shared. ``cpi`` is None without instructions."""

    cycles: float
    instructions: float

    @property
    def cpi(self) -> float | None:
        return self.cycles / self.instructions if self.instructions else None


class CacheReading(msgspec.Struct, frozen=True):
    """One resctrl group in one last-level cache: its occupancy, and the processor's counters of memory traffic, of all and of
    the cache's own NUMA node. None where the processor has no answer."""

    cache: int
    llc_bytes: int | None = None
    total_bytes: int | None = None
    local_bytes: int | None = None


class ResctrlReading(msgspec.Struct, frozen=True):
    """One resctrl group: its occupancy of the last-level caches, and its memory bandwidth since the last reading."""

    group: str
    llc_bytes: int
    bandwidth_bytes_per_second: int
    caches: tuple[CacheReading, ...] = ()


class Collected(msgspec.Struct, frozen=True):
    """How often a collector read something, and how often it failed."""

    succeeded: int = 0
    failed: int = 0


class SlowReadings(msgspec.Struct, frozen=True):
    """The newest reading of each collector. ``unavailable``: why a collector has none, by its name."""

    cold: ColdReading | None = None
    cpi: Mapping[str, CpiReading] = {}  # by pod uid
    resctrl: tuple[ResctrlReading, ...] = ()
    numa: tuple[NumaReading, ...] = ()
    container_cpi: Mapping[str, CpiReading] = {}  # by control group
    stalls: Mapping[str, PressureSet] = {}  # of containers, by control group
    collected: Mapping[str, Collected] = {}  # FACTS and NUMA, since the start
    unavailable: Mapping[str, str] = {}


class MachineFacts(msgspec.Struct, frozen=True):
    """The facts of a machine. ``kubelet_state``: the kubelet's `cpu_manager_state`, empty where there is none."""

    topology: MachineTopology
    kubelet_state: str = ""


class Asked(msgspec.Struct, frozen=True):
    """What to measure. ``pods``: uid and group below the executor's root; ``applications``: name and directory; ``containers``:
    the groups of the pods' containers."""

    pods: tuple[tuple[str, str], ...] = ()
    applications: tuple[tuple[str, str], ...] = ()
    cold_memory: bool = False
    containers: tuple[str, ...] = ()

    def groups_of(self) -> dict[str, tuple[str, ...]]:
        """The groups of each pod's containers, by the pod's group."""
        found: dict[str, tuple[str, ...]] = {}
        for group in self.containers:
            pod = group.rpartition("/")[0]
            found[pod] = (*found.get(pod, ()), group)
        return found


class Unavailable(Exception):  # noqa: N818 - it says what cannot be had
    """A collector has nothing to read from here; the text says why."""

"""One reading of the node per cycle, from which strategies decide and samples are built.

CPU is in milli-cores over the time since the previous snapshot, memory in bytes. None means that there is no figure yet
(a first observation, a counter that went backwards) or that this kernel does not offer it; zero is never used instead.
Memory is the working set without page cache: inactive_anon + active_anon + unevictable for a group, MemTotal -
MemAvailable for the node.
"""

from __future__ import annotations

import msgspec

from cotenant.model.values import Value
from cotenant_node_executor.targets.psi import PsiStats


class PressureSet(msgspec.Struct, frozen=True):
    cpu: PsiStats | None = None
    memory: PsiStats | None = None
    io: PsiStats | None = None


class NodeUsage(Value, frozen=True):
    cpu_milli: int | None
    cpu_capacity_milli: int
    memory_bytes: int
    memory_with_page_cache_bytes: int
    memory_total_bytes: int
    pressure: PressureSet


class GroupUsage(Value, frozen=True):
    group: str  # below the own root; for a host application its directory below the mount
    cpu_milli: int | None
    memory_bytes: int | None
    memory_with_page_cache_bytes: int | None
    throttled_ratio: float | None  # throttled periods divided by all periods since the last snapshot
    pressure: PressureSet


class ContainerUsage(Value, frozen=True):
    name: str  # the group's last path element
    usage: GroupUsage


class PodSample(Value, frozen=True):
    uid: str
    tier: str  # its directory: "guaranteed", "burstable" or "besteffort"
    usage: GroupUsage
    containers: tuple[ContainerUsage, ...] = ()


class HostApplicationSample(Value, frozen=True):
    name: str
    usage: GroupUsage


class SystemUsage(Value, frozen=True):
    """Node - pods - host applications, at least 0, per resource."""

    cpu_milli: int | None
    memory_bytes: int


class Skipped(msgspec.Struct, frozen=True):
    group: str
    reason: str


class UsageSnapshot(Value, frozen=True):
    monotonic_ns: int
    interval_ns: int | None  # None in the first snapshot
    node: NodeUsage
    system: SystemUsage
    pods: dict[str, PodSample]  # by uid
    tiers: dict[str, GroupUsage]  # "burstable", "besteffort" where the directory exists
    host_applications: dict[str, HostApplicationSample] = {}
    unmeasured_applications: dict[str, str] = {}  # host applications that are not in this snapshot: name -> why
    skipped: tuple[Skipped, ...] = ()  # groups that vanished or could not be read in this round


class TriggerCheck(msgspec.Struct, frozen=True):
    """`cycle`: a cycle should run now. `again`: seconds until the next check, None: when a trigger fires."""

    cycle: bool = False
    again: float | None = None

"""The state of the machine in one cycle, which the core reads beside the events of the log.

One frozen struct, filled from the kernel and the runtime, or from the simulation.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import field

from cotenant.model.values import Value
from cotenant_node_executor.runtime.interface import ContainerState
from cotenant_node_executor.sampling.latency.readings import NO_SERVICES, Services
from cotenant_node_executor.sampling.slow.readings import MachineFacts, SlowReadings
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.threads import NO_THREADS, Threads
from cotenant_node_executor.targets.cgroup.durations import Histogram
from cotenant_node_executor.targets.disks import NO_DEVICES, Storage, VolumeDevices
from cotenant_node_executor.targets.interface import NO_CORE_GROUPS, CoreGroups, Knob
from cotenant_node_executor.targets.other.realtime import NO_REALTIME, RealtimeState

NO_STORAGE = Storage()
NO_WRITES: Mapping[tuple[Knob, str], Histogram] = {}


class Observation(Value, frozen=True):
    """`states`: containers by pod uid, also of orphaned pods. `groups`: control groups below the root. Where the same object
    means that nothing changed, defaults come from a function: of a plain empty dict each observation would get a copy.

    `current`: present values of the files that strategies start from.
    """

    snapshot: UsageSnapshot | None
    states: Mapping[str, Mapping[str, ContainerState]]
    groups: frozenset[str]
    current: Mapping[tuple[str, Knob], str]
    identity_sysctl: int | None = None
    machine: MachineFacts | None = None
    """The same object while it does not change."""
    slow: SlowReadings | None = None
    storage: Storage = NO_STORAGE
    """The same object while nothing changed."""
    spike: UsageSnapshot | None = None
    """The sample with the services' CPU as measured since, where it rose suddenly; until the next sample."""
    threads: Threads = NO_THREADS
    """Threads of busy pods, if the node SLO protects single threads."""
    realtime: RealtimeState = NO_REALTIME
    core_groups: CoreGroups = NO_CORE_GROUPS
    """Cookies of containers as of the last writes; the same object while nothing changed."""
    strangers: tuple[str, ...] = ()
    """Where kubelet runs the pods: directories and pods that do not match, and what cannot be read."""
    writes: Mapping[tuple[Knob, str], Histogram] = NO_WRITES
    """How long writes of control group files took since the start; it grows in place."""
    services: Services = field(default_factory=lambda: NO_SERVICES)
    """The latency that services last reported; the same object until there are newer answers."""
    volumes: VolumeDevices = field(default_factory=lambda: NO_DEVICES)
    """The devices of pods' volumes, where kubelet runs the pods; the same object while nothing changed."""


def same_figures(before: Observation, now: Observation) -> bool:
    """Whether two observations show strategies the same usage; a cheap check that may miss equal pairs."""
    if before.realtime != now.realtime or before.services is not now.services:
        return False
    return _same_usage(before.snapshot, now.snapshot) and before.current == now.current


def _same_usage(before: UsageSnapshot | None, now: UsageSnapshot | None) -> bool:
    if before is now or before is None or now is None:
        return before is now
    return before.pods is now.pods and before.node.cpu_milli == now.node.cpu_milli

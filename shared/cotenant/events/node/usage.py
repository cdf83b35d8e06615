"""Raw samples of a node on stream USAGE, written by its executor.

The executor samples every second and reports once per report period: for each series the newest value and the
digest (the values themselves) of the samples since the last message.
"""

from __future__ import annotations

from cotenant.events.envelope import Part, Payload
from cotenant.model.bounds import Count, Int32, Int64


class Series(Part, frozen=True, kw_only=True):
    """CPU in milli-cores and memory working set in bytes, per sample, parallel to the newest of `UsageSample.offsets_ms`.

    Values are not bounded here: metrics-ingest refuses a message with impossible values, and counts it. A series that
    is shorter than `offsets_ms` belongs to its last entries: a pod that did not exist before. `page_cache_bytes` is in addition
    to the working set, `cold_bytes` are those of both that were not used for a while; empty where a node does not collect them.
    """

    cpu_milli: tuple[int, ...] = ()
    memory_bytes: tuple[int, ...] = ()
    page_cache_bytes: tuple[int, ...] = ()
    cold_bytes: tuple[int, ...] = ()


class Pressure(Part, frozen=True, kw_only=True):
    """PSI averages over 10 s in hundredths of a percent; -1 where the kernel has none."""

    cpu_some: Int32 = -1
    memory_some: Int32 = -1
    memory_full: Int32 = -1
    io_some: Int32 = -1
    io_full: Int32 = -1


class PodUsage(Part, frozen=True, kw_only=True):
    """Usage of one pod. `throttled_permille`: throttled periods per thousand since the last message, -1 unknown.

    `cycles`, `instructions`: of all its containers over the last CPI window; 0 where they are not counted.
    """

    namespace: str
    name: str
    uid: str
    qos: str = ""
    priority: str = ""
    series: Series = Series()
    throttled_permille: Int32 = -1
    pressure: Pressure = Pressure()
    cycles: Count = 0
    instructions: Count = 0


class NumaUsage(Part, frozen=True, kw_only=True):
    """Usage of one NUMA node at the last sample: CPU of its processors, memory used of its own."""

    node: Count = 0
    cpu_milli: Count = 0
    memory_bytes: Count = 0


class ResctrlUsage(Part, frozen=True, kw_only=True):
    """Last-level cache occupancy and memory bandwidth of one resctrl group, over the last collection."""

    group: str
    llc_bytes: Count = 0
    memory_bandwidth_bytes_per_second: Count = 0


class HostApplicationUsage(Part, frozen=True, kw_only=True):
    """Usage of an application that runs outside pods."""

    name: str
    qos: str = ""
    priority: str = ""
    series: Series = Series()


class UsageSample(Payload, frozen=True, kw_only=True):
    """Subject `usage.<node>`. The event's time is the node's clock at the last sample.

    `offsets_ms`: age of each sample relative to the event's time, oldest first, <= 0 (for example -14000 .. 0).
    `counter`: increases by one with every message of this incarnation of the executor, which `boot` identifies.
    """
    TYPE = "cotenant.usage.v1"

    node: str
    boot: str = ""
    counter: Count = 0
    period_ms: Int64 = 1000
    offsets_ms: tuple[Int64, ...] = ()
    node_usage: Series = Series()
    system_usage: Series = Series()
    pressure: Pressure = Pressure()
    pods: tuple[PodUsage, ...] = ()
    host_applications: tuple[HostApplicationUsage, ...] = ()
    numa: tuple[NumaUsage, ...] = ()
    resctrl: tuple[ResctrlUsage, ...] = ()

"""NodeMetric: averages and percentiles per window, written by metrics-ingest on `metrics.<node>`."""

from __future__ import annotations

from datetime import datetime

from cotenant.events.envelope import Part, Payload


class Usage(Part, frozen=True, kw_only=True):
    """CPU in milli-cores and memory working set in bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0


class AggregatedUsage(Part, frozen=True, kw_only=True):
    """Percentiles and average of one window."""

    duration_seconds: int
    p50: Usage = Usage()
    p90: Usage = Usage()
    p95: Usage = Usage()
    p99: Usage = Usage()
    avg: Usage = Usage()


class PodMetric(Part, frozen=True, kw_only=True):
    """Average usage of one pod over the report window."""

    namespace: str
    name: str
    uid: str = ""
    priority: str = ""
    qos: str = ""
    usage: Usage = Usage()


class HostApplicationMetric(Part, frozen=True, kw_only=True):
    """Average usage of one application outside pods."""

    name: str
    priority: str = ""
    qos: str = ""
    usage: Usage = Usage()


class NodeMetricComputed(Payload, frozen=True, kw_only=True):
    """State of a node's metrics. `update_time` is when the last sample was taken into the windows (log time).

    `unknown_since` is set while nothing is heard from the node: the figures are then the last ones known and must not be
    acted on. `digests` carries the windows' own state, so that a restart goes on where it was.
    """
    TYPE = "cotenant.nodemetric.v1"

    node: str
    update_time: datetime | None = None
    unknown_since: datetime | None = None
    report_interval_seconds: int = 60
    aggregate_duration_seconds: int = 300
    node_usage: Usage = Usage()
    system_usage: Usage = Usage()
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    pods: tuple[PodMetric, ...] = ()
    host_applications: tuple[HostApplicationMetric, ...] = ()
    prod_reclaimable: Usage | None = None

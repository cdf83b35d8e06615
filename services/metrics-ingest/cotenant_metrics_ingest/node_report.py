"""A node's report from its windows.

In: the windows and when they were last fed. Out: the NodeMetricComputed that says so: means over the aggregation
window, percentiles of each longer window (those in cold start only named), every pod and host application of the last
message that has samples, sorted, and the digest to go on from.
"""

from datetime import datetime

from cotenant.events.metrics import (
    AggregatedUsage,
    HostApplicationMetric,
    NodeMetricComputed,
    PodMetric,
    Usage,
)
from cotenant_metrics_ingest.means import NODE, SYSTEM
from cotenant_metrics_ingest.node_windows import NodeWindows
from cotenant_metrics_ingest.report import in_cold_start
from cotenant_metrics_ingest.slots import Window


def report_of(
    node: str,
    windows: NodeWindows,
    *,
    update_time: datetime,
    report_interval_seconds: int,
    refused_samples: int,
    refused_reason: str,
) -> NodeMetricComputed:
    """The report at the windows' newest sample."""
    sizes, end_ms = windows.sizes, windows.last_ms
    means = windows.means.means(end_ms, sizes.aggregate_ms, windows.reported_rows)
    node_entries: list[AggregatedUsage] = []
    system_entries: list[AggregatedUsage] = []
    cold: list[int] = []
    for window in windows.slots.windows(end_ms, sizes.durations_ms):
        if in_cold_start(window.span_ms, window.duration_ms):
            cold.append(window.duration_ms // 1000)
            continue
        node_entries.append(_entry(window, 0))
        if window.counts[1]:
            system_entries.append(_entry(window, 2))
    return NodeMetricComputed(
        node=node,
        update_time=update_time,
        report_interval_seconds=report_interval_seconds,
        aggregate_duration_seconds=sizes.aggregate_ms // 1000,
        node_usage=means.get(NODE, Usage()),
        system_usage=means.get(SYSTEM, Usage()),
        aggregated_node_usages=tuple(node_entries),
        aggregated_system_usages=tuple(system_entries),
        cold_windows=tuple(cold),
        pods=tuple(
            PodMetric(
                namespace=pod.namespace,
                name=pod.name,
                uid=pod.key,
                priority=pod.priority,
                qos=pod.qos,
                usage=means[pod.key],
            )
            for pod in windows.pods
            if pod.key in means
        ),
        host_applications=tuple(
            HostApplicationMetric(name=host.name, priority=host.priority, qos=host.qos, usage=means[host.key])
            for host in windows.host_applications
            if host.key in means
        ),
        refused_samples=refused_samples,
        refused_reason=refused_reason,
        digest=windows.digest(),
    )


def _entry(window: Window, cpu: int) -> AggregatedUsage:
    """The entry of the node (`cpu` 0) or the system (2): where its cpu stands among the figures, memory next to it."""
    p50, p90, p95, p99, avg = [Usage(cpu_milli=row[cpu], memory_bytes=row[cpu + 1]) for row in window.figures]
    return AggregatedUsage(duration_seconds=window.duration_ms // 1000, p50=p50, p90=p90, p95=p95, p99=p99, avg=avg)

"""Builds nodes' reports from their windows.

In: windows of nodes with a due report, and the times of their last samples. Out: one NodeMetricComputed each: means over the
aggregation window, percentiles of each percentile window (those in cold start only named), every pod and host application of
the last message with samples, sorted, and the digest for a restart. Reports are computed over arrays of AT_ONCE nodes, as a
single report costs several times as much.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.events.node.metrics import (
    AggregatedUsage,
    Contention,
    HostApplicationMetric,
    MeanDigest,
    NodeMetricComputed,
    NumaMetric,
    PodMetric,
    Usage,
    WindowDigest,
)
from cotenant.model.bounds import MAX_AMOUNT
from cotenant_metrics_ingest.contention import NO_CONTENTION
from cotenant_metrics_ingest.means import MeansWindow, digests, means_of
from cotenant_metrics_ingest.policy import PolicyInForce
from cotenant_metrics_ingest.prediction.node import Forecast
from cotenant_metrics_ingest.report import in_cold_start
from cotenant_metrics_ingest.slots import Window, encode_ended, settle
from cotenant_metrics_ingest.windows.node_windows import NodeWindows, fold
from cotenant_metrics_ingest.windows.percentiles import PercentileRows, figures_of

AT_ONCE = 32
"""Number of nodes whose windows' points (24 KiB each) fit in a CPU core's cache."""

MAX_NUMA_NODES = 64
_NO_USAGE = Usage()


class DueReport(msgspec.Struct, frozen=True, kw_only=True):
    """A report that is due."""

    node: str
    windows: NodeWindows
    update_time: datetime
    refused_samples: int
    refused_reason: str
    policy: PolicyInForce
    services_peak: Usage | None = None
    contention: Mapping[str, Contention] = {}


def reports_of(wanted: Sequence[DueReport], forecasts: Sequence[Forecast | None]) -> list[NodeMetricComputed]:
    """Return the reports as of their windows' newest samples, in the order of `wanted`, each with its forecast."""
    reports: list[NodeMetricComputed] = []
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        fold([report.windows for report in some])
        rings = [report.windows.slots for report in some]
        settle(rings)
        encode_ended(rings)
        windows = [list(report.windows.slots.windows(report.windows.sizes.durations_ms)) for report in some]
        figures = _figures(windows)
        digests_of_means = digests([report.windows.means for report in some])
        means = means_of([_means_window(report.windows) for report in some])
        of_some = forecasts[start : start + AT_ONCE]
        every = zip(some, windows, means, digests_of_means, of_some, strict=True)
        for report, own_windows, own_means, digest, forecast in every:
            own = [(window, figures.get(id(window))) for window in own_windows]
            reports.append(_report(report, own, own_means, digest, forecast))
    return reports


def with_digest(metric: NodeMetricComputed, windows: NodeWindows) -> NodeMetricComputed:
    """Return a report with the digest of its node's windows, which may have taken samples since."""
    fold([windows])
    settle([windows.slots])
    encode_ended([windows.slots])
    return msgspec.structs.replace(metric, digest=_digest(windows, digests([windows.means])[0]))


def _digest(windows: NodeWindows, means: MeanDigest) -> WindowDigest:
    return WindowDigest(
        boot=windows.boot,
        counter=windows.counter,
        last_ms=windows.last_ms,
        span_ms=windows.period_ms,
        slots=windows.slots.digest(),
        means=means,
    )


def _means_window(windows: NodeWindows) -> MeansWindow:
    return MeansWindow(windows.means, windows.last_ms, windows.sizes.aggregate_ms, windows.reported_rows)


def _figures(windows: Sequence[Sequence[Window]]) -> Mapping[int, PercentileRows]:
    """Percentiles of the windows that are not in cold start, by the window's identity."""
    by_duration: dict[int, list[Window]] = {}
    for own in windows:
        for window in own:
            if not in_cold_start(window.span_ms, window.duration_ms):
                by_duration.setdefault(window.duration_ms, []).append(window)
    return {
        id(window): figures for alike in by_duration.values() for window, figures in zip(alike, figures_of(alike), strict=True)
    }


def _report(
    wanted: DueReport,
    own: Sequence[tuple[Window, PercentileRows | None]],
    means: Sequence[Usage | None],
    means_digest: MeanDigest,
    forecast: Forecast | None,
) -> NodeMetricComputed:
    windows, sizes = wanted.windows, wanted.windows.sizes
    held_up = wanted.contention.get
    node, system, *others = means
    of_pods, of_hosts = others[: len(windows.pods)], others[len(windows.pods) :]
    warm = [(window.duration_ms, figures) for window, figures in own if figures is not None]
    return NodeMetricComputed(
        node=wanted.node,
        update_time=wanted.update_time,
        report_interval_seconds=max(1, round(wanted.policy.report_interval_seconds)),
        aggregate_duration_seconds=sizes.aggregate_ms // 1000,
        node_usage=node or _NO_USAGE,
        system_usage=system or _NO_USAGE,
        aggregated_node_usages=tuple(_entry(duration, figures, 0) for duration, figures in warm),
        aggregated_system_usages=tuple(_entry(duration, figures, 2) for duration, figures in warm if figures.counts[1]),
        cold_windows=tuple(window.duration_ms // 1000 for window, figures in own if figures is None),
        pods=tuple(
            [
                PodMetric(
                    namespace=pod.namespace,
                    name=pod.name,
                    uid=pod.key,
                    priority=pod.priority,
                    qos=pod.qos,
                    usage=usage,
                    contention=held_up(pod.key, NO_CONTENTION),
                )
                for pod, usage in zip(windows.pods, of_pods, strict=True)
                if usage is not None
            ]
        ),
        host_applications=tuple(
            [
                HostApplicationMetric(name=host.name, priority=host.priority, qos=host.qos, usage=usage)
                for host, usage in zip(windows.host_applications, of_hosts, strict=True)
                if usage is not None
            ]
        ),
        prod_reclaimable=forecast.reclaimable if forecast is not None else None,
        prod_peak=forecast.peak if forecast is not None else None,
        services_peak=wanted.services_peak,
        prediction=forecast.terms if forecast is not None else None,
        durations_seconds=tuple(duration // 1000 for duration in sizes.durations_ms),
        memory_collect_policy=wanted.policy.memory.value,
        numa=tuple(
            NumaMetric(
                node=each.node,
                usage=Usage(
                    cpu_milli=min(each.cpu_milli, MAX_AMOUNT), memory_bytes=min(each.memory_bytes, MAX_AMOUNT)
                ),
            )
            for each in windows.numa[:MAX_NUMA_NODES]
        ),
        refused_samples=wanted.refused_samples,
        refused_reason=wanted.refused_reason,
        digest=_digest(windows, means_digest),
    )


def _entry(duration_ms: int, figures: PercentileRows, cpu: int) -> AggregatedUsage:
    """The entry of the node or the system; `cpu`: its cpu row (0 or 2), followed by its memory row."""
    usages = [
        Usage(cpu_milli=cpu_milli, memory_bytes=memory_bytes)
        for cpu_milli, memory_bytes in zip(figures.rows[cpu], figures.rows[cpu + 1], strict=True)
    ]
    p50, p90, p95, p99, avg = usages
    return AggregatedUsage(duration_seconds=duration_ms // 1000, p50=p50, p90=p90, p95=p95, p99=p99, avg=avg)

"""slo.koordinator.sh/v1alpha1 NodeMetric = metrics: an object without a document, composed of one event.

In: the `metrics.<node>` event. Out: the object as Koordinator's custom resource spells it, and its columns. Labels and
annotations may be declared; those of the event take precedence.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition, node_of_subject
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.overlay import Overlay, head_of
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import raw
from cotenant.api.times import derived_uid, go_duration, rfc3339
from cotenant.events.node.metrics import AggregatedUsage, Contention, NodeMetricComputed, PodMetric, Usage
from cotenant.model.quantities import format_decimal, format_milli

NODE_METRICS = Kind("slo.koordinator.sh", "v1alpha1", "nodemetrics", "NodeMetric", False, (), True)


def _resources(usage: Usage) -> dict[str, dict[str, str]]:
    return {"resources": {"cpu": format_milli(usage.cpu_milli), "memory": format_decimal(usage.memory_bytes)}}


def _aggregated(windows: tuple[AggregatedUsage, ...], cold: tuple[int, ...]) -> list[dict[str, object]]:
    """The windows' entries by duration; a window that is too young keeps its entry, without resources."""
    empty: dict[int, dict[str, object]] = {
        seconds: {"duration": go_duration(seconds), "usage": {name: {} for name in ("p50", "p90", "p95", "p99", "avg")}}
        for seconds in cold
    }
    entries: dict[int, dict[str, object]] = {
        window.duration_seconds: {
            "duration": go_duration(window.duration_seconds),
            "usage": {
                name: _resources(usage)
                for name, usage in (
                    ("p50", window.p50),
                    ("p90", window.p90),
                    ("p95", window.p95),
                    ("p99", window.p99),
                    ("avg", window.avg),
                )
            },
        }
        for window in windows
    }
    return [entry for _, entry in sorted({**empty, **entries}.items())]


def compose_node_metric(snapshot: Snapshot) -> Overlay:
    """Return the NodeMetric of a node; its annotation says since when nothing has been reported, where that is so."""
    for event in snapshot.parts.values():
        if isinstance(event.data, NodeMetricComputed) and not event.tombstone:
            return _node_metric(snapshot, event.data)
    return Overlay()


def _node_metric(snapshot: Snapshot, metric: NodeMetricComputed) -> Overlay:
    spec = {"metricCollectPolicy": _policy(metric)}
    unknown = {"cotenant.io/unknown-since": rfc3339(metric.unknown_since)} if metric.unknown_since else {}
    measured = metric.update_time is not None or metric.unknown_since is None
    uid = derived_uid("NodeMetric", snapshot.address.name)
    return Overlay(
        head=head_of(NODE_METRICS.api_version, "NodeMetric", spec),
        metadata={"name": snapshot.address.name, "uid": uid},
        annotations=unknown,
        status={name: raw(value) for name, value in _status(metric).items()} if measured else {},
        uid=uid,
    )


def _status(metric: NodeMetricComputed) -> dict[str, object]:
    """The figures. A node that was never measured has none: zeros would look like an idle node."""
    node_metric: dict[str, object] = {
        "nodeUsage": _resources(metric.node_usage),
        "systemUsage": _resources(metric.system_usage),
        "aggregatedNodeUsages": _aggregated(metric.aggregated_node_usages, metric.cold_windows),
        "aggregatedSystemUsages": _aggregated(metric.aggregated_system_usages, metric.cold_windows),
    }
    status: dict[str, object] = {"nodeMetric": node_metric}
    if metric.update_time is not None:
        status["updateTime"] = rfc3339(metric.update_time)
    status["podsMetric"] = [_pod(pod) for pod in metric.pods]
    status["hostApplicationMetric"] = [
        {"name": host.name, "priority": host.priority, "qos": host.qos, "usage": _resources(host.usage)}
        for host in metric.host_applications
    ]
    if metric.prod_reclaimable is not None:
        status["prodReclaimableMetric"] = {"resource": _resources(metric.prod_reclaimable)}
    elif metric.prediction is not None:
        status["prodReclaimableMetric"] = {"resource": {}}
    if metric.prod_peak is not None:
        status["prodPeakMetric"] = {"resource": _resources(metric.prod_peak)}
    if metric.numa:
        node_metric["numaUsages"] = [{"numaId": numa.node, "usage": _resources(numa.usage)} for numa in metric.numa]
    return status


def _policy(metric: NodeMetricComputed) -> dict[str, object]:
    """The collect policy in force; windows of an event that does not name them are those that it has."""
    windows = metric.durations_seconds or sorted(
        {*metric.cold_windows, *(window.duration_seconds for window in metric.aggregated_node_usages)}
    )
    return {
        "aggregateDurationSeconds": metric.aggregate_duration_seconds,
        "reportIntervalSeconds": metric.report_interval_seconds,
        "nodeAggregatePolicy": {"durations": [go_duration(seconds) for seconds in windows]},
        "nodeMemoryCollectPolicy": metric.memory_collect_policy,
    }


def _pod(pod: PodMetric) -> dict[str, object]:
    """A pod's entry. Its extensions, cotenant's own, are there where they were measured."""
    entry: dict[str, object] = {
        "namespace": pod.namespace,
        "name": pod.name,
        "priority": pod.priority,
        "qos": pod.qos,
        "podUsage": _resources(pod.usage),
    }
    if extensions := _extensions(pod.contention):
        entry["extensions"] = extensions
    return entry


def _extensions(contention: Contention) -> dict[str, object]:
    """Averages since the last report: the share of throttled periods, PSI over 10 s in percent, cycles per instruction."""
    found: dict[str, object] = {}
    if contention.throttled_permille >= 0:
        found["cpuThrottledRatio"] = contention.throttled_permille / 1000
    pressure = {
        name: value / 100
        for name, value in (
            ("cpuSome", contention.cpu_some),
            ("memorySome", contention.memory_some),
            ("memoryFull", contention.memory_full),
            ("ioSome", contention.io_some),
            ("ioFull", contention.io_full),
        )
        if value >= 0
    }
    if pressure:
        found["psiAvg10Percent"] = pressure
    if contention.cpi_thousandths >= 0:
        found["cpi"] = contention.cpi_thousandths / 1000
    return found


class _Resources(View, frozen=True, kw_only=True):
    resources: dict[str, str] = {}


class _Usage(View, frozen=True, kw_only=True):
    node_usage: _Resources = _Resources()


class _Status(View, frozen=True, kw_only=True):
    node_metric: _Usage = _Usage()
    update_time: str = ""


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    usage = shown.status.node_metric.node_usage.resources
    unknown = shown.metadata.annotations.get("cotenant.io/unknown-since")
    return (
        snapshot.address.name,
        usage.get("cpu", "<unknown>"),
        usage.get("memory", "<unknown>"),
        age(shown.status.update_time, now),
        f"Unknown since {age(unknown, now)}" if unknown else "Known",
    )


DEFINITION = KindDefinition(
    NODE_METRICS,
    compose=compose_node_metric,
    parts={NodeMetricComputed: node_of_subject},
    layout=Layout((NAME, Column("CPU"), Column("Memory"), Column("Updated"), Column("State")), _cells),
    declarable=True,
    created_with_node=True,
    ends_with_node=True,
    stable_uid=True,
)

"""NodeMetric = metrics, NodeSLO = slo: objects without a document, made of one event each.

In: the `metrics.<node>` or `node.<node>.slo` event. Out: the object as Koordinator's custom resources spell it.
"""

from __future__ import annotations

from cotenant.api.overlay import Overlay, head_of
from cotenant.api.splices import is_object, members, raw
from cotenant.events.metrics import AggregatedUsage, NodeMetricComputed, Usage
from cotenant.events.resources import NodeSLORendered
from cotenant.model.quantities import format_decimal, format_milli
from cotenant_gateway.kinds.times import derived_uid, go_duration, rfc3339
from cotenant_gateway.read_model.snapshots import Snapshot

_API_VERSION = "slo.koordinator.sh/v1alpha1"


def _resources(usage: Usage) -> dict[str, dict[str, str]]:
    return {"resources": {"cpu": format_milli(usage.cpu_milli), "memory": format_decimal(usage.memory_bytes)}}


def _aggregated(windows: tuple[AggregatedUsage, ...], cold: tuple[int, ...]) -> list[dict[str, object]]:
    """The windows' entries by duration; one that is too young to say anything keeps its entry, without resources."""
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
    """Return the NodeMetric of a node; its annotation says since when nothing is heard, where that is so."""
    for event in snapshot.parts.values():
        if isinstance(event.data, NodeMetricComputed) and not event.tombstone:
            return _node_metric(snapshot, event.data)
    return Overlay()


def _node_metric(snapshot: Snapshot, metric: NodeMetricComputed) -> Overlay:
    node_metric: dict[str, object] = {
        "nodeUsage": _resources(metric.node_usage),
        "systemUsage": _resources(metric.system_usage),
        "aggregatedNodeUsages": _aggregated(metric.aggregated_node_usages, metric.cold_windows),
        "aggregatedSystemUsages": _aggregated(metric.aggregated_system_usages, metric.cold_windows),
    }
    status: dict[str, object] = {"nodeMetric": node_metric}
    if metric.update_time is not None:
        status["updateTime"] = rfc3339(metric.update_time)
    status["podsMetric"] = [
        {
            "namespace": pod.namespace,
            "name": pod.name,
            "priority": pod.priority,
            "qos": pod.qos,
            "podUsage": _resources(pod.usage),
        }
        for pod in metric.pods
    ]
    status["hostApplicationMetric"] = [
        {"name": host.name, "priority": host.priority, "qos": host.qos, "usage": _resources(host.usage)}
        for host in metric.host_applications
    ]
    if metric.prod_reclaimable is not None:
        status["prodReclaimableMetric"] = {"resource": _resources(metric.prod_reclaimable)}
    spec = {
        "metricCollectPolicy": {
            "aggregateDurationSeconds": metric.aggregate_duration_seconds,
            "reportIntervalSeconds": metric.report_interval_seconds,
        }
    }
    unknown = {"cotenant.io/unknown-since": rfc3339(metric.unknown_since)} if metric.unknown_since else {}
    uid = derived_uid("NodeMetric", snapshot.address.name)
    return Overlay(
        head=head_of(_API_VERSION, "NodeMetric", spec),
        metadata={"name": snapshot.address.name, "uid": uid},
        annotations=unknown,
        status={name: raw(value) for name, value in status.items()},
        uid=uid,
    )


def compose_node_slo(snapshot: Snapshot) -> Overlay:
    """Return the NodeSLO of a node."""
    for event in snapshot.parts.values():
        if isinstance(event.data, NodeSLORendered) and not event.tombstone:
            slo = event.data
            threshold = {
                "enable": slo.enable,
                "cpuSuppressThresholdPercent": slo.cpu_suppress_threshold_percent,
                "cpuSuppressMinPercent": slo.cpu_suppress_min_percent,
                "cpuSuppressPolicy": slo.cpu_suppress_policy,
            }
            uid = derived_uid("NodeSLO", snapshot.address.name)
            # An event of a calculator that renders the whole spec carries it; the threshold section alone says the rest.
            rendered = is_object(slo.spec) and bool(members(slo.spec))
            return Overlay(
                head=head_of(_API_VERSION, "NodeSLO", slo.spec if rendered else {"resourceUsedThresholdWithBE": threshold}),
                metadata={"name": snapshot.address.name, "uid": uid},
                annotations={"cotenant.io/reason": slo.reason} if slo.reason else {},
                uid=uid,
            )
    return Overlay()

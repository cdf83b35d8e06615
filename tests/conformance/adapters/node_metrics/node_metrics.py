"""node-metrics vectors of the aggregating half: percentiles and the values of a NodeMetric."""

from datetime import timedelta
from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.domain.qos import priority_default, priority_raw, qos_default, qos_raw
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.model.durations import parse_duration
from cotenant.model.quantities import format_binary, format_decimal, format_milli
from cotenant_metrics_ingest.aggregation import AggregationError, percentile_rank
from cotenant_metrics_ingest.policy import (
    WITHOUT_PAGE_CACHE,
    MemoryPolicy,
    effective_aggregate_duration,
    effective_report_interval,
    memory_series,
    policy_of,
)
from cotenant_metrics_ingest.report import GpuUsage, gpu_devices, in_cold_start
from cotenant_metrics_ingest.slots import MAX_SLOTS, PercentileSlots, settle
from cotenant_metrics_ingest.windows.percentiles import PercentileRows, figures_of
from cotenant_node_executor.core.usage_window import UsageWindow
from tests.unit.metrics_ingest.builders_metrics_ingest import START, MetricsLog, int64s
from tests.unit.node_executor.builders_node_executor import snapshot

Json = dict[str, Any]


SCALE = 10**12
"""The service's samples are integers: one unit of a vector counts this many."""
PLACES = {"p50": 0, "P90": 1, "P95": 2, "p99": 3}
MEAN = 4


def aggregate_percentile(given: Json, *, name: str) -> object:
    """By the windows of reports; the newest sample by the executor's message. Without samples neither is published."""
    points = sorted(given["points"], key=lambda point: point["time_ms"])
    values = [round(point["value"] * SCALE) for point in points]
    aggregation, percentile = given["aggregation"], given.get("percentile")
    try:
        if aggregation == "percentile" and percentile is not None:
            found: float = sorted(values)[percentile_rank(len(values), percentile)] / SCALE
        elif aggregation == "count":
            found = _window([point["time_ms"] for point in points], values).counts[0]
        elif not points:
            raise AggregationError("nothing to publish")
        elif aggregation == "last":
            found = _newest(values) / SCALE
        else:
            figures = _window([point["time_ms"] for point in points], values)
            found = figures.rows[0][PLACES.get(aggregation, MEAN)] / SCALE
    except AggregationError:
        return {"value": None, "error": True}
    return {"value": found, "error": False}


def _window(times_ms: list[int], values: list[int]) -> PercentileRows:
    """The figures of one window with these samples, one a slot, so that none is thinned."""
    ring = PercentileSlots(1000, MAX_SLOTS)
    for at, (time_ms, value) in enumerate(zip(times_ms, values, strict=True)):
        ring.add(at, time_ms, time_ms, int64s([value], [value], [value], [value]))
    settle([ring])
    (figures,) = figures_of(list(ring.windows([10**9])))
    return figures


def _newest(values: list[int]) -> int:
    """The last of the node's series in the message that ends with these samples."""
    made = UsageWindow("node", "boot", sample_seconds=1.0, report_seconds=1.0)
    for second, value in enumerate(values):
        made.add(snapshot(value), START + timedelta(seconds=second))
    return made.message({}, START + timedelta(seconds=len(values))).node_usage.cpu_milli[-1]


def node_metric_report(given: Json, *, name: str) -> object:
    return _REPORTS[given["fn"]](given)


def _usage_of(cpu_cores: float, memory_bytes: float) -> Usage:
    """In the service's units, in which the executor samples."""
    return Usage(cpu_milli=int(cpu_cores * 1000), memory_bytes=int(memory_bytes))


def _shown(usage: Usage) -> dict[str, str]:
    return {"cpu": format_milli(usage.cpu_milli), "memory": format_binary(usage.memory_bytes)}


def _usage(given: Json) -> object:
    kind = given["object"]
    suffix = memory_series(MemoryPolicy(given["policy"]), cold_memory_started=given["cold_memory_started"])
    series = f"sys_{WITHOUT_PAGE_CACHE}" if kind == "system" else f"{kind}_{suffix}"
    memory = given["memory_series"].get(series.removeprefix("sys_" if kind == "system" else f"{kind}_"))
    if memory is None or given["cpu_cores"] is None:
        return {"resources": {}, "memory_metric": series}
    return {"resources": _shown(_usage_of(given["cpu_cores"], memory)), "memory_metric": series}


def _aggregated_usage(given: Json) -> object:
    entries = []
    for window in given["windows"]:
        keys = [key for key in window["values"] if key != "avg" or given["with_avg"]]
        values = {key: _usage_of(window["values"][key]["cpu_cores"], window["values"][key]["memory_bytes"]) for key in keys}
        span_ms = round(window["series_span_seconds"] * 1000)
        cold = in_cold_start(span_ms, parse_duration(window["duration"]) // timedelta(milliseconds=1))
        usage = {key: {} if cold else {"resources": _shown(value)} for key, value in values.items()}
        entries.append({"duration": window["duration"], "usage": usage})
    return {"aggregated": entries}


def _pod_entry(given: Json) -> object:
    pod = msgspec.convert(given["pod"], Pod)
    return {
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "priority": priority_default(pod),
        "qos": qos_default(pod),
        "podUsage": {"resources": _shown(_usage_of(given["cpu_cores"], given["memory_bytes"]))},
    }


def _gpu_devices(given: Json) -> object:
    devices = gpu_devices([msgspec.convert(gpu, GpuUsage) for gpu in given["gpus"]])
    return {
        "devices": [
            {
                "id": device.id,
                "minor": device.minor,
                "type": device.type,
                "resources": {resource: format_decimal(amount) for resource, amount in device.resources.items()},
            }
            for device in devices
        ]
    }


def _update_spec(given: Json) -> object:
    policy = policy_of(msgspec.json.encode(given["new"] or {}))
    return {"metricCollectPolicy": msgspec.json.decode(msgspec.json.encode(policy))}


def _sync_gate(given: Json) -> object:
    log = MetricsLog()
    if given["object_seen"]:
        log.node()
    if not given["object_exists"]:
        log.delete_node()
    log.sample([100, 200])
    written = [event for event in log.decide(after=120) if isinstance(event.data, NodeMetricComputed) and not event.tombstone]
    return {"writes_status": bool(written), "error": False}


_REPORTS = {
    "usage": _usage,
    "aggregated_usage": _aggregated_usage,
    "pod_entry": _pod_entry,
    "priority_class": lambda given: {"priority": priority_raw(msgspec.convert(given["pod"], Pod))},
    "priority_class_with_default": lambda given: {"priority": priority_default(msgspec.convert(given["pod"], Pod))},
    "qos_class_raw": lambda given: {"qos": qos_raw(msgspec.convert(given["pod"], Pod))},
    "gpu_devices": _gpu_devices,
    "update_spec": _update_spec,
    "report_interval": lambda given: {"seconds": effective_report_interval(given["reportIntervalSeconds"])},
    "aggregate_duration": lambda given: {"seconds": effective_aggregate_duration(given["aggregateDurationSeconds"])},
    "sync_gate": _sync_gate,
}

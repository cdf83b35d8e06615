"""node-metrics vectors of the aggregating half: percentiles and the values of a NodeMetric."""

from typing import Any

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.domain.qos import priority_default, priority_raw, qos_default, qos_raw
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.model.quantities import format_binary, format_decimal, format_milli
from cotenant_metrics_ingest.aggregation import AggregationError, Point, aggregate
from cotenant_metrics_ingest.policy import (
    WITHOUT_PAGE_CACHE,
    MemoryPolicy,
    duration_ms,
    effective_aggregate_duration,
    effective_report_interval,
    memory_series,
    policy_of,
)
from cotenant_metrics_ingest.report import GpuUsage, gpu_devices, in_cold_start
from tests.unit.metrics_ingest.builders_metrics_ingest import MetricsLog

Json = dict[str, Any]


def aggregate_percentile(given: Json, *, name: str) -> object:
    points = [Point(point["time_ms"], point["value"]) for point in given["points"]]
    try:
        return {"value": aggregate(points, given["aggregation"], given.get("percentile")), "error": False}
    except AggregationError:
        return {"value": None, "error": True}


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
        cold = in_cold_start(span_ms, duration_ms(window["duration"]))
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

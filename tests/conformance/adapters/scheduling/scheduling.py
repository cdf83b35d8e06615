"""Scheduling vectors: load-aware filter, score and estimates, through the node table and the plugin that the service runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from cotenant.api.objects.node import Node
from cotenant.domain.node import estimate_node_allocatable
from cotenant.model.quantities import format_amount, resource_amount
from cotenant_scheduler.plugins.load_aware import LoadAwareScheduling
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs, parse_duration_seconds, thresholds_of
from cotenant_scheduler.state.load.load_estimate import (
    MICROSECONDS,
    AssignedPod,
    NodeReport,
    ReportedPod,
    aggregated_usage,
    estimate_node,
    estimation_deadline,
    microseconds,
)
from cotenant_scheduler.state.nodes import NodeDescription, NodeTable
from cotenant_scheduler.state.reading.pod_reader import PodReader
from cotenant_scheduler.state.reading.priorities import PriorityValues
from cotenant_scheduler.state.reading.shapes import ParsedPod, Shape

Json = dict[str, Any]

RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"


def _time_us(text: str | None) -> int | None:
    return microseconds(datetime.fromisoformat(text).astimezone(UTC)) if text else None


def _args(given: Json, defaulted: bool = True) -> LoadAwareArgs:
    args = msgspec.convert(given.get("args") or {}, LoadAwareArgs)
    return args.defaulted() if defaulted else args


def _vector(amounts: Json, resources: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(resource_amount(name, amounts.get(name, 0)) for name in resources)


def _report(metric: Json | None, resources: tuple[str, ...]) -> NodeReport | None:
    if metric is None:
        return None
    status = metric.get("status") or {}
    node = status.get("nodeMetric")
    aggregated = []
    for window in (node or {}).get("aggregatedNodeUsages") or []:
        seconds = parse_duration_seconds(window["duration"])
        for kind, usage in (window.get("usage") or {}).items():
            if usage.get("resources"):
                aggregated.append(((kind, seconds), _vector(usage["resources"], resources)))
    policy = (metric.get("spec") or {}).get("collectPolicy") or {}
    return NodeReport(
        update_us=_time_us(status.get("updateTime")),
        interval_us=policy.get("reportIntervalSeconds", 60) * MICROSECONDS,
        usage=None if node is None else _vector((node.get("nodeUsage") or {}).get("resources") or {}, resources),
        system=_vector(((node or {}).get("systemUsage") or {}).get("resources") or {}, resources),
        aggregated=tuple(aggregated),
        pods={
            (pod.get("namespace", ""), pod["name"]): ReportedPod(
                _vector(pod["podUsage"]["resources"], resources), pod.get("priority", "")
            )
            for pod in status.get("podsMetric") or []
            if (pod.get("podUsage") or {}).get("resources")
        },
    )


def _facts(reader: PodReader, pod: Json) -> ParsedPod:
    facts = reader.read(msgspec.json.encode(pod), PriorityValues())
    assert facts.shape is not None, facts.error
    return facts


def _condition_us(pod: Json, kind: str) -> int | None:
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition["type"] == kind and condition["status"] == "True":
            return _time_us(condition.get("lastTransitionTime"))
    return None


def _deadline(args: LoadAwareArgs, pod: Json, assigned_us: int) -> int | None:
    return estimation_deadline(
        assigned_us,
        _condition_us(pod, "Initialized"),
        args.estimated_seconds_after_pod_scheduled,
        args.estimated_seconds_after_initialized,
        (pod.get("metadata") or {}).get("annotations") or {},
        args.allow_customize_estimation,
    )


def _assigned(args: LoadAwareArgs, reader: PodReader, entry: Json) -> tuple[tuple[str, str], Shape, AssignedPod]:
    pod = entry["pod"]
    facts = _facts(reader, pod)
    assert facts.shape is not None
    assigned_us = _condition_us(pod, "PodScheduled") or _time_us(entry["assignedAt"]) or 0
    assigned = AssignedPod(facts.shape.estimate, facts.shape.prod, assigned_us, _deadline(args, pod, assigned_us))
    return (facts.namespace, facts.name), facts.shape, assigned


def _counts(pod: Json) -> bool:
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    return bool(
        pod["spec"].get("nodeName")
        and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        and annotations.get(RESERVE_POD) != "true"
    )


def _table(given: Json, args: LoadAwareArgs) -> tuple[NodeTable, Shape]:
    reader = PodReader(args)
    node = msgspec.convert(given["node"], Node)
    annotations = node.metadata.annotations
    raw = estimate_node_allocatable(node.status.allocatable, annotations)
    table = NodeTable(args)
    table.declare(
        NodeDescription(
            name=node.metadata.name,
            allocatable={n: resource_amount(n, q) for n, q in node.status.allocatable.items()},
            capacity_for_load={n: resource_amount(n, q) for n, q in raw.items()},
            labels={},
            taints=(),
            unschedulable=False,
            thresholds=thresholds_of(args, annotations),
        )
    )
    table.report(node.metadata.name, _report(given["nodeMetric"], table.load.resources))
    for entry in given["assignedPods"]:
        if _counts(entry["pod"]):
            key, shape, assigned = _assigned(args, reader, entry)
            table.place(node.metadata.name, key, shape, assigned)
    now = _time_us(given["now"])
    assert now is not None
    table.expire(now)
    table.settle()
    shape_of_pod = _facts(reader, given["pod"]).shape
    assert shape_of_pod is not None
    return table, shape_of_pod


def load_aware_filter(given: Json, *, name: str) -> object:
    if given.get("node") is None:
        # A node without an object has no row, so no plugin is asked about it: the table's own answer.
        return {"code": "Error", "reasons": ["node not found"]}
    args = _args(given)
    table, shape = _table(given, args)
    plugin = LoadAwareScheduling()
    code = int(plugin.filter(table, shape, table.all_rows)[0])
    assert code == plugin.row_filter(table, shape)(0)
    if code == 0:
        return {"code": "Success", "reasons": []}
    return {"code": "Unschedulable", "reasons": [plugin.reason(table, shape, code, np.zeros(1, dtype=np.int64)).text]}


def load_aware_score(given: Json, *, name: str) -> object:
    args = _args(given)
    table, shape = _table(given, args)
    plugin = LoadAwareScheduling()
    score = int(plugin.score(table, shape, table.all_rows)[0])
    assert score == plugin.row_score(table, shape)(0)
    return {"score": score}


def load_estimate(given: Json, *, name: str) -> object:
    match given["op"]:
        case "estimatePod":
            return _estimate_pod(given)
        case "estimateNode":
            node = msgspec.convert(given["node"], Node)
            return {"allocatable": estimate_node_allocatable(node.status.allocatable, node.metadata.annotations)}
        case "targetAggregatedUsage":
            return _target_usage(given)
        case "estimateDeadline":
            assigned = _time_us(given["assignedAt"])
            assert assigned is not None
            deadline = _deadline(_args(given, defaulted=False), given["pod"], assigned)
            return {"deadline": None if deadline is None else _text(deadline)}
        case "existingEstimation":
            return _existing(given)
    raise NotImplementedError(given["op"])


def _estimate_pod(given: Json) -> Json:
    args = _args(given, defaulted=False)
    shape = _facts(PodReader(args), given["pod"]).shape
    assert shape is not None
    estimated = dict(zip(args.tracked_resources(), shape.estimate, strict=True))
    return {"estimated": {name: estimated[name] for name in args.estimated_scaling_factors}}


def _target_usage(given: Json) -> Json:
    resources = ("cpu", "memory")
    report = _report(given["nodeMetric"], resources)
    assert report is not None
    seconds = parse_duration_seconds(given["aggregatedDuration"])
    usage = aggregated_usage(report.aggregated, given["aggregationType"], seconds)
    if usage is None and seconds == 0:
        usage = report.usage
    if usage is None:
        return {"usage": None}
    return {"usage": {name: format_amount(name, amount) for name, amount in zip(resources, usage, strict=True) if amount}}


def _existing(given: Json) -> Json:
    args = _args(given)
    reader = PodReader(args)
    resources = args.tracked_resources()
    report = _report(given.get("nodeMetric"), resources) or NodeReport()
    pods = [_assigned(args, reader, entry) for entry in given["pods"] if _counts(entry["pod"])]
    sums = estimate_node(
        report, ((key, assigned) for key, _, assigned in pods), len(resources), args.prod_usage_include_sys
    )

    def amounts(values: Any) -> Json:
        return dict(zip(resources, values, strict=True))

    def names(keys: list[tuple[str, str]]) -> list[str]:
        return sorted(f"{namespace}/{pod}" for namespace, pod in keys)

    windows = {*(key for key, _ in report.aggregated), *((kind, 0) for (kind, _), _ in report.aggregated)}
    table = []
    for kind, seconds in sorted(windows, key=lambda window: (window[1], window[0])):
        usage = aggregated_usage(report.aggregated, kind, seconds)
        table.append({"type": kind, "duration": _duration(seconds), "usage": amounts(usage)})
    return {
        "countedPods": len(pods),
        "nodeUsage": amounts(report.usage) if report.usage is not None else None,
        "prodUsage": amounts(sums.prod_usage),
        "nodeDelta": amounts(sums.node_delta),
        "prodDelta": amounts(sums.prod_delta),
        "nodeEstimated": amounts(sums.node_estimated),
        "nodeDeltaPods": names(sums.node_delta_pods),
        "prodDeltaPods": names(sums.prod_delta_pods),
        "nodeEstimatedPods": names(sums.node_estimated_pods),
        "aggUsages": table,
    }


def _duration(seconds: int) -> str:
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _text(us: int) -> str:
    return datetime.fromtimestamp(us / 1_000_000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

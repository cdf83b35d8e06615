"""Estimates of load: what a pod will use, and what the pods on a node use beyond what is measured.

In: requests and limits of a pod, its tier, scaling factors; a node's last report and the pods assigned to the node.
Out: integers per tracked resource (cpu in milli-cores, memory in bytes). The rules (Koordinator load-aware scheduling,
default estimator and pod assign cache):

    pod:  q = max(limit, request) of the tier's own resource; where q = 0: 250 milli-cores or 200 MiB (cpu and memory
          of prod, batch and none); else round(q * factor / 100), at most the limit
    node: a pod's estimate e counts beside its measured usage u while the report cannot include the pod yet:
          due = u missing, or assigned after (update time - report interval), or deadline after the update time
          node delta     += max(0, e - u)  of pods that are due
          node estimated += e              of all pods
          node view = node usage + node delta; where a configured window is missing: node estimated alone
          prod view = usage of prod pods reported as prod
                      + max(0, e - u) of prod pods that are due or not reported as prod
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from cotenant.model.bounds import MAX_SECONDS, Int32, saturated
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from cotenant.model.tiers import PriorityClass, tier_resource
from cotenant.model.values import Value

ANNOTATION_SCALING_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
ANNOTATION_SECONDS_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
ANNOTATION_SECONDS_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"

DEFAULT_CPU_MILLI = 250
DEFAULT_MEMORY_BYTES = 200 << 20

MICROSECONDS = 1_000_000

_DEFAULTS = {
    CPU: DEFAULT_CPU_MILLI,
    BATCH_CPU: DEFAULT_CPU_MILLI,
    MEMORY: DEFAULT_MEMORY_BYTES,
    BATCH_MEMORY: DEFAULT_MEMORY_BYTES,
}
_FACTORS = msgspec.json.Decoder(dict[str, Int32])

V = TypeVar("V")

Vector = tuple[int, ...]
"""One integer per tracked resource, in their sorted order."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ReportedPod(Value, frozen=True):
    """A pod as the node's report has it."""

    usage: Vector
    priority: str = ""


class NodeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node's last report. `update_us` None: it never had one. `usage` None: the report has no node usage at all.

    `aggregated`: ((type, window in seconds), usage) of the non-empty entries; `pods` by (namespace, name), non-empty
    ones. Times are microseconds since 1970.
    """

    update_us: int | None = None
    interval_us: int = 60 * MICROSECONDS
    usage: Vector | None = None
    system: Vector = ()
    aggregated: tuple[tuple[tuple[str, int], Vector], ...] = ()
    pods: dict[tuple[str, str], ReportedPod] = {}


class AssignedPod(Value, frozen=True):
    """A pod that is on the node according to its placement. `deadline_us`: until then it counts by its estimate."""

    estimate: Vector
    prod: bool
    assigned_us: int
    deadline_us: int | None = None


class NodeEstimate(msgspec.Struct):
    """Sums over the pods assigned to a node, with the names of the pods that add more than zero to each."""

    prod_usage: list[int]
    node_delta: list[int]
    prod_delta: list[int]
    node_estimated: list[int]
    node_delta_pods: list[tuple[str, str]]
    prod_delta_pods: list[tuple[str, str]]
    node_estimated_pods: list[tuple[str, str]]


def microseconds(moment: datetime) -> int:
    """Return a moment (UTC) as microseconds since 1970, exactly."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def round_half_up(value: float) -> int:
    """Nearest integer of a value >= 0, half away from zero."""
    whole = int(value)
    return whole + 1 if value - whole >= 0.5 else whole


def estimate_pod(
    requests: Mapping[str, int], limits: Mapping[str, int], tier: PriorityClass, factors: Mapping[str, int]
) -> dict[str, int]:
    """Return what the pod is expected to use, per resource of `factors`."""
    estimate: dict[str, int] = {}
    for resource, factor in factors.items():
        real = tier_resource(tier, resource)
        limit = limits.get(real, 0)
        quantity = max(limit, requests.get(real, 0))
        if quantity == 0:
            estimate[resource] = _DEFAULTS.get(real, 0)
            continue
        expected = saturated(round_half_up(float(quantity) * float(factor) / 100))
        estimate[resource] = min(expected, limit) if limit > 0 else expected
    return estimate


def scaling_factors(
    factors: Mapping[str, int], annotations: Mapping[str, str], customizable: bool
) -> Mapping[str, int]:
    """Return the factors in force for a pod: the annotation's where pods may customize, the arguments' for the rest."""
    text = annotations.get(ANNOTATION_SCALING_FACTORS) if customizable else None
    if not text:
        return factors
    try:
        custom = _FACTORS.decode(text)
    except msgspec.DecodeError:
        return factors
    return {resource: custom.get(resource, factor) for resource, factor in factors.items()}


def estimation_deadline(
    assigned_us: int,
    initialized_us: int | None,
    after_scheduled: int | None,
    after_initialized: int | None,
    annotations: Mapping[str, str],
    customizable: bool,
) -> int | None:
    """Return until when a pod counts by its estimate, regardless of reports; None: no such time."""
    if customizable:
        after_scheduled = _seconds(annotations.get(ANNOTATION_SECONDS_AFTER_SCHEDULED), after_scheduled)
        after_initialized = _seconds(annotations.get(ANNOTATION_SECONDS_AFTER_INITIALIZED), after_initialized)
    if after_initialized and after_initialized > 0 and initialized_us is not None:
        return initialized_us + after_initialized * MICROSECONDS
    if after_scheduled and after_scheduled > 0:
        return assigned_us + after_scheduled * MICROSECONDS
    return None


def _seconds(text: str | None, otherwise: int | None) -> int | None:
    try:
        value = int(text) if text else -1
    except ValueError:
        return otherwise
    return min(value, MAX_SECONDS) if value >= 0 else otherwise


def aggregated_usage(table: Iterable[tuple[tuple[str, int], V]], kind: str, seconds: int) -> V | None:
    """Return the entry of type and window; window 0: of the longest window that has the type. None: there is none."""
    longest, found = -1, None
    for (entry_kind, window), usage in table:
        if entry_kind == kind and (window == seconds or (seconds == 0 and window > longest)):
            longest, found = window, usage
    return found


def without_pods(report: NodeReport, keys: Collection[tuple[str, str]]) -> NodeReport:
    """Return a report as if these pods had used nothing: what it says of each is taken off the node's usage. (Off a percentile,
    too, by the pods' averages: percentiles of pods are not reported.)"""
    used = [report.pods[key].usage for key in keys if key in report.pods]
    if not used:
        return report
    total = [sum(amounts) for amounts in zip(*used, strict=True)]

    def rest(usage: Vector) -> Vector:
        return tuple(max(0, of_node - of_pods) for of_node, of_pods in zip(usage, total, strict=True))

    return msgspec.structs.replace(
        report,
        usage=None if report.usage is None else rest(report.usage),
        aggregated=tuple((window, rest(usage)) for window, usage in report.aggregated),
        pods={key: pod for key, pod in report.pods.items() if key not in keys},
    )


def estimate_node(
    report: NodeReport, assigned: Iterable[tuple[tuple[str, str], AssignedPod]], size: int, include_system: bool = False
) -> NodeEstimate:
    """Return the sums over the assigned pods; `size` is the number of tracked resources."""
    nothing = (0,) * size
    known, known_us = report.pods.get, report.update_us
    prod = PriorityClass.PROD
    prod_usage: list[Vector] = [report.system] if include_system and report.system else []
    node_delta: list[Vector] = []
    prod_delta: list[Vector] = []
    node_estimated: list[Vector] = []
    node_delta_pods: list[tuple[str, str]] = []
    prod_delta_pods: list[tuple[str, str]] = []
    node_estimated_pods: list[tuple[str, str]] = []
    for key, pod in assigned:
        estimate = pod.estimate
        reported = known(key)
        active = pod.prod and reported is not None and reported.priority == prod
        used = nothing if reported is None else reported.usage
        if active:
            prod_usage.append(used)
        if estimate == nothing:
            continue
        node_estimated.append(estimate)
        node_estimated_pods.append(key)
        due = (
            reported is None
            or known_us is None
            or pod.assigned_us > known_us - report.interval_us
            or (pod.deadline_us is not None and pod.deadline_us > known_us)
        )
        if due:
            beyond = estimate if reported is None else _beyond(estimate, used)
            if beyond != nothing:
                node_delta.append(beyond)
                node_delta_pods.append(key)
        if pod.prod and (due or not active):
            beyond = _beyond(estimate, used) if active else estimate
            if beyond != nothing:
                prod_delta.append(beyond)
                prod_delta_pods.append(key)
    return NodeEstimate(
        _total(prod_usage, size),
        _total(node_delta, size),
        _total(prod_delta, size),
        _total(node_estimated, size),
        node_delta_pods,
        prod_delta_pods,
        node_estimated_pods,
    )


def _beyond(estimate: Vector, used: Vector) -> Vector:
    return tuple([max(0, expected - measured) for expected, measured in zip(estimate, used, strict=True)])


def _total(vectors: Iterable[Vector], size: int) -> list[int]:
    return [sum(amounts) for amounts in zip((0,) * size, *vectors, strict=True)]


def node_view(report: NodeReport, sums: NodeEstimate, kind: str, seconds: int) -> list[int]:
    """Return the estimated usage of the node's pods: by the newest average, or where `kind` says so by a percentile."""
    base: Sequence[int] | None = report.usage
    if kind:
        aggregated = aggregated_usage(report.aggregated, kind, seconds)
        if aggregated is None and seconds != 0:
            return list(sums.node_estimated)
        base = aggregated if aggregated is not None else report.usage
    if base is None:
        return list(sums.node_delta)
    return [used + delta for used, delta in zip(base, sums.node_delta, strict=True)]


def prod_view(sums: NodeEstimate) -> list[int]:
    """Return the estimated usage of the node's prod pods."""
    return [used + delta for used, delta in zip(sums.prod_usage, sums.prod_delta, strict=True)]

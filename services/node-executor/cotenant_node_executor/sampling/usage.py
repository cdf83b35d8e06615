"""Counters to rates (koordlet's rules). There is no figure without an earlier counter, without elapsed time, or after a counter
went backwards.

node cores  = Δticks * jiffy / Δt
group cores = Δns / Δt
throttled   = Δnr_throttled / Δnr_periods, 0 where no period passed
system      = max(node - Σ pods - host applications, 0), for CPU and for memory
BE limit    = min(CPUs of its cpuset * 1000, quota * 1000 div period), milli
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cotenant_node_executor.targets.convert import UNLIMITED


class Counter(msgspec.Struct, frozen=True):
    """A cumulative counter and when it was read."""

    value: int  # nanoseconds of CPU, or ticks
    at_ns: int


class Point(msgspec.Struct, frozen=True):
    """A figure with its age."""

    cpu: float
    memory: float
    age_seconds: float = 0.0


def _differences(last: Counter | None, current: Counter) -> tuple[int, int] | None:
    if last is None or current.at_ns <= last.at_ns or current.value < last.value:
        return None
    return current.value - last.value, current.at_ns - last.at_ns


def node_cores(last: Counter | None, current: Counter, jiffy_ns: int) -> float | None:
    passed = _differences(last, current)
    return None if passed is None else passed[0] / (passed[1] / jiffy_ns)


def group_cores(last: Counter | None, current: Counter) -> float | None:
    passed = _differences(last, current)
    return None if passed is None else passed[0] / passed[1]


def group_milli(last: Counter | None, current: Counter, unit_ns: int = 1) -> int | None:
    """The same in whole milli-cores; ``unit_ns`` is what one count is worth."""
    passed = _differences(last, current)
    return None if passed is None else passed[0] * unit_ns * 1000 // passed[1]


def best_effort_usage_milli(last: Counter | None, current: Counter) -> int:
    """trunc((Δns div 10^6) / Δms * 1000); 0 in the first round."""
    passed = _differences(last, current)
    milliseconds = 0 if passed is None else passed[1] // 1_000_000
    return 0 if passed is None or not milliseconds else int(passed[0] // 1_000_000 / milliseconds * 1000)


def best_effort_real_limit_milli(cpus: int, quota_us: int, period_us: int) -> int:
    by_cpuset = cpus * 1000
    return by_cpuset if quota_us == UNLIMITED else min(by_cpuset, quota_us * 1000 // period_us)


def best_effort_request_milli(pods: Iterable[tuple[str, Iterable[int]]]) -> int:
    """Sum of batch-cpu requests of BE pods. In: per pod its raw QoS label and its containers' batch-cpu requests."""
    return sum(request for qos, requests in pods if qos == "BE" for request in requests)


def throttled_ratio(last: tuple[int, int] | None, current: tuple[int, int]) -> float | None:
    """Each (nr_periods, nr_throttled)."""
    if last is None or current[0] < last[0] or current[1] < last[1]:
        return None
    periods = current[0] - last[0]
    return (current[1] - last[1]) / periods if periods else 0.0


def system_usage(
    node: Point | None, pods: Mapping[str, Point | None], host_applications: Point | None, outdated_seconds: float
) -> Point | None:
    """None unless every point exists and is no older than ``outdated_seconds``."""
    points = [node, host_applications, *pods.values()]
    present = [point for point in points if point is not None and point.age_seconds <= outdated_seconds]
    if node is None or host_applications is None or len(present) < len(points):
        return None
    used = [point for point in pods.values() if point is not None] + [host_applications]
    return Point(
        max(node.cpu - sum(point.cpu for point in used), 0.0),
        max(node.memory - sum(point.memory for point in used), 0.0),
    )

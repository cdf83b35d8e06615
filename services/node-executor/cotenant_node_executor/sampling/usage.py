"""Counters to rates (koordlet's rules). There is no figure without an earlier counter, without elapsed time, or after a counter
went backwards.

milli-cores = Δcount * unit * 1000 div Δt: of a group nanoseconds, of the node ticks of a jiffy
throttled   = Δnr_throttled / Δnr_periods, 0 where no period passed
BE limit    = min(CPUs of its cpuset * 1000, quota * 1000 div period), milli
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cotenant_node_executor.targets.convert import UNLIMITED


class CumulativeCounter(msgspec.Struct, frozen=True):
    """A cumulative counter and when it was read."""

    value: int  # nanoseconds of CPU, or ticks
    at_ns: int


def _differences(last: CumulativeCounter | None, current: CumulativeCounter) -> tuple[int, int] | None:
    if last is None or current.at_ns <= last.at_ns or current.value < last.value:
        return None
    return current.value - last.value, current.at_ns - last.at_ns


def group_milli(last: CumulativeCounter | None, current: CumulativeCounter, unit_ns: int = 1) -> int | None:
    """Whole milli-cores; ``unit_ns`` is the unit of the count."""
    passed = _differences(last, current)
    return None if passed is None else passed[0] * unit_ns * 1000 // passed[1]


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

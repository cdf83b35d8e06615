"""Aggregation of samples: mean, percentiles, last, count.

In: samples with their times. Out: one value, or an AggregationError without samples. The percentile rule: sort ascending,
take the sample at index trunc(f32(n) x f32(p)) - 1, at least 0, without interpolation. With few samples the result is below
the usual definitions (p50 and p90 of two samples are the smaller one), and consumers' thresholds are tuned to it. The
product is computed in single precision, which changes the index where n x p is an integer that single precision misses.
Source: koordlet metric cache.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

PERCENTILES: tuple[tuple[str, float], ...] = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))
"""The percentiles of a report, by their key in a NodeMetric's status."""

_BY_SPELLING = {"p50": 0.5, "P90": 0.9, "P95": 0.95, "p99": 0.99}


class AggregationError(ValueError):
    """There are no samples, or the percentile is out of range."""


class Point(msgspec.Struct, frozen=True):
    """One sample."""

    time_ms: int
    value: float


def percentile_rank(count: int, percentile: float) -> int:
    """The index, from 0, of the percentile among `count` sorted samples. `percentile` is in (0, 1]."""
    if not 0 < percentile <= 1:
        raise AggregationError(f"percentile {percentile} is not in (0, 1]")
    if count <= 0:
        raise AggregationError("no samples to take a percentile of")
    return max(int(np.float32(count) * np.float32(percentile)) - 1, 0)


def percentile_of(values: Sequence[float], percentile: float) -> float:
    """The percentile of samples in any order."""
    rank = percentile_rank(len(values), percentile)
    return sorted(values)[rank]


def aggregate(points: Sequence[Point], aggregation: str, percentile: float | None = None) -> float:
    """Return the aggregate by name: avg, p50, P90, P95, p99, last, count, or `percentile` with a value; any other name is
    avg.
    """
    if aggregation == "count":
        return len(points)
    if aggregation == "percentile" and percentile is not None:
        return percentile_of([point.value for point in points], percentile)
    if aggregation in _BY_SPELLING:
        return percentile_of([point.value for point in points], _BY_SPELLING[aggregation])
    if not points:
        raise AggregationError(f"no samples to take {aggregation} of")
    if aggregation == "last":
        # Of several samples with the newest time the first wins, as with max.
        return max(points, key=lambda point: point.time_ms).value
    return sum(point.value for point in points) / len(points)

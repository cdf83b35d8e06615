"""The percentile rule of reports and predictions.

In: how many samples there are. Out: the rank of a percentile, or an AggregationError without samples. The rule: sort ascending,
take the sample at index trunc(f32(n) x f32(p)) - 1, at least 0, without interpolation. With few samples the result is below
the usual definitions (p50 and p90 of two samples are the smaller one), and consumers' thresholds are tuned to it. The
product is computed in single precision, which changes the index where n x p is an integer that single precision misses.
Source: koordlet metric cache.
"""

import numpy as np

PERCENTILES: tuple[tuple[str, float], ...] = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))
"""The percentiles of a report, by their key in a NodeMetric's status."""


class AggregationError(ValueError):
    """There are no samples, or the percentile is out of range."""


def percentile_rank(count: int, percentile: float) -> int:
    """The index, from 0, of the percentile among `count` sorted samples. `percentile` is in (0, 1]."""
    if not 0 < percentile <= 1:
        raise AggregationError(f"percentile {percentile} is not in (0, 1]")
    if count <= 0:
        raise AggregationError("no samples to take a percentile of")
    return max(int(np.float32(count) * np.float32(percentile)) - 1, 0)

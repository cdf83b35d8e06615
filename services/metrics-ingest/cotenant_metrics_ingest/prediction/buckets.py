"""Buckets of a histogram: their bounds, and the bucket of a value.

    ratio 1:     start(n) = n·f                      count = ceil(max / f) + 1
    ratio r > 1: start(n) = f·(r^n - 1) / (r - 1)    count = ceil(ln(max·(r - 1)/f + 1) / ln r) + 1

A value belongs to the last bucket that does not begin above it; below the first one to the first. Buckets are found in the
table of their beginnings, without logarithms, so that the result does not depend on the machine.

Source: Koordinator pkg/util/histogram, the histogram options of Kubernetes' vertical pod autoscaler.
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

MAX_BUCKETS = 1 << 10
"""More buckets do not fit a key of `histogram`."""


class Buckets:
    """The buckets up to `largest`: the first is `first` wide, each other `ratio` times as wide as the one before."""

    def __init__(self, largest: float, first: float, ratio: float = 1.0) -> None:
        if not (0 < first < math.inf and 0 < largest < math.inf and 1 <= ratio < math.inf):
            raise ValueError(f"buckets of {first} to {largest} by {ratio} are not possible")
        self.first, self.ratio = first, ratio
        if ratio == 1:
            self.count = math.ceil(largest / first) + 1
        else:
            self.count = math.ceil(math.log(largest * (ratio - 1) / first + 1) / math.log(ratio)) + 1
        if self.count > MAX_BUCKETS:
            raise ValueError(f"{self.count} buckets: at most {MAX_BUCKETS}")
        self.starts: Floats = np.array([self.start(number) for number in range(self.count)])
        self.results: Floats = np.array([*self.starts[1:], self.starts[-1]])
        """The percentile of a bucket: its end, in the last one its start."""

    def start(self, number: int) -> float:
        """The start of a bucket."""
        if self.ratio == 1:
            return number * self.first
        return float(self.first * (self.ratio**number - 1) / (self.ratio - 1))

    def find(self, value: float) -> int:
        """The bucket of a value."""
        return int(self.find_all(np.array([value]))[0])

    def find_all(self, values: Floats) -> Indices:
        """The bucket of each value, int64; NaN is in the first."""
        unknown = np.isnan(values)
        if unknown.any():
            values = np.where(unknown, 0.0, values)
        return np.maximum(self.starts.searchsorted(values, side="right") - 1, 0)

"""A decaying histogram as the rule states it, in plain Python: one list of weights, nothing shared, nothing clever."""

from __future__ import annotations

import math


class PlainHistogram:
    """Weights of samples are multiplied by 2^(age / -halfLife) when a percentile is asked for, so nothing grows."""

    def __init__(self, largest: float, first: float, ratio: float, half_life: float) -> None:
        self.first, self.ratio, self.half_life = first, ratio, half_life
        self.count = math.ceil(math.log(largest * (ratio - 1) / first + 1) / math.log(ratio)) + 1
        self.samples: list[tuple[float, float, float]] = []

    def start(self, bucket: int) -> float:
        return self.first * (self.ratio**bucket - 1) / (self.ratio - 1)

    def bucket(self, value: float) -> int:
        return max(bucket for bucket in range(self.count) if bucket == 0 or self.start(bucket) <= value)

    def add(self, value: float, weight: float, seconds: float) -> None:
        self.samples.append((value, weight, seconds))

    def weights(self, now: float) -> list[float]:
        found = [0.0] * self.count
        for value, weight, seconds in self.samples:
            found[self.bucket(value)] += weight * 2.0 ** ((seconds - now) / self.half_life)
        return found

    def percentile(self, wanted: float, now: float) -> float:
        weights = self.weights(now)
        used = [bucket for bucket, weight in enumerate(weights) if weight > 0]
        if not used:
            return 0.0
        reached = 0.0
        for bucket in range(used[0], used[-1] + 1):
            reached += weights[bucket]
            if reached >= wanted * sum(weights):
                break
        return self.start(bucket) if bucket == self.count - 1 else self.start(bucket + 1)

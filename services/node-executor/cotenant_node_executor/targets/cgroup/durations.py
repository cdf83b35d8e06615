"""How long single writes of control group files take, as a histogram for each attribute and outcome.

In: the duration of each write. Out: counts by upper bound, their sum and number. Source: the bounds of koordlet's histogram of
resource updates (v1.8), 0.01 ms and seven times four times as much.

Bound: two histograms an attribute.
"""

from __future__ import annotations

from bisect import bisect_left

from msgspec import Struct, field

from cotenant_node_executor.targets.interface import Knob

BOUNDS_MS = tuple([0.01 * 4**step for step in range(8)])
SUCCEEDED, FAILED = "succeeded", "failed"


class Histogram(Struct):
    """`counts`: by the smallest of BOUNDS_MS that is not exceeded, and of longer ones; not cumulative."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))
    sum_ms: float = 0.0

    def add(self, milliseconds: float) -> None:
        """Count one write."""
        self.counts[bisect_left(BOUNDS_MS, milliseconds)] += 1
        self.sum_ms += milliseconds


WriteDurations = dict[tuple[Knob, str], Histogram]
"""By attribute and outcome: SUCCEEDED or FAILED."""

"""Load of the nodes in columns: the estimated usage of each node, its thresholds, and the age of its report.

In: a node's report, its thresholds and raw capacity, the pods assigned to it. Out: per tracked resource and node three
views of the usage (as `load_estimate` defines them): for the node thresholds, for the prod thresholds, for scoring; a
pod that is assigned adds its estimate to each. Whether a report has expired depends on the time: `expire` brings the
`expired` column up to a given moment and says which rows changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from copy import copy, deepcopy
from functools import lru_cache

import numpy as np

from cotenant_scheduler.state.columns import FIRST_CAPACITY, BoolArray, Cells, IntArray, grown
from cotenant_scheduler.state.load.load_aware_args import LoadAwareArgs, Thresholds, parse_duration_seconds
from cotenant_scheduler.state.load.load_estimate import (
    MICROSECONDS,
    AssignedPod,
    NodeEstimate,
    NodeReport,
    Vector,
    estimate_node,
    node_view,
    prod_view,
    without_pods,
)

NEVER_REPORTED, REPORTED, REPORTED_WITHOUT_USAGE = 0, 1, 2
"""States of a node's report: there is none; there is one; there is one that holds no node usage."""


NO_LIMIT = 1 << 62


@lru_cache(maxsize=4096)
def first_refused(capacity: int, threshold: int) -> int:
    """Return the smallest usage whose rounded percentage of the capacity is above a threshold; NO_LIMIT where that is not
    checked."""
    if capacity <= 0 or threshold <= 0:
        return NO_LIMIT

    def refused(used: int) -> bool:
        return float(used) / float(capacity) * 100 >= threshold + 0.5

    # The percentage grows with the usage; rounding moves the border by no more than the estimate's own error.
    low = int((threshold + 0.5) / 100 * capacity * (1 - 1e-9)) - 2
    high = int((threshold + 0.5) / 100 * capacity * (1 + 1e-9)) + 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refused(middle) else (middle, high)
    return min(high, NO_LIMIT)


_BY_RESOURCE = (
    "capacity",
    "divisor",
    "node_view",
    "prod_view",
    "score_view",
    "node_threshold",
    "prod_threshold",
    "limit",
    "_limit",
)
_SINGLE = ("usable", "aggregated", "has_prod_threshold", "state", "expired", "expires_us")


class LoadColumns:
    """Columns of load-aware scheduling; the first axis is the tracked resource, the second the row. All of them are views
    of one block, so that rows are taken out at once."""

    capacity: IntArray
    divisor: IntArray
    """The capacity, at least 1."""
    node_view: IntArray
    prod_view: IntArray
    score_view: IntArray
    node_threshold: IntArray
    prod_threshold: IntArray
    limit: IntArray
    """The smallest usage that the node thresholds refuse; -1 where the report is not usable."""
    _limit: IntArray
    usable: IntArray
    """1 where there is a report with usage that has not expired."""
    aggregated: IntArray
    """1 where the node thresholds are about a percentile."""
    has_prod_threshold: IntArray
    state: IntArray
    expired: IntArray
    expires_us: IntArray

    def __init__(self, args: LoadAwareArgs) -> None:
        self.args = args
        self.resources = args.tracked_resources()
        self._lay(np.zeros((len(_BY_RESOURCE) * len(self.resources) + len(_SINGLE), FIRST_CAPACITY), dtype=np.int64))
        self._fill_from(0)
        self.percentiles = False
        self.prod_thresholds = False
        """Whether any node ever had thresholds on a percentile, or prod thresholds: otherwise those columns are not read."""
        self._thresholds: dict[int, Thresholds] = {}
        self._reports: dict[int, NodeReport] = {}
        self._checked_us = 0
        self._next_expiry_us = 0
        """The earliest time at which a report that is valid now expires."""
        aggregated = args.aggregated
        self._score_kind = aggregated.score_aggregation_type if aggregated else ""
        self._score_seconds = parse_duration_seconds(aggregated.score_aggregated_duration) if aggregated else 0

    def _lay(self, block: IntArray) -> None:
        """Take a block's lanes as the columns."""
        self.block = block
        size = len(self.resources)
        for i, name in enumerate(_BY_RESOURCE):
            setattr(self, name, block[i * size : (i + 1) * size])
        for i, name in enumerate(_SINGLE, len(_BY_RESOURCE) * size):
            setattr(self, name, block[i])
        self._figures: list[Cells] = [column[r].data for r in range(size) for column in (self.score_view, self.capacity)]

    def __deepcopy__(self, memo: dict[int, object]) -> LoadColumns:
        """A copy's columns are views of the copy's block."""
        copied = copy(self)
        memo[id(self)] = copied
        for name, value in vars(self).items():
            if name not in _BY_RESOURCE and name not in _SINGLE and name != "_figures":
                setattr(copied, name, deepcopy(value, memo))
        copied._lay(copied.block)
        return copied

    def _fill_from(self, row: int) -> None:
        self.divisor[:, row:] = 1
        self._limit[:, row:] = NO_LIMIT
        self.limit[:, row:] = -1

    def grow(self, capacity: int) -> None:
        """Make room for rows below `capacity`."""
        before = self.block.shape[1]
        self._lay(grown(self.block, capacity))
        self._fill_from(before)

    def of(self, block: IntArray) -> LoadColumns:
        """Return columns that are another block's lanes (int64, lanes by rows)."""
        columns = copy(self)
        columns._lay(block)
        return columns

    def set_node(self, row: int, thresholds: Thresholds, capacity: dict[str, int]) -> None:
        """Take over a node's thresholds and its raw allocatable."""
        self._thresholds[row] = thresholds
        node_thresholds = thresholds.aggregated if thresholds.aggregation_type else thresholds.usage
        for r, resource in enumerate(self.resources):
            self.capacity[r, row] = capacity.get(resource, 0)
            self.node_threshold[r, row] = node_thresholds.get(resource, 0)
            self.prod_threshold[r, row] = thresholds.prod.get(resource, 0)
            self.divisor[r, row] = max(self.capacity.item(r, row), 1)
            self._limit[r, row] = first_refused(self.capacity.item(r, row), self.node_threshold.item(r, row))
        self._limit_of(row)
        self.aggregated[row] = 1 if thresholds.aggregation_type else 0
        self.has_prod_threshold[row] = 1 if any(thresholds.prod.values()) else 0
        self.percentiles = self.percentiles or bool(thresholds.aggregation_type)
        self.prod_thresholds = self.prod_thresholds or any(thresholds.prod.values())

    def set_report(self, row: int, report: NodeReport | None, unknown: bool = False) -> None:
        """Take over a node's report; `unknown`: the node is silent, so the report counts as expired."""
        if report is None:
            self._reports.pop(row, None)
            self.state[row] = NEVER_REPORTED
            self.expires_us[row] = 0
            self.usable[row] = 0
            self._limit_of(row)
            return
        self._reports[row] = report
        self.state[row] = REPORTED if report.usage is not None else REPORTED_WITHOUT_USAGE
        if report.update_us is None or unknown:
            self.expires_us[row] = 0
        else:
            self.expires_us[row] = report.update_us + self.args.node_metric_expiration_seconds * MICROSECONDS
        self.expired[row] = 1 if self.expires_us[row] <= self._checked_us else 0
        self.usable[row] = 1 if self.state[row] == REPORTED and not self.expired[row] else 0
        self._limit_of(row)
        if not self.expired[row]:
            self._next_expiry_us = min(self._next_expiry_us, self.expires_us.item(row))

    def _limit_of(self, row: int) -> None:
        self.limit[:, row] = self._limit[:, row] if self.usable[row] else -1

    def clear(self, row: int) -> None:
        """Forget everything about a row."""
        self._thresholds.pop(row, None)
        self.set_report(row, None)
        for column in (self.capacity, self.node_view, self.prod_view, self.score_view):
            column[:, row] = 0

    def recompute(
        self,
        row: int,
        assigned: Iterable[tuple[tuple[str, str], AssignedPod]],
        without: Collection[tuple[str, str]] = (),
    ) -> None:
        """Recompute the three views of a row from its report and the pods assigned to it. `without`: pods that are none of
        these, and whose measured usage does not count either."""
        report = self._reports.get(row) or NodeReport()
        if without:
            report = without_pods(report, without)
        thresholds = self._thresholds.get(row)
        kind = thresholds.aggregation_type if thresholds else ""
        seconds = thresholds.aggregation_seconds if thresholds else 0
        sums = estimate_node(report, assigned, len(self.resources), self.args.prod_usage_include_sys)
        self.node_view[:, row] = node_view(report, sums, kind, seconds)
        self.score_view[:, row] = node_view(report, sums, self._score_kind, self._score_seconds)
        self.prod_view[:, row] = prod_view(sums)

    def estimate(self, row: int, assigned: Iterable[tuple[tuple[str, str], AssignedPod]]) -> NodeEstimate:
        """Return the sums over the pods assigned to a row, which its views are made from."""
        report = self._reports.get(row) or NodeReport()
        return estimate_node(report, assigned, len(self.resources), self.args.prod_usage_include_sys)

    def reports(self, row: int, key: tuple[str, str]) -> bool:
        """Return whether the node's report has a usage of this pod."""
        report = self._reports.get(row)
        return report is not None and key in report.pods

    def adds_of(self, estimate: Vector, prod: bool) -> tuple[tuple[Cells, int], ...]:
        """Return what a pod that the node's report does not include adds to its row."""
        views = (self.node_view, self.score_view, self.prod_view) if prod else (self.node_view, self.score_view)
        return tuple((view[r].data, amount) for view in views for r, amount in enumerate(estimate) if amount)

    def figures(self, row: int) -> list[int]:
        """Return a node's estimated usage and its capacity, alternating, by resource."""
        return [cells[row] for cells in self._figures]

    def add_rows(self, rows: IntArray, estimate: Vector, prod: bool, times: IntArray) -> None:
        """Add pods that the nodes' reports do not include: this many (int64) on each row (int64, distinct row numbers)."""
        for r, amount in enumerate(estimate):
            if amount:
                self.node_view[r, rows] += amount * times
                self.score_view[r, rows] += amount * times
                if prod:
                    self.prod_view[r, rows] += amount * times

    def with_more(self, rows: IntArray, estimate: Vector, prod: bool, more: IntArray) -> LoadColumns:
        """Return columns of the given rows (int64), each with this many more pods (int64) that the reports do not include."""
        load = self.of(self.block.take(rows, axis=1))
        for r, amount in enumerate(estimate):
            if amount:
                load.node_view[r] += amount * more
                load.score_view[r] += amount * more
                if prod:
                    load.prod_view[r] += amount * more
        return load

    def expire(self, now_us: int, size: int) -> IntArray | None:
        """Update `expired` to a time (which may go back); return the rows below `size` that changed, None if certainly none
        did."""
        if self._checked_us <= now_us < self._next_expiry_us:
            self._checked_us = now_us
            return None
        expired: BoolArray = self.expires_us[:size] <= now_us
        changed: IntArray = np.flatnonzero(expired != (self.expired[:size] != 0))
        self.expired[:size] = expired
        self.usable[:size] = (self.state[:size] == REPORTED) & ~expired
        self.limit[:, :size] = np.where(self.usable[:size] > 0, self._limit[:, :size], -1)
        alive: IntArray = self.expires_us[:size][~expired]
        self._next_expiry_us = int(alive.min()) if alive.size else 1 << 62
        self._checked_us = now_us
        return changed

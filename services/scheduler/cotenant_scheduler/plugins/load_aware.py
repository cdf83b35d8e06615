"""Load-aware filter and score.

Inputs: the node's report (newest average, or a percentile of a window), the estimates of the pods assigned to it that
the report cannot know, the thresholds in force, raw allocatable; the pod's own estimate. used = view + estimate.
Filter: refuses where round(used / allocatable * 100) > threshold for a tracked resource (sorted by name; a threshold or
allocatable of 0 is not checked), and where the report has expired. Prod pods on nodes with prod thresholds use
the prod view. Skipped: pods of a DaemonSet, nodes without thresholds or without a report.
Score: s = (allocatable - used) * 100 // allocatable per resource (0 where used is more), (sum of weight * s + dominant weight *
min s) // (sum of weights); 0 where there is no report or it has expired. Source: Koordinator LoadAwareScheduling,
weight 1.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.framework.plugin import MAX_SCORE, Normalise, Refusal, RowFunction, row_count
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows, of_rows
from cotenant_scheduler.state.load.load_columns import NEVER_REPORTED, REPORTED
from cotenant_scheduler.state.load.load_estimate import round_half_up
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

EXPIRED = 1
_FIRST_RESOURCE = 2
"""Codes from here on: 2 + 2 * resource, plus 1 where the threshold is about a percentile."""


class LoadAwareScheduling:
    """Filter and score."""

    name = "LoadAwareScheduling"
    static = False
    spanning = False
    in_columns = True
    preemptible = False
    weight = 1
    normalise = Normalise.PLAIN
    wakes_on = ("metrics.*", "node.*.placement.>", "node.*.run.>", "objects.core.nodes._.*")

    def concerns(self, shape: Shape) -> bool:
        return not shape.daemon

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        load = nodes.load
        codes = np.zeros(row_count(rows), dtype=np.int32)
        if shape.daemon:
            return codes
        if shape.prod and load.prod_thresholds:
            return self._judged(nodes, shape, rows)
        # Most nodes have a fresh report and are not full, which `limit` shows at once. Only the others are examined.
        used = of_rows(load.node_view, rows) + shape.estimate_column
        doubtful = used >= of_rows(load.limit, rows)
        if np.count_nonzero(doubtful):
            some: IntArray = np.flatnonzero(doubtful.any(axis=0))
            codes[some] = self._judged(nodes, shape, some + (rows.start or 0) if isinstance(rows, slice) else rows[some])
        return codes

    def _judged(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        load, args = nodes.load, nodes.load.args
        codes = np.zeros(row_count(rows), dtype=np.int32)
        by_prod = load.has_prod_threshold[rows] > 0 if shape.prod and load.prod_thresholds else None
        percentile = load.aggregated[rows] > 0 if load.percentiles else None
        if percentile is not None and by_prod is not None:
            percentile &= ~by_prod
        checked = np.zeros(codes.shape[0], dtype=np.bool_)
        for r in range(len(load.resources) - 1, -1, -1):
            threshold, view = load.node_threshold[r][rows], load.node_view[r][rows]
            if by_prod is not None:
                threshold = np.where(by_prod, load.prod_threshold[r][rows], threshold)
                view = np.where(by_prod, load.prod_view[r][rows], view)
            capacity = load.capacity[r][rows]
            # round(p) > t for a whole t is p >= t + 0.5.
            over = (view + shape.estimate[r]) / np.maximum(capacity, 1) * 100 >= threshold + 0.5
            wanted = threshold > 0
            checked |= wanted
            over &= wanted & (capacity > 0)
            codes[over] = _FIRST_RESOURCE + 2 * r
            if percentile is not None:
                codes[over & percentile] += 1
        state = load.state[rows]
        codes[state != REPORTED] = 0
        if args.filter_expired_node_metrics:
            expired = load.expired[rows] > 0
            if expired.any():
                codes[expired] = 0 if args.enable_schedule_when_node_metrics_expired else EXPIRED
                codes[~checked | (state == NEVER_REPORTED)] = 0
        return codes

    def row_filter(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        load, args, prod_pod = nodes.load, nodes.load.args, shape.prod
        if shape.daemon:
            return lambda _: 0
        limits = [(load.node_view[r].data, load.limit[r].data, shape.estimate[r]) for r in range(len(load.resources))]
        states, expired, aggregated = load.state.data, load.expired.data, load.aggregated.data
        with_prod_threshold = load.has_prod_threshold.data
        by_node, by_prod = (
            [
                (threshold[r].data, view[r].data, load.capacity[r].data, shape.estimate[r], _FIRST_RESOURCE + 2 * r)
                for r in range(len(load.resources))
            ]
            for threshold, view in (
                (load.node_threshold, load.node_view),
                (load.prod_threshold, load.prod_view),
            )
        )

        def refuses(row: int) -> int:
            if prod_pod and load.prod_thresholds:
                return judged(row)
            # As in `filter`: most nodes have a fresh report and are not full.
            for view, limit, estimate in limits:
                if view[row] + estimate >= limit[row]:
                    return judged(row)
            return 0

        def judged(row: int) -> int:
            state = states[row]
            if state == NEVER_REPORTED:
                return 0
            prod = prod_pod and with_prod_threshold[row]
            checked = by_prod if prod else by_node
            if args.filter_expired_node_metrics and expired[row]:
                if args.enable_schedule_when_node_metrics_expired or not any(entry[0][row] for entry in checked):
                    return 0
                return EXPIRED
            if state != REPORTED:
                return 0
            for thresholds, view, capacities, estimate, code in checked:
                threshold, capacity = thresholds[row], capacities[row]
                if threshold <= 0 or capacity <= 0:
                    continue
                if float(view[row] + estimate) / capacity * 100 >= threshold + 0.5:
                    return code + (1 if not prod and aggregated[row] else 0)
            return 0

        return refuses

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        load, args = nodes.load, nodes.load.args
        view = load.prod_view if args.score_according_prod_usage and shape.prod else load.score_view
        by_resource = of_rows(load.capacity, rows) - of_rows(view, rows)
        by_resource -= shape.estimate_column
        np.maximum(by_resource, 0, out=by_resource)
        by_resource *= MAX_SCORE
        by_resource //= of_rows(load.divisor, rows)
        dominant = args.dominant_resource_weight
        weights = [args.resource_weights.get(resource, 0) for resource in load.resources]
        if not any(weights) and not dominant:
            return np.zeros(by_resource.shape[1], dtype=np.int64)
        lowest = np.minimum(by_resource.min(axis=0), MAX_SCORE) if dominant else None
        if weights.count(1) < len(weights):
            by_resource *= np.array(weights)[:, np.newaxis]
        total: IntArray = by_resource[0]
        for further in by_resource[1:]:
            total += further
        if lowest is not None:
            total += dominant * lowest
        total //= sum(weights) + dominant
        total *= load.usable[rows]
        return total

    def row_score(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        load, args = nodes.load, nodes.load.args
        view = load.prod_view if args.score_according_prod_usage and shape.prod else load.score_view
        dominant, wanted = args.dominant_resource_weight, args.resource_weights
        scored = [
            (load.capacity[r].data, view[r].data, shape.estimate[r], wanted.get(resource, 0))
            for r, resource in enumerate(load.resources)
        ]
        weights = dominant + sum(entry[3] for entry in scored)
        if not weights:
            return lambda _: 0
        usable = load.usable.data

        def idle(row: int) -> int:
            if not usable[row]:
                return 0
            total, lowest = 0, MAX_SCORE
            for capacities, used, estimate, weight in scored:
                capacity = capacities[row]
                left = capacity - used[row] - estimate
                score = left * MAX_SCORE // capacity if left > 0 and capacity > 0 else 0
                total += score * weight
                if score < lowest:
                    lowest = score
            return (total + dominant * lowest) // weights

        return idle

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:
        if code == EXPIRED:
            return Refusal("metric-expired", "node(s) nodeMetric expired", detail="metric expired")
        load = nodes.load
        r, percentile = divmod(code - _FIRST_RESOURCE, 2)
        resource = load.resources[r]
        found = []
        for row in rows.tolist():
            by_prod = bool(shape.prod and load.has_prod_threshold[row])
            view = load.prod_view if by_prod else load.node_view
            threshold = int((load.prod_threshold if by_prod else load.node_threshold)[r, row])
            used = int(view[r, row]) + shape.estimate[r]
            found.append((round_half_up(float(used) / float(load.capacity[r, row]) * 100), threshold))
        percent, threshold = min(found)
        kind = "aggregated usage" if percentile else "usage"
        return Refusal(
            "load",
            f"node(s) {resource} {kind} exceed threshold",
            resource,
            f"{kind} {percent}% > {threshold}%",
            of_nearest=True,
        )

"""Whether a LowNodeLoad cycle can publish anything: a cheap check before pods are counted.

In: the state, the pools. Out: False only if no node that is still to be judged in this cycle can be hot and none of their
streaks can change, so that the full cycle would publish nothing.

The check uses cpu and memory of fresh metrics, and adds usage that is moving to a node without subtracting usage that is moving
away. If a pool compares anything else (pods, prod usage, deviation from the mean), the result is True. A normal node stays
normal until an event of it or of a job is folded: only the others are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from cotenant.model.names import CPU, MEMORY
from cotenant_descheduler_arbiter.config.policy import DeschedulerPolicy, LowNodeLoad
from cotenant_descheduler_arbiter.low_node_load.balancing import judged_in_slot
from cotenant_descheduler_arbiter.low_node_load.pool_cycle import normal_changes_streaks, streaks_of
from cotenant_descheduler_arbiter.low_node_load.under_way import under_way
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.measuring import add_amounts, fresh
from cotenant_descheduler_arbiter.state.node_views import capacity_for_load

_SIMPLE = frozenset({CPU, MEMORY})


class HotNodeCheck:
    """Mutable: caches which nodes are normal. `now` must not decrease between calls."""

    def __init__(self, fold: ClusterFold, policy: DeschedulerPolicy, args: LowNodeLoad) -> None:
        self._fold = fold
        self._policy = policy
        self._args = args
        self._lowest = {CPU: 100.0, MEMORY: 100.0}
        self._conclusive = True
        """Whether all pools compare only cpu and memory of nodes."""
        self._unchecked: set[str] = set()
        self._job_version = 0
        for pool in args.pools:
            named = {*pool.low_thresholds, *pool.high_thresholds}
            if pool.use_deviation_thresholds or pool.prod_high_thresholds or pool.prod_low_thresholds or named - _SIMPLE:
                self._conclusive = False
            for name, percent in pool.high_thresholds.items():
                self._lowest[name] = min(self._lowest.get(name, 100.0), percent)

    def mark_changed(self, nodes: Iterable[str]) -> None:
        """Check these nodes again: an event of them was folded."""
        self._unchecked.update(nodes)

    def may_be_hot(self, now: datetime) -> bool:
        """Whether the full cycle must be computed."""
        if not self._args.pools:
            return False
        if not self._conclusive:
            return True
        if self._fold.job_version != self._job_version:
            self._job_version = self._fold.job_version
            self._unchecked.update(self._fold.metrics)
        if not self._unchecked:
            return False
        judged_already = judged_in_slot(self._fold, self._policy, now)
        unjudged = [node for node in sorted(self._unchecked) if node not in judged_already]
        arriving = under_way(self._fold)[1] if unjudged else {}
        for node in unjudged:
            metric = self._fold.metrics.get(node)
            expiration = self._policy.metric_expiration
            if metric is not None and fresh(metric.value, expiration, now) and self._may_be_judged(node, arriving, now):
                return True
            self._unchecked.discard(node)
        return False

    def _may_be_judged(self, node: str, arriving: Mapping[str, Sequence[Mapping[str, int]]], now: datetime) -> bool:
        judged = self._fold.judged.get(node)
        if judged is not None and normal_changes_streaks(self._args, streaks_of(judged.value), now):
            return True
        used = add_amounts(self._fold.measured_usage(node), *arriving.get(node, ()))
        capacity = capacity_for_load(self._fold, node)
        return any(used[name] > int(self._lowest[name] * 0.01 * capacity.get(name, 0)) for name in (CPU, MEMORY))

"""Whether a LowNodeLoad cycle can come to anything: a cheap look before pods are counted.

In: the state, the pools. Out: False only if no node that is still to be judged in this cycle can be hot and no streak
of one can change, so that the full cycle would say nothing.

The look knows cpu and memory of fresh metrics, and counts everything that was ever sent to a node as arriving. Where a
pool compares anything else (pods, prod usage, deviation from the mean), the answer is True.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from cotenant.names import CPU, MEMORY
from cotenant_descheduler_arbiter.fold import ClusterFold
from cotenant_descheduler_arbiter.low_node_load import LowNodeLoad, calm_is_news, streaks_of
from cotenant_descheduler_arbiter.measuring import add_amounts, fresh
from cotenant_descheduler_arbiter.node_views import allocatable_of, raw_allocatable_of
from cotenant_descheduler_arbiter.policy import Policy
from cotenant_descheduler_arbiter.under_way import under_way

_SIMPLE = frozenset({CPU, MEMORY})


def may_be_hot(
    fold: ClusterFold, policy: Policy, args: LowNodeLoad, judged_already: Collection[str], now: datetime
) -> bool:
    """Tell whether the full cycle must be computed."""
    if not args.pools:
        return False
    lowest = {CPU: 100.0, MEMORY: 100.0}
    for pool in args.pools:
        named = {*pool.low_thresholds, *pool.high_thresholds}
        if pool.use_deviation_thresholds or pool.prod_high_thresholds or pool.prod_low_thresholds or named - _SIMPLE:
            return True
        for name, percent in pool.high_thresholds.items():
            lowest[name] = min(lowest[name], percent)
    _, arriving = under_way(fold)
    for node, metric in fold.metrics.items():
        if node in judged_already or not fresh(metric.value, policy.metric_expiration, now):
            continue
        judged = fold.judged.get(node)
        if judged is not None and calm_is_news(args, streaks_of(judged.value), now):
            return True
        usage = fold.measured_usage(node)
        coming = add_amounts(*arriving.get(node, ()))
        capacity = {**allocatable_of(fold, node), **raw_allocatable_of(fold, node)}
        for name in (CPU, MEMORY):
            used = usage[name] + coming.get(name, 0)
            if used > int(lowest[name] * 0.01 * capacity.get(name, 0)):
                return True
    return False

"""Whether a LowNodeLoad cycle can come to anything: a cheap look before pods are counted.

In: the state, the pools. Out: False only if no node that is still to be judged in this cycle can be hot and no streak
of one can change, so that the full cycle would say nothing.

The look knows cpu and memory of fresh metrics, and counts everything that was ever sent to a node as arriving. Where a
pool compares anything else (pods, prod usage, deviation from the mean), the answer is True.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from cotenant.events.migrations import NodeLoadJudged
from cotenant.names import CPU, MEMORY
from cotenant_descheduler_arbiter.classify import LoadClass
from cotenant_descheduler_arbiter.fold import ClusterFold
from cotenant_descheduler_arbiter.low_node_load import SOURCES, LowNodeLoad, streaks_of
from cotenant_descheduler_arbiter.measuring import add_amounts, fresh
from cotenant_descheduler_arbiter.node_views import allocatable_of, raw_allocatable_of
from cotenant_descheduler_arbiter.policy import Policy

_SIMPLE = frozenset({CPU, MEMORY})


def _open(judged: NodeLoadJudged) -> bool:
    """Tell whether another judgement of the node would change what is known of it, even if it is calm."""
    return LoadClass(judged.load_class) in SOURCES or not streaks_of(judged).idle


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
    arriving: dict[str, dict[str, int]] = {}
    for known in fold.jobs.values():
        if known.value.target:
            arriving[known.value.target] = add_amounts(arriving.get(known.value.target, {}), known.value.pod_usage)
    for node, metric in fold.metrics.items():
        if node in judged_already or not fresh(metric.value, policy.metric_expiration, now):
            continue
        judged = fold.judged.get(node)
        if judged is not None and _open(judged.value):
            return True
        usage = fold.measured_usage(node)
        coming = arriving.get(node, {})
        capacity = {**allocatable_of(fold, node), **raw_allocatable_of(fold, node)}
        for name in (CPU, MEMORY):
            used = usage[name] + coming.get(name, 0)
            if used > int(lowest[name] * 0.01 * capacity.get(name, 0)):
                return True
    return False

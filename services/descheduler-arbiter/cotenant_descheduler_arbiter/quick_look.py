"""Whether a LowNodeLoad cycle can come to anything: a cheap look before pods are counted.

In: the state, the pools. Out: False only if no node can be hot and no streak can change, so that the full cycle would
say nothing.

The look knows cpu and memory of fresh metrics. Where a pool compares anything else (pods, prod usage, deviation from
the mean), or where jobs are under way that shift usage between nodes, or a streak is open, the answer is True.
"""

from __future__ import annotations

from datetime import datetime

from cotenant.names import CPU, MEMORY

from cotenant_descheduler_arbiter.fold import ClusterFold
from cotenant_descheduler_arbiter.low_node_load import LowNodeLoad
from cotenant_descheduler_arbiter.measuring import fresh
from cotenant_descheduler_arbiter.node_views import allocatable_of, raw_allocatable_of
from cotenant_descheduler_arbiter.policy import Policy

_SIMPLE = frozenset({CPU, MEMORY})


def may_be_hot(fold: ClusterFold, policy: Policy, args: LowNodeLoad, now: datetime) -> bool:
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
    if any(not known.value.finished or known.value.target for known in fold.jobs.values()):
        return True
    if any(
        known.value.abnormal_at is not None and now - known.value.abnormal_at <= args.detector_cache_timeout
        for known in fold.judged.values()
    ):
        return True
    for name, known in fold.metrics.items():
        if not fresh(known.value, policy.metric_expiration, now):
            continue
        metric = known.value
        cpu, memory = metric.system_usage.cpu_milli, metric.system_usage.memory_bytes
        for usage in (*(pod.usage for pod in metric.pods), *(each.usage for each in metric.host_applications)):
            cpu += usage.cpu_milli
            memory += usage.memory_bytes
        capacity = {**allocatable_of(fold, name), **raw_allocatable_of(fold, name)}
        for resource, used in ((CPU, cpu), (MEMORY, memory)):
            if used > int(lowest[resource] * 0.01 * capacity.get(resource, 0)):
                return True
    return False

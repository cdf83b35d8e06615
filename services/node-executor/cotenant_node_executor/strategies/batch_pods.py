"""Batch values for every BE pod and its containers, as wishes.

In: a pod and the node SLO. Out: shares, quota and memory limit from batch-cpu and batch-memory. While suppression works by
quota batch pods have none of their own: the kernel refuses a parent below its children.
"""

from __future__ import annotations

from cotenant_node_executor.kernel.interface import Knob
from cotenant_node_executor.strategies.batch_values import BatchAmounts, CgroupValues, batch_values, quota_enabled
from cotenant_node_executor.strategies.situation import PodView, Policy, Wish

STRATEGY = "batch-values"


def pod_wishes(pod: PodView, policy: Policy) -> list[Wish]:
    """Wishes for a pod labelled BE that states batch resources."""
    stated = [container.batch for container in pod.containers if container.batch is not None]
    if not stated:
        return []
    slo = policy.slo
    use_quota = quota_enabled(slo.enable, slo.cpu_suppress_policy) if slo is not None else True
    amounts = [container.batch or BatchAmounts(container.name) for container in pod.containers]
    wishes = _wishes(pod.group, batch_values(pod.qos, amounts, use_quota=use_quota))
    for container in pod.containers:
        own = [container.batch] if container.batch is not None else []
        wishes += _wishes(container.group, batch_values(pod.qos, own, use_quota=use_quota))
    return wishes


def _wishes(group: str, values: CgroupValues | None) -> list[Wish]:
    if values is None:
        return []
    return [
        Wish(group, Knob.CPU_SHARES, str(values.cpu_shares), STRATEGY, "batch-cpu requests"),
        Wish(group, Knob.CPU_QUOTA, str(values.cfs_quota_us), STRATEGY, "batch-cpu limits"),
        Wish(group, Knob.MEMORY_LIMIT, str(values.memory_limit_bytes), STRATEGY, "batch-memory limits"),
    ]

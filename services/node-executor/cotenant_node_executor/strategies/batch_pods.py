"""Batch values for every BE pod and its containers, as wishes.

In: a pod's shape and the node SLO. Out: shares, quota and memory limit from batch-cpu and batch-memory. While suppression
works by quota batch pods have none of their own: the kernel refuses a parent below its children.
"""

from __future__ import annotations

from cotenant_node_executor.strategies.batch_values import BatchAmounts, CgroupValues, batch_values, quota_enabled
from cotenant_node_executor.strategies.situation import PodShape, PodWishes, Policy, Wish
from cotenant_node_executor.targets.interface import Knob

STRATEGY = "batch-values"


def pod_wishes(pod: PodShape, policy: Policy) -> PodWishes | None:
    """Wishes for a pod labelled BE that states batch resources; None for others."""
    if not any(container.batch is not None for container in pod.containers):
        return None
    slo = policy.slo
    use_quota = quota_enabled(slo.enable, slo.cpu_suppress_policy) if slo is not None else True
    amounts = [container.batch or BatchAmounts("") for container in pod.containers]
    return PodWishes(
        pod=_wishes(batch_values(pod.qos, amounts, use_quota=use_quota)),
        containers=tuple(
            _wishes(batch_values(pod.qos, [container.batch] if container.batch is not None else [], use_quota=use_quota))
            for container in pod.containers
        ),
    )


def _wishes(values: CgroupValues | None) -> tuple[Wish, ...]:
    if values is None:
        return ()
    return (
        Wish(Knob.CPU_SHARES, str(values.cpu_shares), STRATEGY, "batch-cpu requests"),
        Wish(Knob.CPU_QUOTA, str(values.cfs_quota_us), STRATEGY, "batch-cpu limits"),
        Wish(Knob.MEMORY_LIMIT, str(values.memory_limit_bytes), STRATEGY, "batch-memory limits"),
    )

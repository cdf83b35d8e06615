"""Batch values for every BE pod and its containers, as desired values.

In: a pod's shape and the node SLO. Out: shares, quota and memory limit from batch-cpu and batch-memory. While suppression
works by quota, batch pods have no quota of their own: the kernel refuses a parent's quota below its children's.
"""

from __future__ import annotations

from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.pod_view import BatchAmounts, PodShape
from cotenant_node_executor.strategies.pods.batch_values import CgroupValues, batch_values, quota_enabled
from cotenant_node_executor.strategies.sections import THRESHOLD, is_dry_run
from cotenant_node_executor.strategies.strategy import Cause, Desired, PodDesired, Policy, Strategy
from cotenant_node_executor.targets.interface import Knob

NAME = "batch-values"


def of_pod(pod: PodShape, policy: Policy) -> PodDesired:
    """Values of a pod labelled BE that states batch resources; nothing for others."""
    if not any(container.batch is not None for container in pod.containers):
        return PodDesired()
    use_quota = has_quota(policy.slo)
    amounts = [container.batch or BatchAmounts("") for container in pod.containers]
    return PodDesired(
        pod=_desired(batch_values(pod.qos, amounts, use_quota=use_quota)),
        containers=tuple(
            _desired(batch_values(pod.qos, [container.batch] if container.batch is not None else [], use_quota=use_quota))
            for container in pod.containers
        ),
    )


def has_quota(slo: NodeSLORendered | None) -> bool:
    """Whether batch pods have quotas of their own. A suppression that is a dry run sets none for their tree."""
    if slo is None or is_dry_run(slo, THRESHOLD):
        return True
    return quota_enabled(slo.enable, slo.cpu_suppress_policy)


def _desired(values: CgroupValues | None) -> tuple[Desired, ...]:
    if values is None:
        return ()
    return (
        Desired(Knob.CPU_SHARES, str(values.cpu_shares), NAME, "batch-cpu requests"),
        Desired(Knob.CPU_QUOTA, str(values.cfs_quota_us), NAME, "batch-cpu limits"),
        Desired(Knob.MEMORY_LIMIT, str(values.memory_limit_bytes), NAME, "batch-memory limits"),
    )


STRATEGY = Strategy(
    name=NAME,
    topic="batch-values",
    sets=(Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.MEMORY_LIMIT),
    of_pod=of_pod,
    cause=Cause.PLACEMENTS,
)

"""Values of every BE pod from its batch resources, and of every pod that has mid resources alone, with their containers.

In: a pod's shape and the node SLO. Out: shares, quota and memory limit from batch-cpu and batch-memory, or from mid-cpu and
mid-memory. While suppression works by quota, these pods have no quota of their own: the kernel refuses a parent's quota below
its children's, and kubelet's layout puts both among best-effort pods, as they request no CPU and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.domain.qos import KubeQoS
from cotenant.events.node.resources import NodeSLORendered
from cotenant_node_executor.strategies.pod_view import ContainerAmounts, PodShape
from cotenant_node_executor.strategies.pods.batch_values import CgroupValues, batch_values, quota_enabled, values_of
from cotenant_node_executor.strategies.sections import THRESHOLD, is_dry_run
from cotenant_node_executor.strategies.strategy import Cause, Desired, NodePolicy, PodDesired, Strategy
from cotenant_node_executor.targets.interface import Knob

NAME = "batch-values"
_BEST_EFFORT = KubeQoS.BEST_EFFORT


def of_pod(pod: PodShape, policy: NodePolicy) -> PodDesired:
    """Values of a pod labelled BE that states batch resources, or of one with mid resources alone; nothing for others."""
    if not any(container.batch is not None for container in pod.containers):
        return _of_mid(pod, policy)
    use_quota = has_quota(policy.slo)
    amounts = [container.batch or ContainerAmounts("") for container in pod.containers]
    return PodDesired(
        pod=_desired(batch_values(pod.qos, amounts, use_quota=use_quota), amounts),
        containers=tuple(
            _desired(batch_values(pod.qos, own, use_quota=use_quota), own)
            for own in ([container.batch] if container.batch is not None else [] for container in pod.containers)
        ),
    )


def _of_mid(pod: PodShape, policy: NodePolicy) -> PodDesired:
    """Koordinator leaves such a pod without limits."""
    if pod.kube_qos is not _BEST_EFFORT or not any(container.mid is not None for container in pod.containers):
        return PodDesired()
    use_quota = has_quota(policy.slo)
    amounts = [container.mid or ContainerAmounts("") for container in pod.containers]
    return PodDesired(
        pod=_desired(values_of(amounts, use_quota=use_quota), amounts, "mid"),
        containers=tuple(_desired(values_of([each], use_quota=use_quota), [each], "mid") for each in amounts),
    )


def has_quota(slo: NodeSLORendered | None) -> bool:
    """Whether batch pods have quotas of their own. A suppression that is a dry run sets none for their tree."""
    if slo is None or is_dry_run(slo, THRESHOLD):
        return True
    return quota_enabled(slo.enable, slo.cpu_suppress_policy)


def _desired(values: CgroupValues | None, of: Sequence[ContainerAmounts], tier: str = "batch") -> tuple[Desired, ...]:
    """`of`: the amounts behind the values."""
    if values is None:
        return ()
    requests, limits = (
        sum(max(amount or 0, 0) for amount in amounts)
        for amounts in ([each.request_cpu_milli for each in of], [each.limit_cpu_milli for each in of])
    )
    quota = f"{tier}-cpu limits {limits}m" if values.cfs_quota_us >= 0 else f"{tier}-cpu without a quota"
    return (
        Desired(Knob.CPU_SHARES, str(values.cpu_shares), NAME, f"{tier}-cpu requests {requests}m"),
        Desired(Knob.CPU_QUOTA, str(values.cfs_quota_us), NAME, quota),
        Desired(Knob.MEMORY_LIMIT, str(values.memory_limit_bytes), NAME, f"{tier}-memory limits"),
    )


STRATEGY = Strategy(
    name=NAME,
    topic="batch-values",
    sets=(Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.MEMORY_LIMIT),
    of_pod=of_pod,
    cause=Cause.PLACEMENTS,
)

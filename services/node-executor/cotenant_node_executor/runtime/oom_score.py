"""`oom_score_adj` of a container's processes, as kubelet sets it: the order in which the OOM killer picks victims.

In: a pod, a container's memory request and the machine's memory, in bytes. Out: -997 to 1000. The kernel adds this many
thousandths of the machine's memory to a process's memory, and kills the process with the largest sum.

    guaranteed   -997
    burstable    1000 - 1000 * request // machine, within 3..999
    best-effort  1000, which includes every pod that requests batch resources only

A pod's annotations may override this (`targets.oom_annotations`).

A container within its request has a lower score than any container above its own: services within their requests survive
best-effort work. Source: kubelet, qos policy; Linux, oom_badness.
"""

from __future__ import annotations

from cotenant.api.objects.pod import Pod
from cotenant.domain.qos import KubeQoS, kube_qos
from cotenant_node_executor.targets.oom_annotations import annotated_score

GUARANTEED = -997
BEST_EFFORT = 1000
LEAST = 1000 + GUARANTEED


def oom_score_adj(pod: Pod, request_bytes: int, machine_bytes: int, container: str = "") -> int:
    """The adjustment for a container with this memory request, on a machine with this much memory (both in bytes)."""
    stated = annotated_score(pod, container)
    if stated is not None:
        return stated
    qos = kube_qos(pod)
    if qos is KubeQoS.GUARANTEED:
        return GUARANTEED
    if qos is KubeQoS.BEST_EFFORT:
        return BEST_EFFORT
    return min(max(1000 - 1000 * request_bytes // machine_bytes, LEAST), BEST_EFFORT - 1)

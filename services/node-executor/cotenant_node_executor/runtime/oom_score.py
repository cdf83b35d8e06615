"""Whom the kernel ends first where the machine lacks memory: `oom_score_adj` of a container's processes, as kubelet sets it.

In: a pod, the memory that a container requests, the machine's. Out: -997 to 1000; the kernel adds so many thousandths of the
machine's memory to what a process holds, and ends the process with the largest sum.

    guaranteed   -997
    burstable    1000 - 1000 * request // machine, within 3..999
    best-effort  1000, and so every pod that runs on borrowed resources alone

So a container that stays within its request counts less than any that is beyond its own: a service within its request
outlives best-effort work. Source: kubelet, qos policy; Linux, oom_badness.
"""

from __future__ import annotations

from cotenant.api.objects.pod import Pod
from cotenant.domain.qos import KubeQoS, kube_qos

GUARANTEED = -997
BEST_EFFORT = 1000
LEAST = 1000 + GUARANTEED


def oom_score_adj(pod: Pod, request_bytes: int, machine_bytes: int) -> int:
    """The adjustment for a container that requests so much memory, on a machine that has so much."""
    qos = kube_qos(pod)
    if qos is KubeQoS.GUARANTEED:
        return GUARANTEED
    if qos is KubeQoS.BEST_EFFORT:
        return BEST_EFFORT
    return min(max(1000 - 1000 * request_bytes // machine_bytes, LEAST), BEST_EFFORT - 1)

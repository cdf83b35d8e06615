"""The order of pods by priority: the lowest first.

    pods without a priority, then by priority; among equals BestEffort < Burstable < Guaranteed, then `namespace/name`

Source: kubernetes-sigs descheduler (SortPodsBasedOnPriorityLowToHigh), where the order of equal pods is undefined.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant.domain.qos import KubeQoS, kube_qos
from cotenant_descheduler_arbiter.state.facts import PodFacts

_QOS_RANK = {KubeQoS.BEST_EFFORT: 0, KubeQoS.BURSTABLE: 1, KubeQoS.GUARANTEED: 2}


def low_priority_first(pods: Iterable[PodFacts]) -> list[PodFacts]:
    """Return the pods in this order."""

    def rank(pod: PodFacts) -> tuple[bool, int, int, str]:
        priority = pod.pod.spec.priority
        return priority is not None, priority or 0, _QOS_RANK[kube_qos(pod.pod)], pod.key

    return sorted(pods, key=rank)

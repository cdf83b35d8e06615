"""The eviction order of pods. Each key decides only where the earlier keys are equal; the first pod is evicted first:

    1 Koordinator priority class: free < batch < mid < prod < none      2 spec.priority (none = 0)
    3 Kubernetes QoS: BestEffort < Burstable < Guaranteed               4 Koordinator QoS: BE < LS < LSR < LSE = SYSTEM < none
    5 pod-deletion-cost        6 eviction-cost
    7 how well the pod's usage covers the node's excess, best first; pods without a metric last (only when relieving a node)
    8 creation time, newest first        9 namespace/name, last first, as a StatefulSet scales down

Source: koord-descheduler sorter; the ninth key is an addition, as its order of equal pods is undefined.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cotenant.domain.qos import KubeQoS, QoSClass, kube_qos, priority_default, qos_default
from cotenant.model.tiers import PriorityClass
from cotenant_descheduler_arbiter.eviction.evictable import ANNOTATION_EVICTION_COST, parse_cost
from cotenant_descheduler_arbiter.state.facts import PodFacts

ANNOTATION_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

_PRIORITY_RANK = {
    PriorityClass.FREE: 1,
    PriorityClass.BATCH: 2,
    PriorityClass.MID: 3,
    PriorityClass.PROD: 4,
    PriorityClass.NONE: 5,
}
_KUBE_QOS_RANK = {KubeQoS.BEST_EFFORT: 1, KubeQoS.BURSTABLE: 2, KubeQoS.GUARANTEED: 3}
_QOS_RANK = {QoSClass.BE: 1, QoSClass.LS: 2, QoSClass.LSR: 3, QoSClass.LSE: 4, QoSClass.SYSTEM: 4, QoSClass.NONE: 5}

PodRank = tuple[int, int, int, int, int, int, int, float, float]
"""Keys 1 to 8."""


def creation_seconds(text: str | None) -> int:
    """Return an RFC 3339 creation time in whole seconds since 1970; 0 if it is absent or malformed."""
    if not text:
        return 0
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return int((parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp())


def pod_rank(facts: PodFacts, score: float | None, *, by_usage: bool) -> PodRank:
    """Return the keys of a pod; `score`: None without a metric."""
    pod = facts.pod
    annotations = pod.metadata.annotations
    return (
        _PRIORITY_RANK[priority_default(pod)],
        pod.spec.priority or 0,
        _KUBE_QOS_RANK[kube_qos(pod)],
        _QOS_RANK[qos_default(pod)],
        parse_cost(annotations.get(ANNOTATION_DELETION_COST)),
        parse_cost(annotations.get(ANNOTATION_EVICTION_COST)),
        1 if by_usage and score is None else 0,
        -(score or 0.0) if by_usage else 0.0,
        -creation_seconds(pod.metadata.creation_timestamp),
    )


def sort_pods(pods: Sequence[PodFacts]) -> list[PodFacts]:
    """Return the pods in eviction order without regard to usage."""
    backwards = sorted(pods, key=lambda facts: facts.key, reverse=True)
    return sorted(backwards, key=lambda facts: pod_rank(facts, None, by_usage=False))

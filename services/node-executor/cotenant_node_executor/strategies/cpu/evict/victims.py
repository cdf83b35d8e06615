"""Which pods are evicted, in which order, until enough is released.

In: candidates with their requests and usage (milli-CPU). Out: the victims.

    for satisfaction: pods labelled BE; the lower spec.priority first, then the higher usage per request
    for usage and allocatable: pods that allow it (label, policies) up to a priority; by annotation eviction-priority, spec
    priority, label priority, then (usage) the higher usage

A pod without a request is taken too when it is reached, and releases nothing. Source: BECPUEvict and the gates CPUEvict and
CPUAllocatableEvict, koordlet rules (v1.8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key

from msgspec import Struct

from cotenant_node_executor.strategies.pod_eviction import is_enabled, policies_of, rank_of


class CpuEvictionCandidate(Struct, frozen=True):
    """A pod; `request_milli`: of the resource that is to be released."""

    uid: str
    priority: int | None
    request_milli: int
    used_milli: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


def by_satisfaction(pods: Sequence[CpuEvictionCandidate]) -> list[CpuEvictionCandidate]:
    """Batch pods in the order in which they are evicted for satisfaction; equal ones stay in order."""
    return sorted(pods, key=cmp_to_key(_compare))


def _compare(one: CpuEvictionCandidate, other: CpuEvictionCandidate) -> int:
    if one.priority is not None and other.priority is not None and one.priority != other.priority:
        return -1 if one.priority < other.priority else 1
    mine, others = _usage(one), _usage(other)
    return (mine < others) - (mine > others)


def _usage(pod: CpuEvictionCandidate) -> float:
    return pod.used_milli / pod.request_milli if pod.request_milli else 0.0


def evictable(pod: CpuEvictionCandidate, feature: str, up_to_priority: int) -> bool:
    """Whether a pod may be evicted by this feature: the pod allows it, and has a priority that is not above the bound."""
    if not is_enabled(pod.labels) or pod.priority is None or pod.priority > up_to_priority:
        return False
    policies = policies_of(pod.annotations)
    return policies is None or feature in policies


def by_priority(pods: Sequence[CpuEvictionCandidate], *, then_usage: bool) -> list[CpuEvictionCandidate]:
    """Pods in the order in which they are evicted for usage or allocatable."""

    def key(pod: CpuEvictionCandidate) -> tuple[int, int, int, int]:
        return *rank_of(pod.priority, pod.labels, pod.annotations), -pod.used_milli if then_usage else 0

    return sorted(pods, key=key)


def taken(
    pods: Sequence[CpuEvictionCandidate],
    release_milli: int,
    amount: Callable[[CpuEvictionCandidate], int],
    released_milli: int = 0,
) -> list[CpuEvictionCandidate]:
    """The first pods until the sum of their amounts reaches the release; `released_milli`: of pods that are leaving already."""
    victims: list[CpuEvictionCandidate] = []
    for pod in pods:
        if released_milli >= release_milli:
            break
        victims.append(pod)
        released_milli += max(amount(pod), 0)
    return victims

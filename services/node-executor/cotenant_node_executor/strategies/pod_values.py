"""The plain values of every pod, as kubelet writes them: shares from requests, quota and memory limit from limits.

In: the situation, or a pod. Out: wishes for the root and the QoS groups, or for the pod and its containers. The
composer lets every other strategy go before these.

    root shares = allocatable;  burstable = sum of its pods' requests;  besteffort = 2
    pod, container: shares = requests, quota and memory = limits, unlimited as soon as one container has none
    a pod that holds CPUs of its own has no quota

Source: kubelet, container manager.
"""

from __future__ import annotations

from collections.abc import Sequence

from cotenant.qos import KubeQoS
from cotenant_node_executor.kernel.convert import MIN_SHARES, milli_to_quota_us, milli_to_shares
from cotenant_node_executor.kernel.interface import ROOT_GROUP, UNLIMITED, Knob
from cotenant_node_executor.strategies.situation import (
    BESTEFFORT,
    BURSTABLE,
    ContainerView,
    PodView,
    Situation,
    Wish,
)

STRATEGY = "pod-values"


def group_shares(situation: Situation) -> dict[str, int]:
    """cpu.shares by group of the QoS groups and of every pod, before any strategy raises or lowers them."""
    pods = {pod.group: milli_to_shares(pod.requested_milli) for pod in situation.pods}
    return {BESTEFFORT: MIN_SHARES, BURSTABLE: burstable_shares(situation), **pods}


def burstable_shares(situation: Situation) -> int:
    """cpu.shares of the burstable QoS group."""
    return milli_to_shares(sum(pod.requested_milli for pod in situation.pods if pod.kube_qos is KubeQoS.BURSTABLE))


def node_wishes(situation: Situation) -> list[Wish]:
    """Wishes for the root and the QoS groups."""
    return [
        Wish(ROOT_GROUP, Knob.CPU_SHARES, str(milli_to_shares(situation.node.allocatable_milli)), STRATEGY, "allocatable"),
        Wish(BESTEFFORT, Knob.CPU_SHARES, str(MIN_SHARES), STRATEGY, "requests"),
        Wish(BURSTABLE, Knob.CPU_SHARES, str(burstable_shares(situation)), STRATEGY, "requests"),
    ]


def pod_wishes(pod: PodView) -> list[Wish]:
    """Wishes for a pod and its containers."""
    wishes = _values(pod, pod.group, pod.requested_milli, pod.containers)
    for container in pod.containers:
        wishes += _values(pod, container.group, container.request_cpu_milli or 0, (container,))
    return wishes


def _values(pod: PodView, group: str, requested_milli: int, containers: Sequence[ContainerView]) -> list[Wish]:
    shares = milli_to_shares(requested_milli)
    return [Wish(group, Knob.CPU_SHARES, str(shares), STRATEGY, "requests"), *_limits(pod, group, containers)]


def _limits(pod: PodView, group: str, containers: Sequence[ContainerView]) -> list[Wish]:
    cpu = [container.limit_cpu_milli or 0 for container in containers]
    memory = [container.limit_memory_bytes or 0 for container in containers]
    quota = UNLIMITED if pod.bound_cpus or not all(cpu) else str(milli_to_quota_us(sum(cpu)))
    return [
        Wish(group, Knob.CPU_QUOTA, quota, STRATEGY, "limits"),
        Wish(group, Knob.MEMORY_LIMIT, str(sum(memory)) if all(memory) else UNLIMITED, STRATEGY, "limits"),
    ]

"""The plain values of every pod, as kubelet writes them: shares from requests, quota and memory limit from limits.

In: the situation, or a pod's shape. Out: wishes for the root and the QoS groups, or for the pod and its containers. The
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
    ContainerShape,
    PodShape,
    PodWishes,
    Situation,
    Wish,
    Wishes,
)

STRATEGY = "pod-values"


def group_shares(situation: Situation) -> dict[str, int]:
    """cpu.shares by group of the QoS groups and of every pod, before any strategy raises or lowers them."""
    pods = {group: milli_to_shares(pod.shape.requested_milli) for group, pod in situation.pods.items()}
    return {BESTEFFORT: MIN_SHARES, BURSTABLE: burstable_shares(situation), **pods}


def burstable_shares(situation: Situation) -> int:
    """cpu.shares of the burstable QoS group."""
    burstable = KubeQoS.BURSTABLE
    pods = situation.pods.values()
    return milli_to_shares(sum([pod.shape.requested_milli for pod in pods if pod.shape.kube_qos is burstable]))


def node_wishes(situation: Situation) -> Wishes:
    """Wishes for the root and the QoS groups."""
    root = milli_to_shares(situation.node.allocatable_milli)
    return {
        ROOT_GROUP: (Wish(Knob.CPU_SHARES, str(root), STRATEGY, "allocatable"),),
        BESTEFFORT: (Wish(Knob.CPU_SHARES, str(MIN_SHARES), STRATEGY, "requests"),),
        BURSTABLE: (Wish(Knob.CPU_SHARES, str(burstable_shares(situation)), STRATEGY, "requests"),),
    }


def pod_wishes(pod: PodShape) -> PodWishes:
    """Wishes for a pod and its containers."""
    return PodWishes(
        pod=_values(pod, pod.requested_milli, pod.containers),
        containers=tuple(
            _values(pod, container.request_cpu_milli or 0, (container,)) for container in pod.containers
        ),
    )


def _values(pod: PodShape, requested_milli: int, containers: Sequence[ContainerShape]) -> tuple[Wish, ...]:
    cpu = [container.limit_cpu_milli or 0 for container in containers]
    memory = [container.limit_memory_bytes or 0 for container in containers]
    quota = UNLIMITED if pod.holds_cpus or not all(cpu) else str(milli_to_quota_us(sum(cpu)))
    return (
        Wish(Knob.CPU_SHARES, str(milli_to_shares(requested_milli)), STRATEGY, "requests"),
        Wish(Knob.CPU_QUOTA, quota, STRATEGY, "limits"),
        Wish(Knob.MEMORY_LIMIT, str(sum(memory)) if all(memory) else UNLIMITED, STRATEGY, "limits"),
    )

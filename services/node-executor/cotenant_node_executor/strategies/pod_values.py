"""The plain values of every pod, as kubelet writes them: shares from requests, quota and memory limit from limits.

In: figures of the node, or a pod's shape. Out: wishes for the root and the QoS groups, or for the pod and its containers. The
composer lets every other strategy go before these.

    root shares = allocatable;  burstable = sum of its pods' requests;  besteffort = 2
    pod, container: shares = requests, quota and memory = limits, unlimited as soon as one container has none
    a pod that holds CPUs of its own has no quota

Source: kubelet, container manager.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from cotenant.domain.qos import KubeQoS
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
from cotenant_node_executor.targets.convert import MIN_SHARES, milli_to_quota_us, milli_to_shares
from cotenant_node_executor.targets.interface import ROOT_GROUP, UNLIMITED, Knob

STRATEGY = "pod-values"
REMEMBERED_SHARES = 1024
_BURSTABLE = KubeQoS.BURSTABLE


def group_shares(situation: Situation) -> dict[str, int]:
    """cpu.shares by group of the QoS groups and of every pod, before any strategy raises or lowers them."""
    pods = {group: milli_to_shares(pod.shape.requested_milli) for group, pod in situation.pods.items()}
    burstable = sum([burstable_milli(pod.shape) for pod in situation.pods.values()])
    return {BESTEFFORT: MIN_SHARES, BURSTABLE: milli_to_shares(burstable), **pods}


def burstable_milli(pod: PodShape) -> int:
    """What a pod adds to the requests of the burstable QoS group."""
    return pod.requested_milli if pod.kube_qos is _BURSTABLE else 0


def node_wishes(allocatable_milli: int) -> Wishes:
    """Wishes for the root and the best-effort group."""
    return {ROOT_GROUP: _shares(allocatable_milli, "allocatable"), BESTEFFORT: _shares(0, "requests")}


def burstable_wishes(requested_milli: int) -> Wishes:
    """The wish for the burstable group; `requested_milli` is the sum over burstable pods."""
    return {BURSTABLE: _shares(requested_milli, "requests")}


@lru_cache(maxsize=REMEMBERED_SHARES)
def _shares(milli: int, why: str) -> tuple[Wish, ...]:
    return (Wish(Knob.CPU_SHARES, str(milli_to_shares(milli)), STRATEGY, why),)


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

"""The plain values of every pod, as kubelet writes them: shares from requests, quota and memory limit from limits.

In: figures of the node, or a pod's shape. Out: desired values for the root and the QoS groups, or for the pod and its
containers. Every other strategy takes precedence.

    root shares = allocatable;  burstable = sum of its pods' requests;  besteffort = 2
    pod, container: shares = requests, quota and memory = limits, unlimited if a container has none
    a pod with exclusive CPUs has no quota

Source: kubelet, container manager.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.strategies.pod_view import ContainerShape, PodShape
from cotenant_node_executor.strategies.situation import Situation
from cotenant_node_executor.strategies.strategy import (
    Cause,
    Desired,
    NodePolicy,
    PodDesired,
    Strategy,
    StrategyDecision,
    on_pods,
)
from cotenant_node_executor.targets.convert import MIN_SHARES, milli_to_quota_us, milli_to_shares
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP, UNLIMITED_TEXT, Knob

NAME = "pod-values"
REMEMBERED_SHARES = 1024
_BURSTABLE = KubeQoS.BURSTABLE


def group_shares(situation: Situation) -> dict[str, int]:
    """cpu.shares by group of the QoS groups and of every pod, before any strategy raises or lowers them."""
    pods = {group: milli_to_shares(pod.shape.requested_milli) for group, pod in situation.pods.items()}
    burstable = sum([burstable_milli(pod.shape) for pod in situation.pods.values()])
    return {BESTEFFORT: MIN_SHARES, BURSTABLE: milli_to_shares(burstable), **pods}


def burstable_milli(pod: PodShape) -> int:
    """A pod's contribution to the requests of the burstable QoS group, in milli-CPU."""
    return pod.requested_milli if pod.kube_qos is _BURSTABLE else 0


def decide(situation: Situation, _memory: Struct | None) -> StrategyDecision:
    """Shares of the root and the QoS groups."""
    return _of_node(situation.node.allocatable_milli, situation.burstable_milli)


@lru_cache(maxsize=REMEMBERED_SHARES)
def _of_node(allocatable_milli: int, burstable_milli: int) -> StrategyDecision:
    return StrategyDecision({
        ROOT_GROUP: _shares(allocatable_milli, "allocatable"),
        BESTEFFORT: _shares(0, "requests"),
        BURSTABLE: _shares(burstable_milli, "requests"),
    })


def _shares(milli: int, why: str) -> tuple[Desired, ...]:
    return (Desired(Knob.CPU_SHARES, str(milli_to_shares(milli)), NAME, f"{why} {milli}m"),)


def of_pod(pod: PodShape, _policy: NodePolicy) -> PodDesired:
    """Values of a pod and its containers."""
    return PodDesired(
        pod=_values(pod, pod.requested_milli, pod.containers),
        containers=tuple(
            _values(pod, container.request_cpu_milli or 0, (container,)) for container in pod.containers
        ),
    )


def _values(pod: PodShape, requested_milli: int, containers: Sequence[ContainerShape]) -> tuple[Desired, ...]:
    cpu = [container.limit_cpu_milli or 0 for container in containers]
    memory = [container.limit_memory_bytes or 0 for container in containers]
    quota = UNLIMITED_TEXT if pod.holds_cpus or not all(cpu) else str(milli_to_quota_us(sum(cpu)))
    return (
        Desired(Knob.CPU_SHARES, str(milli_to_shares(requested_milli)), NAME, f"requests {requested_milli}m"),
        Desired(Knob.CPU_QUOTA, quota, NAME, "no quota" if quota == UNLIMITED_TEXT else f"limits {sum(cpu)}m"),
        Desired(Knob.MEMORY_LIMIT, str(sum(memory)) if all(memory) else UNLIMITED_TEXT, NAME, "limits"),
    )


STRATEGY = Strategy(
    name=NAME,
    topic="batch-values",
    sets=(Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.MEMORY_LIMIT),
    of_pod=of_pod,
    decide=decide,
    inputs=on_pods,
    cause=Cause.PLACEMENTS,
)

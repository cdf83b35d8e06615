"""The CPU that batch work may use: the quantity behind both suppression policies.

In: usage of the node, each pod and each host application (milli-CPU), the node's capacity, the reservation, and the threshold
of the node SLO. Out: milli-CPU for the best-effort group, possibly negative (callers clamp).

    suppress = capacity * threshold% - usage of non-batch pods - usage of non-batch host applications
               - max(system, reserved)

"system" is the usage outside of pods and host applications. Capacity is the node's capacity, not its allocatable.
cpuSuppressMinPercent is a lower bound of the result. Source: CPU suppress, koordlet rule, with the v1.7 floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from cotenant.domain.qos import KubeQoS, QoSClass

KUBEPODS_BESTEFFORT = "KubepodsBesteffort"


class PodClass(Struct, frozen=True):
    """The properties that classify a pod's usage as batch or not."""

    uid: str
    qos: str
    """Value of the QoS label; empty without one."""
    kube_qos: str


class HostApplicationClass(Struct, frozen=True):
    """A host application of the node SLO: processes outside of pods."""

    name: str
    qos: str = ""
    base: str = ""


class UsageSplit(Struct, frozen=True):
    """Non-batch CPU usage, in milli-CPU."""

    pods_non_be_milli: float
    hosts_non_be_milli: float
    system_milli: float


def pod_is_batch(pod: PodClass) -> bool:
    """True for a pod with QoS label BE or Kubernetes QoS BestEffort."""
    return pod.qos == QoSClass.BE or pod.kube_qos == KubeQoS.BEST_EFFORT


def host_is_batch(host: HostApplicationClass) -> bool:
    """True for a batch application below the best-effort group."""
    return host.qos == QoSClass.BE and host.base == KUBEPODS_BESTEFFORT


def reserved_milli(capacity_milli: int, allocatable_milli: int, annotated_milli: int = 0) -> int:
    """CPU reserved for the system, in milli-CPU: capacity - allocatable, or the node's reservation annotation if larger."""
    return max(capacity_milli - allocatable_milli, 0, annotated_milli)


def split_usage(
    node_used: float,
    reserved: float,
    pods: Sequence[PodClass],
    pod_used: Mapping[str, float],
    hosts: Sequence[HostApplicationClass] = (),
    host_used: Mapping[str, float] | None = None,
) -> UsageSplit:
    """Split the node's usage (all in milli-CPU). A pod with usage but without manifest counts as non-batch; an application
    without a sample is part of "system"."""
    batch = {pod.uid for pod in pods if pod_is_batch(pod)}
    pods_all = 0.0
    pods_non_be = 0.0
    for uid in sorted(pod_used):
        pods_all += pod_used[uid]
        if uid not in batch:
            pods_non_be += pod_used[uid]
    hosts_all = 0.0
    hosts_non_be = 0.0
    samples = host_used or {}
    for host in hosts:
        used = samples.get(host.name)
        if used is None:
            continue
        hosts_all += used
        if not host_is_batch(host):
            hosts_non_be += used
    system = max(node_used - pods_all - hosts_all, 0.0)
    return UsageSplit(
        pods_non_be_milli=pods_non_be, hosts_non_be_milli=hosts_non_be, system_milli=max(system, reserved)
    )


def suppress_milli(capacity_milli: int, threshold_percent: int, split: UsageSplit, min_percent: int | None = None) -> int:
    """CPU that batch work may use, in milli-CPU; negative if other usage exceeds the threshold."""
    left = (
        capacity_milli * threshold_percent // 100
        - int(split.pods_non_be_milli)
        - int(split.hosts_non_be_milli)
        - int(split.system_milli)
    )
    if min_percent is not None:
        left = max(left, capacity_milli * min_percent // 100)
    return left

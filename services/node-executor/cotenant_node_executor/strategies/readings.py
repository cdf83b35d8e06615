"""The newest figures of pods and their containers, as strategies read them from a snapshot.

In: the snapshot, a pod's view. Out: CPU usage in milli-CPU and the throttled part of periods, None where there is no figure;
page cache, and whether a group stalls for memory. A
machine that measures pods only (the simulated one) shows a container's figures as those of its pod, if it is the only one.
"""

from __future__ import annotations

from cotenant_node_executor.sampling.snapshot import GroupUsage, UsageSnapshot
from cotenant_node_executor.strategies.pod_view import PodView
from cotenant_node_executor.targets.interface import BESTEFFORT

STALL_PERCENT = 5
"""A group whose tasks waited for memory for so much of the last ten seconds is not reclaimed from."""
MIN_CACHE_BYTES = 16 * 1024**2
"""Less page cache is not worth a reclaim."""


def container_usages(snapshot: UsageSnapshot, pod: PodView) -> tuple[GroupUsage | None, ...]:
    """The usage of each of a pod's containers, in the order of its groups."""
    reading = snapshot.pods.get(pod.uid)
    if reading is None:
        return (None,) * (len(pod.groups) - 1)
    if not reading.containers and len(pod.groups) == 2:
        return (reading.usage,)
    found = {each.usage.group: each.usage for each in reading.containers}
    return tuple([found.get(group) for group in pod.groups[1:]])


def pod_cpu_milli(snapshot: UsageSnapshot, uid: str) -> int | None:
    """A pod's CPU usage."""
    reading = snapshot.pods.get(uid)
    return None if reading is None else reading.usage.cpu_milli


def best_effort_cpu_milli(snapshot: UsageSnapshot) -> int:
    """CPU usage of the best-effort group, host applications below it included; of its pods where only these are measured."""
    tier = snapshot.tiers.get(BESTEFFORT)
    if tier is not None and tier.cpu_milli is not None:
        return tier.cpu_milli
    return sum(pod.usage.cpu_milli or 0 for pod in snapshot.pods.values() if pod.tier == BESTEFFORT)


def page_cache_bytes(usage: GroupUsage) -> int:
    """A group's page cache beside its working set; 0 where it is not measured."""
    with_cache = usage.memory_with_page_cache_bytes
    return 0 if with_cache is None else max(with_cache - (usage.memory_bytes or 0), 0)


def stalls_for_memory(usage: GroupUsage | None, percent: int = STALL_PERCENT) -> bool:
    """Whether some task waited for memory for this share of the last ten seconds; a group without a figure does not stall."""
    pressure = usage.pressure.memory if usage is not None else None
    return pressure is not None and pressure.some.avg10 >= percent

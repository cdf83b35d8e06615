"""A service's sudden need for CPU, measured over a few hundredths of a second instead of the second of a sample.

In: the last sample, and the CPU counters of the burstable group and of each guaranteed pod, read every MEASURED_NS. Out: the
sample with the services' CPU as it is now, where they used more than in the sample by MIN_RISE_PERCENT of the node, twice in
a row: the smaller of the two counts, since requests come in bunches. What the system uses is taken from the sample, memory
and batch pods too; the burstable group's rise is shared out to its pods in proportion. It is meant for suppression alone:
windows and means are made of samples.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import PodUsage, Snapshot
from cotenant_node_executor.sampling.usage import Counter, group_milli
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import CgroupDriver, Stat
from cotenant_node_executor.targets.parse import parse_cpu_usage_ns

MEASURED_NS = 30_000_000
MIN_RISE_PERCENT = 10
BURSTABLE, BESTEFFORT = "burstable", "besteffort"


class Spikes:
    """Bound: one measurement under way."""

    def __init__(self, driver: CgroupDriver) -> None:
        self._driver = driver
        self._begun: dict[str, Counter] = {}
        self._former: dict[str, int] = {}
        """What the measurement before found, milli-CPU by group; empty where none ended just before this one began."""
        self.due_ns: int | None = None
        """When the measurement under way ends; None: there is none."""

    def begin(self, sample: Snapshot, now_ns: int, *, again: bool) -> None:
        """Begin to measure the services of a sample. `again`: a measurement has just ended."""
        if not again:
            self._former = {}
        self._begun = {group: found for group in _groups(sample) if (found := self._count(group, now_ns)) is not None}
        self.due_ns = now_ns + MEASURED_NS if self._begun else None

    def finish(self, sample: Snapshot, now_ns: int) -> Snapshot | None:
        """End the measurement. None where services use no more than in the sample."""
        begun, self._begun, self.due_ns = self._begun, {}, None
        measured: dict[str, int] = {}
        for group, counter in begun.items():
            now = self._count(group, now_ns)
            milli = group_milli(counter, now) if now is not None else None
            if milli is not None:
                measured[group] = milli
        former, self._former = self._former, measured
        both = {group: min(milli, former[group]) for group, milli in measured.items() if group in former}
        return with_services(sample, both, now_ns)

    def _count(self, group: str, now_ns: int) -> Counter | None:
        path = self._driver.stat_path(group, Stat.CPU_USAGE)
        content = read_file(path) if path is not None else None
        return Counter(parse_cpu_usage_ns(self._driver.version, content), now_ns) if content is not None else None


def with_services(sample: Snapshot, measured: Mapping[str, int], now_ns: int) -> Snapshot | None:
    """Return a sample with the services' CPU as measured, in milli-CPU by group; None where it rose too little. A group's rise
    is shared out to its pods in proportion to what they used, equally where they used nothing."""
    if sample.node.cpu_milli is None:
        return None
    pods, rise = dict(sample.pods), 0
    for group, milli in measured.items():
        own = {uid: pod.usage.cpu_milli or 0 for uid, pod in sample.pods.items() if _is_of(pod, group)}
        before = sum(own.values())
        if not own or milli <= before:
            continue
        rise += milli - before
        for uid, used in own.items():
            share = used * milli // before if before else milli // len(own)
            pods[uid] = replace(pods[uid], usage=replace(pods[uid].usage, cpu_milli=share))
    if rise * 100 < sample.node.cpu_capacity_milli * MIN_RISE_PERCENT:
        return None
    node = replace(sample.node, cpu_milli=sample.node.cpu_milli + rise)
    return replace(sample, monotonic_ns=now_ns, interval_ns=MEASURED_NS, node=node, pods=pods)


def _groups(sample: Snapshot) -> tuple[str, ...]:
    return (BURSTABLE, *(pod.usage.group for pod in sample.pods.values() if "/" not in pod.usage.group))


def _is_of(pod: PodUsage, group: str) -> bool:
    return pod.usage.group == group or (group == BURSTABLE and pod.tier == BURSTABLE)

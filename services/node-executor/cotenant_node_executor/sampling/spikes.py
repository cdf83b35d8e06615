"""Sudden CPU demand of services, measured over a few hundredths of a second instead of the second of a sample.

In: the last sample, and the CPU counter of all services together, read every MEASURED_NS: that of the burstable group, or,
where there are guaranteed pods, the node's subtree without the best-effort group. Out: the sample with the services' CPU as it
is now, if they used more than in the sample by MIN_RISE_PERCENT of the node, in both of the last two stretches: the smaller
of the two counts, since requests arrive in bursts. A rise by LARGE_RISE_PERCENT of the node in the last stretch alone counts
too, as no burst of short requests fills so much of all CPUs for so long. The system's usage is taken from the sample, memory
and batch pods too; the rise is divided among the services in proportion. It is for suppression alone: windows and means
consist of samples.
"""

from __future__ import annotations

from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.usage import CumulativeCounter, group_milli
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import ROOT_GROUP, CgroupDriver, Stat
from cotenant_node_executor.targets.parse import parse_cpu_usage_ns

MEASURED_NS = 25_000_000
MIN_RISE_PERCENT = 10
LARGE_RISE_PERCENT = 50
BURSTABLE, BESTEFFORT = "burstable", "besteffort"


class Spikes:
    """The services' CPU in the last two stretches of MEASURED_NS. Bound: one counter, two figures."""

    def __init__(self, driver: CgroupDriver) -> None:
        self._driver = driver
        self._guaranteed: bool | None = None
        """Whether there are guaranteed pods; None: nothing is measured."""
        self._last: CumulativeCounter | None = None
        self._milli: tuple[int, ...] = ()
        """Of the last two stretches, the newest last."""
        self.due_ns: int | None = None
        """When the counter is to be read; None: it is not."""

    def watch(self, sample: UsageSnapshot) -> None:
        """Measure the services of this sample from now on. Measurements of the same groups stay."""
        guaranteed = any("/" not in pod.usage.group for pod in sample.pods.values())
        if guaranteed != self._guaranteed:
            self._guaranteed, self._last, self._milli = guaranteed, None, ()
        if self.due_ns is None:
            self.due_ns = sample.monotonic_ns

    def stop(self) -> None:
        """Measure nothing."""
        self._guaranteed, self._last, self._milli, self.due_ns = None, None, (), None

    def read(self, now_ns: int) -> None:
        """End an interval and begin the next; if the counter cannot be read, start over."""
        counter = self._count(now_ns)
        milli = group_milli(self._last, counter) if counter is not None else None
        self._milli = (*self._milli[-1:], milli) if milli is not None else ()
        self._last, self.due_ns = counter, now_ns + MEASURED_NS

    def found(self, sample: UsageSnapshot, now_ns: int) -> UsageSnapshot | None:
        """Return the sample with the rise found in both stretches, or a large one in the last. None where services use no more
        than in the sample."""
        if not self._milli:
            return None
        if len(self._milli) == 2 and (found := with_services(sample, min(self._milli), now_ns)) is not None:
            return found
        return with_services(sample, self._milli[-1], now_ns, LARGE_RISE_PERCENT)

    def _count(self, now_ns: int) -> CumulativeCounter | None:
        if not self._guaranteed:
            value = self._value(BURSTABLE)
        else:
            whole, batch = self._value(ROOT_GROUP), self._value(BESTEFFORT)
            value = whole - batch if whole is not None and batch is not None else None
        return CumulativeCounter(value, now_ns) if value is not None else None

    def _value(self, group: str) -> int | None:
        path = self._driver.stat_path(group, Stat.CPU_USAGE)
        content = read_file(path) if path is not None else None
        return parse_cpu_usage_ns(self._driver.version, content) if content is not None else None


def with_services(
    sample: UsageSnapshot, milli: int, now_ns: int, least_percent: int = MIN_RISE_PERCENT
) -> UsageSnapshot | None:
    """Return a sample with the services' CPU as measured, in milli-CPU for all together; None where it rose by less than
    `least_percent` of the node. The rise is divided in proportion to the services' usage, equally if they used nothing."""
    services = {uid: pod.usage.cpu_milli or 0 for uid, pod in sample.pods.items() if pod.tier != BESTEFFORT}
    before = sum(services.values())
    rise = milli - before
    if sample.node.cpu_milli is None or not services:
        return None
    if rise <= 0 or rise * 100 < sample.node.cpu_capacity_milli * least_percent:
        return None
    pods = dict(sample.pods)
    for uid, used in services.items():
        share = used * milli // before if before else milli // len(services)
        pods[uid] = replace(pods[uid], usage=replace(pods[uid].usage, cpu_milli=share))
    node = replace(sample.node, cpu_milli=sample.node.cpu_milli + rise)
    return replace(sample, monotonic_ns=now_ns, interval_ns=MEASURED_NS, node=node, pods=pods)

"""Sudden CPU demand of services, measured over a few hundredths of a second instead of the second of a sample.

In: the last sample, and the CPU counter of all services together, read every MEASURED_NS: that of the burstable group, or,
where there are guaranteed pods, the node's subtree without the best-effort group. Out: the sample with the services' CPU as it
is now, if a span that ends now holds more CPU time than they used in the sample by SPIKE_NS of the whole node, RISE_PERCENT of
the node being allowed beside it:

    max over spans of (used - (sample + RISE_PERCENT of the node) x length)  >=  SPIKE_NS x node

So a rise by the whole node is a spike after 5 ms, by half of it after 11 ms, by a fifth after 36 ms; a few requests that
arrive together are none. The services' usage is that of the span with the largest excess, which begins where the spike began.
From half of the excess on, the counter is read every CONFIRMED_NS. The system's usage is taken from the sample, memory and
batch pods too; the rise is divided among the services in proportion. It is for suppression alone: windows and means consist of
samples.

Source: CUSUM, Page's test for a change of the mean; the spans make it independent of when the sample came.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.usage import CumulativeCounter, group_milli
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import ROOT_GROUP, CgroupDriver, Stat
from cotenant_node_executor.targets.parse import parse_cpu_usage_ns

MEASURED_NS, CONFIRMED_NS = 25_000_000, 10_000_000
RISE_PERCENT = 6
SPIKE_NS = 5_000_000
MOST_READINGS = 12
"""Spans begin at one of them: the last 0.1 to 0.3 s."""
BURSTABLE, BESTEFFORT = "burstable", "besteffort"


class Spikes:
    """The services' counter as it was last read. Bound: MOST_READINGS."""

    def __init__(self, driver: CgroupDriver) -> None:
        self._driver = driver
        self._guaranteed: bool | None = None
        """Whether there are guaranteed pods; None: nothing is measured."""
        self._readings: deque[CumulativeCounter] = deque(maxlen=MOST_READINGS)
        self.due_ns: int | None = None
        """When the counter is to be read; None: it is not."""

    def watch(self, sample: UsageSnapshot) -> None:
        """Measure the services of this sample from now on. Readings of the same groups stay."""
        guaranteed = any("/" not in pod.usage.group for pod in sample.pods.values())
        if guaranteed != self._guaranteed:
            self._guaranteed = guaranteed
            self._readings.clear()
        if self.due_ns is None:
            self.due_ns = sample.monotonic_ns

    def stop(self) -> None:
        """Measure nothing."""
        self._guaranteed, self.due_ns = None, None
        self._readings.clear()

    def read(self, sample: UsageSnapshot, now_ns: int) -> None:
        """Read the counter; if it cannot be read, or went backwards, start over."""
        counter, readings = self._count(now_ns), self._readings
        if counter is None or (readings and counter.value < readings[-1].value):
            readings.clear()
        if counter is not None:
            readings.append(counter)
        _, excess_percent = self._largest(sample)
        self.due_ns = now_ns + (CONFIRMED_NS if excess_percent >= 50 else MEASURED_NS)

    def found(self, sample: UsageSnapshot, now_ns: int) -> UsageSnapshot | None:
        """Return the sample with the services' CPU as it is now; None where it did not rise enough."""
        began, excess_percent = self._largest(sample)
        if began is None or excess_percent < 100:
            return None
        milli = group_milli(began, self._readings[-1])
        return with_services(sample, milli, now_ns) if milli is not None else None

    def _largest(self, sample: UsageSnapshot) -> tuple[CumulativeCounter | None, int]:
        """Where the span with the largest excess begins, and its excess in percent of a spike's."""
        began, largest = None, 0
        if len(self._readings) < 2:
            return began, largest
        capacity = sample.node.cpu_capacity_milli
        allowed = _services_milli(sample) + capacity * RISE_PERCENT // 100
        last = self._readings[-1]
        for reading in self._readings:
            excess = (last.value - reading.value) * 1000 - allowed * (last.at_ns - reading.at_ns)
            if excess > largest:
                began, largest = reading, excess
        return began, largest * 100 // (capacity * SPIKE_NS) if capacity else 0

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


def _services_milli(sample: UsageSnapshot) -> int:
    """The services' CPU in a sample."""
    return sum([pod.usage.cpu_milli or 0 for pod in sample.pods.values() if pod.tier != BESTEFFORT])


def with_services(sample: UsageSnapshot, milli: int, now_ns: int) -> UsageSnapshot | None:
    """Return a sample with the services' CPU as measured, in milli-CPU for all together; None where it rose by less than
    RISE_PERCENT of the node. The rise is divided in proportion to the services' usage, equally if they used nothing."""
    services = {uid: pod.usage.cpu_milli or 0 for uid, pod in sample.pods.items() if pod.tier != BESTEFFORT}
    before = sum(services.values())
    rise = milli - before
    if sample.node.cpu_milli is None or not services:
        return None
    if rise <= 0 or rise * 100 < sample.node.cpu_capacity_milli * RISE_PERCENT:
        return None
    pods = dict(sample.pods)
    for uid, used in services.items():
        share = used * milli // before if before else milli // len(services)
        pods[uid] = replace(pods[uid], usage=replace(pods[uid].usage, cpu_milli=share))
    node = replace(sample.node, cpu_milli=sample.node.cpu_milli + rise)
    return replace(sample, monotonic_ns=now_ns, interval_ns=MEASURED_NS, node=node, pods=pods)

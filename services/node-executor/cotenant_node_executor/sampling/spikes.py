"""Sudden CPU demand of services, measured over a few hundredths of a second instead of the second of a sample.

In: the last sample, and the CPU counter of all services together, read every MEASURED_NS: that of the burstable group, or,
where there are guaranteed pods, the node's subtree without the best-effort group. Out: the sample with the services' CPU as it
is now, if a span that ends now holds so much more CPU time than they used in the sample that their usual fluctuation does not
explain it, RISE_PERCENT of the node being allowed beside it:

    used - (sample + RISE_PERCENT of the node) x length  >=  node x min(max(LEAST_NS, DEVIATIONS x s x sqrt(length)), MOST_NS)

if a service waits for CPU meanwhile. Where none does, as they run before best-effort work, CERTAIN times max(...) is required,
which has no upper limit then: so clear a rise needs no other evidence.

s is the standard deviation of their CPU time, as a share of the node and for a length of 1 ns, by the differences between
successive readings, to which a usage that stays higher or lower adds nothing. It covers readings that no span reaches any
more (about MEMORY of them, 6 s), so that a rise does not hide itself. While fewer than FIRST are known, it is MOST_NS. A rise
of steady services by a tenth of the node is thus a spike after 50 ms, by a half after 6 ms; of services with a few large
requests, by a fifth after 47 ms, by a half after 16 ms.

The services' usage is that of the span with the largest excess, which begins where the spike began. From half of the excess
on, the counter is read every CONFIRMED_NS. The system's usage is taken from the sample, memory and batch pods too; the
rise is divided among the services in proportion. It is for suppression alone: windows and means consist of samples.

Source: CUSUM, Page's test for a change of the mean; the spans make it independent of when the sample came. The variance
by successive differences is von Neumann's.
"""

from __future__ import annotations

from collections import deque
from math import sqrt

from msgspec.structs import replace

from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.sampling.usage import CumulativeCounter, group_milli
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, ROOT_GROUP, CgroupDriver, Stat
from cotenant_node_executor.targets.parse import parse_cpu_usage_ns

MEASURED_NS, CONFIRMED_NS = 25_000_000, 10_000_000
RISE_PERCENT = 5
LEAST_NS, MOST_NS = 2_500_000, 7_000_000
DEVIATIONS = 3.5
CERTAIN = 2
MEMORY, FIRST = 256, 40
MOST_READINGS = 12
"""Spans begin at one of them: the last 0.1 to 0.3 s."""


class Fluctuation:
    """The variance of the services' CPU time for 1 ns: half the mean square of successive differences, then a moving mean."""

    def __init__(self) -> None:
        self._readings = 0
        self._variance = 0.0
        self._last: tuple[float, int] | None = None
        """CPUs used and length of the last reading."""

    def add(self, used_ns: int, length_ns: int) -> None:
        """Add one reading: the CPU time used over this length."""
        last, self._last = self._last, (used_ns / length_ns, length_ns)
        if last is None:
            return
        difference = used_ns / length_ns - last[0]
        self._readings = min(self._readings + 1, MEMORY)
        found = difference * difference / (1 / length_ns + 1 / last[1])
        self._variance += (found - self._variance) / self._readings

    def spike_ns(self, length_ns: int, capacity_milli: int, *, waits: bool) -> float:
        """The excess of CPU time that makes a span of this length a spike, if a service waits or none does."""
        most, least = (capacity_milli * each / 1000 for each in (MOST_NS, LEAST_NS))
        if self._readings < FIRST:
            return most if waits else CERTAIN * most
        unusual = max(least, DEVIATIONS * sqrt(self._variance * length_ns))
        return min(unusual, most) if waits else CERTAIN * unusual


class Spikes:
    """The services' counter as it was last read. Bound: MOST_READINGS."""

    def __init__(self, driver: CgroupDriver) -> None:
        self._driver = driver
        self._guaranteed: bool | None = None
        """Whether there are guaranteed pods; None: nothing is measured."""
        self._readings: deque[CumulativeCounter] = deque()
        self._fluctuation = Fluctuation()
        self.due_ns: int | None = None
        """When the counter is to be read; None: it is not."""
        self._paths: dict[str, str] = {}
        """Of the counters, by group: joining them costs as much as a reading."""
        self._used: tuple[UsageSnapshot | None, int] = (None, 0)
        """The services' CPU in the sample that was looked at last."""

    def watch(self, sample: UsageSnapshot) -> None:
        """Measure the services of this sample from now on. Readings of the same groups stay."""
        guaranteed = any("/" not in pod.usage.group for pod in sample.pods.values())
        if guaranteed != self._guaranteed:
            self._guaranteed = guaranteed
            self._forget()
        if self.due_ns is None:
            self.due_ns = sample.monotonic_ns

    def stop(self) -> None:
        """Measure nothing."""
        self._guaranteed, self.due_ns = None, None
        self._forget()

    def read(self, sample: UsageSnapshot, now_ns: int) -> None:
        """Read the counter; if it cannot be read, or went backwards, start over."""
        counter, readings = self._count(now_ns), self._readings
        if counter is None or (readings and counter.value < readings[-1].value):
            readings.clear()
        if counter is not None:
            readings.append(counter)
            self._leave()
        _, excess_percent = self._largest(sample, waits=True)
        self.due_ns = now_ns + (CONFIRMED_NS if excess_percent >= 50 else MEASURED_NS)

    def found(self, sample: UsageSnapshot, now_ns: int, *, waits: bool) -> UsageSnapshot | None:
        """Return the sample with the services' CPU as it is now; None where it did not rise enough. `waits`: whether a service
        waits for CPU."""
        began, excess_percent = self._largest(sample, waits=waits)
        if began is None or excess_percent < 100:
            return None
        milli = group_milli(began, self._readings[-1])
        return with_services(sample, milli, now_ns) if milli is not None else None

    def _largest(self, sample: UsageSnapshot, *, waits: bool) -> tuple[CumulativeCounter | None, int]:
        """Where the span with the largest excess begins, relative to a spike's of this length, and this in percent."""
        began, largest = None, 0.0
        capacity = sample.node.cpu_capacity_milli
        if len(self._readings) < 2 or not capacity:
            return began, 0
        if self._used[0] is not sample:
            self._used = sample, services_milli(sample)
        allowed = self._used[1] + capacity * RISE_PERCENT // 100
        last = self._readings[-1]
        for reading in self._readings:
            length = last.at_ns - reading.at_ns
            excess = last.value - reading.value - allowed * length / 1000
            if excess > 0 and (relative := excess / self._fluctuation.spike_ns(length, capacity, waits=waits)) > largest:
                began, largest = reading, relative
        return began, int(largest * 100)

    def _leave(self) -> None:
        """Drop the reading at which no span begins any more; what was used after it counts for the fluctuation."""
        readings = self._readings
        if len(readings) <= MOST_READINGS:
            return
        first = readings.popleft()
        length = readings[0].at_ns - first.at_ns
        if length > 0:
            self._fluctuation.add(readings[0].value - first.value, length)

    def _forget(self) -> None:
        self._readings.clear()
        self._fluctuation = Fluctuation()

    def _count(self, now_ns: int) -> CumulativeCounter | None:
        if not self._guaranteed:
            value = self._value(BURSTABLE)
        else:
            whole, batch = self._value(ROOT_GROUP), self._value(BESTEFFORT)
            value = whole - batch if whole is not None and batch is not None else None
        return CumulativeCounter(value, now_ns) if value is not None else None

    def _value(self, group: str) -> int | None:
        path = self._paths.get(group) or str(self._driver.stat_path(group, Stat.CPU_USAGE) or "")
        content = read_file(path) if path else None
        if content is None:
            self._paths.pop(group, None)
            return None
        self._paths[group] = path
        return parse_cpu_usage_ns(self._driver.version, content)


def services_milli(sample: UsageSnapshot) -> int:
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

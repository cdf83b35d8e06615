"""Usage messages: one per report period, built from the samples of that period.

In: snapshots, slow readings, the placed pods, what is wanted. Out: `UsageSample` with the series of node, system, pods and host
applications, and the newest slow readings. A pod's series ends with
the newest sample; pods missing from the newest snapshot, or not placed, are left out.
Bound: MAX_SAMPLES samples; while no message is taken the oldest samples are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from msgspec import Struct

from cotenant.api.objects.pod import Pod
from cotenant.domain.qos import priority_default, qos_default
from cotenant.events.node.usage import (
    HostApplicationUsage,
    NumaUsage,
    PodUsage,
    Pressure,
    ResctrlUsage,
    Series,
    UsageSample,
)
from cotenant.model.values import Value
from cotenant_node_executor.runtime.interface import PodToRun
from cotenant_node_executor.sampling.idle_pages import hot_bytes
from cotenant_node_executor.sampling.slow.readings import SlowReadings
from cotenant_node_executor.sampling.snapshot import GroupUsage, PressureSet, UsageSnapshot
from cotenant_node_executor.sampling.snapshot import PodSample as Reading
from cotenant_node_executor.sampling.wanted import SamplingOptions

MAX_SAMPLES = 120


_NOTHING_SLOW = SlowReadings()
_NOTHING_MORE = SamplingOptions()


class _Taken(Value, frozen=True):
    at: datetime
    snapshot: UsageSnapshot
    slow: SlowReadings = _NOTHING_SLOW


class _Published(Struct, frozen=True):
    """Pod usage computed from that many samples, cached for samples with the same readings of the same pods."""

    pods: Mapping[str, PodToRun]
    readings: Mapping[str, Reading]
    samples: int
    slow: SlowReadings
    messages: tuple[PodUsage, ...]


class UsageWindow:
    """Collects samples between two messages. `boot` identifies this incarnation of the executor."""

    def __init__(self, node: str, boot: str, *, sample_seconds: float, report_seconds: float) -> None:
        self._node = node
        self._boot = boot
        self._sample_ms = round(sample_seconds * 1000)
        self._period = timedelta(seconds=report_seconds)
        self._early = timedelta(milliseconds=self._sample_ms // 2)
        """Half a sample period: a message due within it does not wait for another sample."""
        self._taken: deque[_Taken] = deque(maxlen=MAX_SAMPLES)
        self._counter = 0
        self._classes: dict[str, tuple[Pod, tuple[str, str]]] = {}
        """Manifest, QoS and priority class by uid."""
        self._last: _Published | None = None
        self._due: datetime | None = None
        self._publish_from: datetime | None = None
        """Earliest time of publishing: half a sample period before the message is due."""

    def add(self, snapshot: UsageSnapshot, now: datetime, slow: SlowReadings | None = None) -> None:
        """Add a snapshot, and the newest readings of the slow collectors. The first one has no rates and is no sample; the
        first sample is published at once."""
        if snapshot.node.cpu_milli is None or snapshot.system.cpu_milli is None:
            return
        self._taken.append(_Taken(now, snapshot, slow or _NOTHING_SLOW))
        if self._due is None:
            self._set_due(now)

    @property
    def filled(self) -> bool:
        """Whether there is a sample to publish."""
        return bool(self._taken)

    @property
    def next_report(self) -> datetime | None:
        """The end of the current period; None before the first sample."""
        return self._due

    def due(self, now: datetime) -> bool:
        """Whether the period is over and there is something to publish."""
        return self._publish_from is not None and now >= self._publish_from and bool(self._taken)

    def _set_due(self, due: datetime) -> None:
        self._due, self._publish_from = due, due - self._early

    def _class_of(self, uid: str, pod: Pod, most: int) -> tuple[str, str]:
        known = self._classes.get(uid)
        if known is None or known[0] is not pod:
            if len(self._classes) > 4 * most:
                self._classes.clear()
            known = self._classes[uid] = (pod, (qos_default(pod).value, priority_default(pod).value))
        return known[1]

    def message(self, pods: Mapping[str, PodToRun], now: datetime, wanted: SamplingOptions = _NOTHING_MORE) -> UsageSample:
        """Return the message of the period that ends now, with what is wanted beside CPU and working set, and begin the next
        period."""
        taken = list(self._taken)
        newest = taken[-1]
        self._taken.clear()
        self._counter += 1
        # Periods follow one another without drift; after a pause they start from now.
        due = (self._due or now) + self._period
        self._set_due(due if due > now + self._early else now + self._period)
        return UsageSample(
            node=self._node,
            boot=self._boot,
            counter=self._counter,
            period_ms=self._sample_ms,
            offsets_ms=tuple([round((sample.at - newest.at).total_seconds() * 1000) for sample in taken]),
            node_usage=_node_series(taken, wanted),
            system_usage=Series(
                cpu_milli=tuple([sample.snapshot.system.cpu_milli or 0 for sample in taken]),
                memory_bytes=tuple([sample.snapshot.system.memory_bytes for sample in taken]),
            ),
            pressure=_pressure(newest.snapshot.node.pressure),
            pods=self._pods(pods, taken, wanted),
            host_applications=_applications(taken, wanted),
            numa=tuple(
                NumaUsage(node=each.node, cpu_milli=each.cpu_milli, memory_bytes=each.memory_bytes)
                for each in newest.slow.numa
            ),
            resctrl=tuple(
                ResctrlUsage(
                    group=each.group,
                    llc_bytes=each.llc_bytes,
                    memory_bandwidth_bytes_per_second=each.bandwidth_bytes_per_second,
                )
                for each in newest.slow.resctrl
            ),
        )

    def _pods(self, pods: Mapping[str, PodToRun], taken: list[_Taken], wanted: SamplingOptions) -> tuple[PodUsage, ...]:
        """Usage of each pod in the newest sample; reused from the last message where as many samples had the same readings."""
        samples = [sample.snapshot.pods for sample in reversed(taken)]
        newest = samples[0]
        runs = [(next(same), 1 + sum(1 for _ in same)) for _, same in groupby(samples, id)]
        alike = len(runs) == 1
        last, slow = self._last, taken[-1].slow
        if (
            alike
            and last is not None
            and last.readings is newest
            and last.pods is pods
            and last.samples == len(taken)
            and last.slow is slow
        ):
            return last.messages
        cold = slow.cold.pods if slow.cold is not None else {}
        messages: list[PodUsage] = []
        for uid in sorted(newest):
            to_run, usage = pods.get(uid), newest[uid].usage
            if to_run is None or usage.cpu_milli is None:
                continue
            qos, priority = self._class_of(uid, to_run.pod, len(pods))
            metadata, ratio = to_run.pod.metadata, usage.throttled_ratio
            counted = slow.cpi.get(uid)
            last_of_it = PodUsage(
                namespace=metadata.namespace,
                name=metadata.name,
                uid=uid,
                qos=qos,
                priority=priority,
                series=_series(uid, runs, wanted, cold.get(uid)),
                throttled_permille=-1 if ratio is None else round(ratio * 1000),
                pressure=_pressure(usage.pressure),
                cycles=round(counted.cycles) if counted is not None else 0,
                instructions=round(counted.instructions) if counted is not None else 0,
            )
            messages.append(last_of_it)
        self._last = _Published(pods, newest, len(taken), slow, tuple(messages)) if alike else None
        return tuple(messages)


def _series(
    uid: str, runs: Sequence[tuple[Mapping[str, Reading], int]], wanted: SamplingOptions, cold_bytes: int | None
) -> Series:
    """A pod's contiguous series that ends with the newest sample; `runs`: readings, and how many samples have them, newest
    first."""
    found: list[GroupUsage] = []
    for readings, count in runs:
        reading = readings.get(uid)
        if reading is None or reading.usage.cpu_milli is None:
            break
        found += (reading.usage,) * count
    return _series_of(found[::-1], wanted, cold_bytes)


def _series_of(usages: Sequence[GroupUsage], wanted: SamplingOptions, cold_bytes: int | None) -> Series:
    """The series of one group, oldest first."""
    memory = [usage.memory_bytes or 0 for usage in usages]
    cpu = tuple([usage.cpu_milli or 0 for usage in usages])
    if not wanted.page_cache:
        return Series(cpu_milli=cpu, memory_bytes=tuple(memory))
    with_page_cache = [usage.memory_with_page_cache_bytes or 0 for usage in usages]
    return Series(
        cpu_milli=cpu,
        memory_bytes=tuple(memory),
        page_cache_bytes=_page_cache(memory, with_page_cache),
        cold_bytes=_cold(with_page_cache, wanted, cold_bytes),
    )


def _node_series(taken: Sequence[_Taken], wanted: SamplingOptions) -> Series:
    nodes = [sample.snapshot.node for sample in taken]
    cold = taken[-1].slow.cold
    memory = [node.memory_bytes for node in nodes]
    with_page_cache = [node.memory_with_page_cache_bytes for node in nodes] if wanted.page_cache else []
    return Series(
        cpu_milli=tuple([node.cpu_milli or 0 for node in nodes]),
        memory_bytes=tuple(memory),
        page_cache_bytes=_page_cache(memory, with_page_cache) if wanted.page_cache else (),
        cold_bytes=_cold(with_page_cache, wanted, cold.node_bytes if cold is not None else None),
    )


def _page_cache(memory: Sequence[int], with_page_cache: Sequence[int]) -> tuple[int, ...]:
    """Usage beyond the working set; 0 where two reads are inconsistent."""
    return tuple([max(whole - part, 0) for part, whole in zip(memory, with_page_cache, strict=True)])


def _cold(with_page_cache: Sequence[int], wanted: SamplingOptions, cold_bytes: int | None) -> tuple[int, ...]:
    """The last reading of cold memory beside each sample; nothing where it is not wanted, or not known."""
    if not wanted.cold_memory or cold_bytes is None:
        return ()
    return tuple([whole - hot_bytes(whole, cold_bytes) for whole in with_page_cache])


def _applications(taken: Sequence[_Taken], wanted: SamplingOptions) -> tuple[HostApplicationUsage, ...]:
    """Usage of each wanted application in the newest sample, over the samples without a gap before it."""
    cold = taken[-1].slow.cold
    messages: list[HostApplicationUsage] = []
    for application in wanted.host_applications:
        found: list[GroupUsage] = []
        for sample in reversed(taken):
            reading = sample.snapshot.host_applications.get(application.name)
            if reading is None or reading.usage.cpu_milli is None:
                break
            found.append(reading.usage)
        if found:
            cold_bytes = cold.applications.get(application.name) if cold is not None else None
            messages.append(
                HostApplicationUsage(
                    name=application.name,
                    qos=application.qos,
                    priority=application.priority,
                    series=_series_of(found[::-1], wanted, cold_bytes),
                )
            )
    return tuple(messages)


_UNKNOWN = Pressure(cpu_some=-1, memory_some=-1, memory_full=-1, io_some=-1, io_full=-1)


def _pressure(found: PressureSet) -> Pressure:
    cpu, memory, io = found.cpu, found.memory, found.io
    if cpu is None and memory is None and io is None:
        return _UNKNOWN
    return Pressure(
        cpu_some=_hundredths(cpu.some.avg10) if cpu is not None else -1,
        memory_some=_hundredths(memory.some.avg10) if memory is not None else -1,
        memory_full=_hundredths(memory.full.avg10) if memory is not None and memory.full_supported else -1,
        io_some=_hundredths(io.some.avg10) if io is not None else -1,
        io_full=_hundredths(io.full.avg10) if io is not None and io.full_supported else -1,
    )


def _hundredths(percent: float) -> int:
    return round(percent * 100)

"""Urgent triggers between samples: services that wait for CPU, a node that stalls on memory.

In: samples, and PSI triggers on the pressure files of services (the burstable group, each guaranteed pod) and of the node's
memory. Out: a spike of the services' CPU (`spikes`); that a sample is wanted now. While best-effort pods run beside services
and suppression is on, the services' CPU is measured all the time, by one counter or two: when a trigger fires, their
recent usage is known, and for FOLLOWED_NS a smaller rise is a spike than while no service waits. Whether one
waits is read with each measurement too (`stalls`), as the kernel checks its triggers every 50 ms only. Without
pressure files nothing is measured, and samples are taken every second as usual.

Bounds: a reading of at most two files every MEASURED_NS (CONFIRMED_NS while the services' usage rises), and of
`stalls.MOST_FILES`; an early sample at most every SAMPLE_AFTER_NS.
"""

from __future__ import annotations

from pathlib import Path

from cotenant_node_executor.sampling.pressure.pressure_triggers import PressureTriggers, Trigger
from cotenant_node_executor.sampling.pressure.stalls import Stalls
from cotenant_node_executor.sampling.snapshot import TriggerCheck, UsageSnapshot
from cotenant_node_executor.sampling.spikes import Spikes
from cotenant_node_executor.targets.interface import BESTEFFORT, BURSTABLE, CgroupDriver, Stat

WINDOW_US = 500_000
"""The shortest that the kernel accepts; it checks every tenth of it."""
FOLLOWED_NS = WINDOW_US * 1000 + 100_000_000
"""By then a trigger has fired again if services still wait."""
CPU_TRIGGER = Trigger(stall_us=5_000, window_us=WINDOW_US)
MEMORY_TRIGGER = Trigger(stall_us=25_000, window_us=WINDOW_US)
NODE_MEMORY = Path("/proc/pressure/memory")
SAMPLE_AFTER_NS = 200_000_000


class Urgency:
    """Of one node. `group_pressure`: whether groups have pressure files (the capability "psi.group")."""

    def __init__(self, driver: CgroupDriver, *, group_pressure: bool, node_memory: Path = NODE_MEMORY) -> None:
        self._driver = driver
        self._group_pressure = group_pressure
        self._memory = str(node_memory)
        self._triggers = PressureTriggers()
        self._spikes = Spikes(driver)
        self._stalls = Stalls(CPU_TRIGGER.stall_us, WINDOW_US * 1000)
        self._sample: UsageSnapshot | None = None
        self._groups: tuple[str, ...] | None = None
        self._followed_until_ns = 0
        self.follows_spikes = True
        """Whether spikes matter; otherwise they are not measured. Effective from the next sample on."""
        self.wants_sample = False
        """The node stalls on memory, and the last sample is not new."""
        self.spike: UsageSnapshot | None = None
        """The last sample with the services' CPU as measured since; None where it did not rise."""

    def fileno(self) -> int:
        """A descriptor that is readable when something became urgent."""
        return self._triggers.fileno()

    def close(self) -> None:
        """Remove all triggers."""
        self._spikes.stop()
        self._stalls.watch(())
        self._triggers.close()

    def sampled(self, sample: UsageSnapshot) -> None:
        """Take a sample, which covers earlier urgent conditions."""
        self._sample, self.spike, self.wants_sample = sample, None, False
        groups: tuple[str, ...] = ()
        if self.follows_spikes and self._group_pressure and any(pod.tier == BESTEFFORT for pod in sample.pods.values()):
            groups = (BURSTABLE, *(pod.usage.group for pod in sample.pods.values() if "/" not in pod.usage.group))
            self._spikes.watch(sample)
        else:
            self._spikes.stop()
        if groups != self._groups:
            self._groups = groups
            self._watch(groups)

    def look(self, now_ns: int) -> TriggerCheck:
        """Check which triggers have fired, and read the services' counter when due."""
        fired, sample = self._triggers.fired(), self._sample
        if sample is None:
            return TriggerCheck()
        if self._memory in fired and now_ns - sample.monotonic_ns >= SAMPLE_AFTER_NS:
            self.wants_sample = True
        services_wait = bool(fired - {self._memory})
        if services_wait:
            self._followed_until_ns = now_ns + FOLLOWED_NS
        due = self._spikes.due_ns
        measured = due is not None and now_ns >= due
        if measured:
            self._spikes.read(self.spike or sample, now_ns)
            services_wait = self._stalls.found(now_ns) or services_wait
        found = None
        if services_wait or measured:
            waits = services_wait or now_ns < self._followed_until_ns
            found = self._spikes.found(self.spike or sample, now_ns, waits=waits)
            self.spike = found or self.spike
        again = None if self._spikes.due_ns is None else max(0.0, (self._spikes.due_ns - now_ns) / 1e9)
        return TriggerCheck(found is not None or self.wants_sample, again)

    def _watch(self, groups: tuple[str, ...]) -> None:
        files = [self._driver.stat_path(group, Stat.CPU_PRESSURE) for group in groups]
        wanted = {str(path): CPU_TRIGGER for path in files if path is not None}
        self._stalls.watch([*wanted])
        self._triggers.watch({**wanted, self._memory: MEMORY_TRIGGER})

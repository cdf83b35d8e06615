"""The slow collectors: which exist, and when each is due.

In: the requested readings, the time. Out: the newest readings and facts. A collector that has nothing to read is listed in
``unavailable``. Nothing here may run in the main thread: reading DAMON takes seconds.

| collector | every |
|---|---|
| the machine's facts | 60 s |
| cold memory, while requested | 5 s (kidled), 300 s (page_idle), 60 s (DAMON) |
| cycles and instructions | 10 s of 60 s |
| resctrl | 10 s |
| NUMA nodes | 15 s |
| stalls of containers | 10 s |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from cotenant_node_executor.sampling.machine import DISKS, MachineReader
from cotenant_node_executor.sampling.slow import cpi, numa, resctrl, stalls
from cotenant_node_executor.sampling.slow.cold_memory import NO_WAY, Method, cold_memory_ways, open_cold_memory
from cotenant_node_executor.sampling.slow.readings import (
    COLD_MEMORY,
    CPI,
    FACTS,
    NUMA,
    RESCTRL,
    STALLS,
    Asked,
    Collected,
    CpiReading,
    MachineFacts,
    SlowReadings,
    Unavailable,
)
from cotenant_node_executor.targets.interface import CgroupDriver

logger = logging.getLogger(__name__)

T = TypeVar("T")
FACTS_SECONDS = 60.0
FOREVER = float("inf")


class SlowCollectors:
    """All of one machine; ``readings`` and ``facts`` are replaced as a whole, never changed."""

    def __init__(
        self,
        driver: CgroupDriver,
        reader: MachineReader,
        *,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        events: tuple[cpi.Event, cpi.Event] = (cpi.CYCLES, cpi.INSTRUCTIONS),
    ) -> None:
        self._driver, self._reader = driver, reader
        self._proc, self._sys = proc, sys
        self.readings = SlowReadings()
        self.facts: MachineFacts | None = None
        self._unavailable: dict[str, str] = {}
        self._node_of_cpu: dict[int, int] = {}
        self._cold: Method | None = None
        self._cold_asked = False
        self._ways = cold_memory_ways(sys)
        if not self._ways:
            self._lacks(COLD_MEMORY, NO_WAY)
        self._counters = self._opened(CPI, lambda: cpi.Counters(driver, sys, events))
        self._counting = False
        self._resctrl = self._opened(RESCTRL, lambda: resctrl.Resctrl(sys))
        self._numa: numa.NumaReader | None = None
        self._due = {COLD_MEMORY: FOREVER, CPI: 0.0, RESCTRL: 0.0, NUMA: 0.0, STALLS: 0.0, FACTS: 0.0}

    def _opened(self, name: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except Unavailable as error:
            self._lacks(name, str(error))
            return None

    def _lacks(self, name: str, why: str) -> None:
        if self._unavailable.get(name) != why:
            self._unavailable[name] = why
            logger.info("%s: not measured here: %s", name, why)

    @property
    def next_due(self) -> float:
        """When a collector is due next, in seconds of the clock that `round` is called with."""
        return min(self._due.values())

    def round(self, asked: Asked, now: float) -> None:
        """Run due collectors. Raises nothing: a collector that fails is skipped until it is due again."""
        self._ask_for_cold(asked.cold_memory, now)
        for name, run in (
            (FACTS, self._read_facts),
            (COLD_MEMORY, self._read_cold),
            (CPI, self._count),
            (RESCTRL, self._read_resctrl),
            (NUMA, self._read_numa),
            (STALLS, self._read_stalls),
        ):
            if now >= self._due[name]:
                try:
                    self._due[name] = now + run(asked, now)
                    self._count_outcome(name, succeeded=True)
                except (OSError, ValueError, Unavailable) as error:
                    self._count_outcome(name, succeeded=False)
                    self._lacks(name, str(error))
                    self._due[name] = now + FACTS_SECONDS
        if self.readings.unavailable != self._unavailable:
            self._publish(unavailable=dict(self._unavailable))
            self._due[FACTS] = now

    def _publish(self, **changes: object) -> None:
        self.readings = msgspec.structs.replace(self.readings, **changes)

    def _count_outcome(self, name: str, *, succeeded: bool) -> None:
        if name in {FACTS, DISKS} or (name == NUMA and self._numa is not None):
            before = self.readings.collected.get(name, Collected())
            now = Collected(before.succeeded + succeeded, before.failed + (not succeeded))
            self._publish(collected={**self.readings.collected, name: now})

    def _ask_for_cold(self, asked: bool, now: float) -> None:
        """Start or stop measuring cold memory. Without a request nothing is probed: a probe would switch a scan on."""
        if asked == self._cold_asked or not self._ways:
            return
        self._cold_asked = asked
        self._end_cold()
        self._unavailable.pop(COLD_MEMORY, None)
        self._due[COLD_MEMORY] = now if asked else FOREVER

    def _end_cold(self) -> None:
        cold, self._cold = self._cold, None
        self._publish(cold=None)
        if cold is not None:
            cold.close()

    def _read_facts(self, _: Asked, __: float) -> float:
        topology, state = self._reader.read()
        self._count_outcome(DISKS, succeeded=DISKS not in topology.unavailable)
        topology = msgspec.structs.replace(topology, unavailable={**topology.unavailable, **self._unavailable})
        facts = MachineFacts(topology, state)
        if facts != self.facts:
            self.facts = facts
            nodes = {cpu.cpu: cpu.node for cpu in topology.cpus}
            if nodes != self._node_of_cpu or self._numa is None:
                self._node_of_cpu = nodes
                self._numa = self._opened(NUMA, lambda: numa.NumaReader(self._driver, self._proc, self._sys, nodes))
        return FACTS_SECONDS

    def _read_cold(self, asked: Asked, _: float) -> float:
        if self._cold is None:
            self._cold = open_cold_memory(self._driver, self._proc, self._sys)
        try:
            reading = self._cold.read(asked)
        except OSError:
            self._end_cold()  # another program has taken over the kernel's scan: it is tried again
            raise
        self._unavailable.pop(COLD_MEMORY, None)
        if reading is not None:
            self._publish(cold=reading)
        return self._cold.seconds

    def _count(self, asked: Asked, _: float) -> float:
        if self._counters is None:
            return FOREVER
        if self._counting:
            self._counting = False
            counted = self._counters.end()
            groups = {group for group in asked.containers if group in self.readings.container_cpi}
            kept = {group: self.readings.container_cpi[group] for group in groups}
            fresh = {group: reading for group, reading in counted.items() if group in asked.containers}
            self._publish(
                cpi={**self._current(asked), **cpi.by_pod(asked, counted)}, container_cpi={**kept, **fresh}
            )
            return cpi.PERIOD_SECONDS - cpi.WINDOW_SECONDS
        try:
            self._counters.begin(asked, tuple(sorted(self._node_of_cpu)))
        except Unavailable:
            self._counters = None
            raise
        self._counting = True
        return cpi.WINDOW_SECONDS

    def _current(self, asked: Asked) -> dict[str, CpiReading]:
        """The last readings of pods that still exist."""
        there = {uid for uid, _ in asked.pods}
        return {uid: reading for uid, reading in self.readings.cpi.items() if uid in there}

    def _read_resctrl(self, _: Asked, now: float) -> float:
        if self._resctrl is None:
            return FOREVER
        self._publish(resctrl=self._resctrl.read(now))
        return resctrl.SECONDS

    def _read_numa(self, asked: Asked, now: float) -> float:
        if self._numa is not None and (found := self._numa.read(round(now * 1e9), asked)):
            self._publish(numa=found)
        return numa.SECONDS

    def _read_stalls(self, asked: Asked, _: float) -> float:
        found = stalls.read(self._driver, asked)
        if found or self.readings.stalls:
            self._publish(stalls=found)
        return stalls.SECONDS

    def close(self) -> None:
        """Restore the kernel's settings."""
        self._end_cold()
        if self._counters is not None:
            self._counters.close()


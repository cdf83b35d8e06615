"""Stalled time of containers: the pressure files of their control groups.

In: the groups of containers. Out: their averages, by group. Those of pods are read every second, as strategies go by them;
those of containers serve dashboards only. A group that has gone, or has no such file, is left out.
"""

from __future__ import annotations

from cotenant_node_executor.sampling.counters import counter_files, read_pressures
from cotenant_node_executor.sampling.slow.readings import Asked
from cotenant_node_executor.sampling.snapshot import PressureSet
from cotenant_node_executor.targets.interface import CgroupDriver

SECONDS = 10.0
_NONE = PressureSet()


def read(driver: CgroupDriver, asked: Asked) -> dict[str, PressureSet]:
    """Return the stalls of each container. Raises nothing for a single one."""
    found: dict[str, PressureSet] = {}
    for group in asked.containers:
        try:
            pressure = read_pressures(counter_files(driver.stat_path, group))
        except (OSError, ValueError):
            continue
        if pressure != _NONE:
            found[group] = pressure
    return found

"""How long writes take: each that the kernel took or refused is counted once, in the bound that it does not exceed."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from cotenant_node_executor.targets.cgroup.durations import BOUNDS_MS, FAILED, SUCCEEDED, Histogram
from cotenant_node_executor.targets.cgroup.knobs import probe
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.cgroup.writer import Writer
from cotenant_node_executor.targets.interface import CgroupVersion, Knob

POD = "besteffort/poda"


@pytest.mark.parametrize(
    ("milliseconds", "bound"), [(0.0, 0), (0.01, 0), (0.0101, 1), (0.04, 1), (BOUNDS_MS[-1], 7), (BOUNDS_MS[-1] + 1, 8)]
)
def test_a_write_counts_in_the_smallest_bound_that_it_does_not_exceed(milliseconds: float, bound: int) -> None:
    found = Histogram()
    found.add(milliseconds)
    assert found.counts == [int(each == bound) for each in range(len(BOUNDS_MS) + 1)]
    assert found.sum_ms == milliseconds


def test_writes_are_counted_by_attribute_and_outcome_and_values_in_force_are_not(tmp_path: Path) -> None:
    driver = SandboxDriver(tmp_path, "node-1", version=CgroupVersion.V2, cpus=(0, 1))
    driver.create(POD)
    ticks = count(0, 50_000)
    writer = Writer(driver, probe(driver), clock_ns=lambda: next(ticks))
    for _ in range(2):
        writer.apply({(POD, Knob.CPU_QUOTA): "20000"})
    writer.apply({(POD, Knob.CPU_QUOTA): "20000", (POD, Knob.CPU_BURST): "30000"})
    assert writer.durations == {
        (Knob.CPU_QUOTA, SUCCEEDED): Histogram([0, 0, 1, 0, 0, 0, 0, 0, 0], 0.05),
        (Knob.CPU_BURST, FAILED): Histogram([0, 0, 1, 0, 0, 0, 0, 0, 0], 0.05),
    }

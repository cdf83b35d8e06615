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


class CountingDriver(SandboxDriver):
    """Counts what is read."""

    reads = 0

    def read(self, group: str, knob: Knob) -> str | None:
        self.reads += 1
        return super().read(group, knob)


class Clock:
    """Monotonic time that the test moves, in seconds."""

    seconds = 1

    def __call__(self) -> int:
        return self.seconds * 1_000_000_000


def test_values_that_are_all_confirmed_are_looked_at_again_after_a_minute(tmp_path: Path) -> None:
    driver, clock = CountingDriver(tmp_path, "node-1", version=CgroupVersion.V2, cpus=(0, 1)), Clock()
    driver.create(POD)
    writer = Writer(driver, probe(driver), clock_ns=clock)
    values = {(POD, Knob.CPU_QUOTA): "20000", (POD, Knob.MEMORY_LIMIT): "4096"}
    assert len(writer.apply(values).written) == 2
    clock.seconds += 20
    writer.apply(values)
    driver.write(POD, Knob.CPU_QUOTA, "30000")
    driver.reads = 0
    clock.seconds = 60
    report = writer.apply(values)
    assert (report.unchanged, report.written, driver.reads) == (2, (), 0)
    clock.seconds = 61
    report = writer.apply(values)
    assert [(each.attribute, each.old, each.new) for each in report.written] == [(Knob.CPU_QUOTA, "30000", "20000")]
    assert driver.read(POD, Knob.CPU_QUOTA) == "20000"


def test_another_map_and_a_group_that_was_made_again_are_looked_through_at_once(tmp_path: Path) -> None:
    driver, clock = CountingDriver(tmp_path, "node-1", version=CgroupVersion.V2, cpus=(0, 1)), Clock()
    driver.create(POD)
    writer = Writer(driver, probe(driver), clock_ns=clock)
    values = {(POD, Knob.CPU_QUOTA): "20000"}
    for _ in range(2):
        writer.apply(values)
    assert writer.apply({**values, (POD, Knob.MEMORY_LIMIT): "4096"}).written != ()
    assert writer.apply(dict(values)).unchanged == 1
    driver.remove(POD)
    driver.create(POD)
    writer.forget(POD)
    assert [each.new for each in writer.apply(values).written] == ["20000"]


def test_a_group_that_is_missing_is_looked_for_in_every_cycle(tmp_path: Path) -> None:
    driver, clock = CountingDriver(tmp_path, "node-1", version=CgroupVersion.V2, cpus=(0, 1)), Clock()
    driver.create(POD)
    writer = Writer(driver, probe(driver), clock_ns=clock)
    values = {(POD, Knob.CPU_QUOTA): "20000", ("besteffort/podb", Knob.CPU_QUOTA): "30000"}
    for _ in range(3):
        assert writer.apply(values).skipped == 1
    driver.create("besteffort/podb")
    assert [each.new for each in writer.apply(values).written] == ["30000"]

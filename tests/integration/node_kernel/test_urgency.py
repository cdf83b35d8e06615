"""Pressure triggers on this kernel: by the kernel itself where it lets, by looks at the files where it does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from cotenant_node_executor.sampling.pressure.pressure_triggers import PressureTriggers, Trigger
from cotenant_node_executor.sampling.sampler import Sampler
from cotenant_node_executor.sampling.urgency import CPU_TRIGGER, Urgency
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, NodeCapabilities, Stat
from tests.integration.node_kernel.waiting import until

Start = Callable[[str, str], int]
BURN = "while :; do :; done"
SERVICE, BATCH = "burstable/podweb/main", "besteffort/podjob/main"


@pytest.fixture
def triggers(kernel_driver: CgroupDriver, capabilities: NodeCapabilities) -> Iterator[PressureTriggers]:
    if not capabilities.supports("psi.group"):
        pytest.skip("no pressure of groups")
    made = PressureTriggers()
    yield made
    made.close()


def pressure_file(driver: CgroupDriver, group: str) -> str:
    driver.create(group)
    path = driver.stat_path(group, Stat.CPU_PRESSURE)
    assert path is not None
    return str(path)


def crowd(start: Start, group: str) -> None:
    """More work than one CPU can do, on one CPU."""
    cpu = min(os.sched_getaffinity(0))
    for _ in range(3):
        start(group, f"taskset -p -c {cpu} $$ > /dev/null; {BURN}")


def test_a_trigger_fires_while_tasks_of_the_group_wait_and_not_for_another_group(
    kernel_driver: CgroupDriver, triggers: PressureTriggers, start: Start
) -> None:
    crowded, quiet = pressure_file(kernel_driver, "burstable"), pressure_file(kernel_driver, "besteffort")
    triggers.watch({crowded: CPU_TRIGGER, quiet: CPU_TRIGGER})
    assert triggers.refused == {}
    crowd(start, SERVICE)
    assert until(lambda: crowded in triggers.fired())
    assert until(lambda: triggers.fired() == {crowded})


def test_a_file_that_is_not_there_is_refused_and_the_others_are_watched(
    kernel_driver: CgroupDriver, triggers: PressureTriggers
) -> None:
    there = pressure_file(kernel_driver, "burstable")
    triggers.watch({there: CPU_TRIGGER, f"{there}.nowhere": CPU_TRIGGER})
    assert set(triggers.refused) == {f"{there}.nowhere"}
    triggers.watch({})
    assert triggers.refused == {}


def test_a_group_that_goes_takes_its_trigger_with_it(kernel_driver: CgroupDriver, triggers: PressureTriggers) -> None:
    gone, there = pressure_file(kernel_driver, "podgone"), "/proc/pressure/memory"
    triggers.watch({gone: CPU_TRIGGER, there: Trigger(stall_us=400_000, window_us=500_000)})
    kernel_driver.remove("podgone")
    triggers.watch({there: Trigger(stall_us=400_000, window_us=500_000)})
    assert triggers.refused == {}
    assert gone not in triggers.fired()


def test_on_cgroup_v2_with_every_right_the_kernel_itself_watches(
    kernel_driver: CgroupDriver, capabilities: NodeCapabilities, triggers: PressureTriggers
) -> None:
    if capabilities.version is not CgroupVersion.V2:
        pytest.skip("this machine's controllers are on cgroup v1")
    triggers.watch({pressure_file(kernel_driver, "burstable"): CPU_TRIGGER, "/proc/pressure/memory": CPU_TRIGGER})
    assert triggers.polled == frozenset()


def test_a_services_spike_is_seen_long_before_the_next_sample(
    kernel_driver: CgroupDriver, capabilities: NodeCapabilities, start: Start
) -> None:
    if not capabilities.supports("psi.group"):
        pytest.skip("no pressure of groups")
    start(BATCH, "exec sleep 600")
    start(SERVICE, "exec sleep 600")
    urgency = Urgency(kernel_driver, group_pressure=True)
    sampler = Sampler(kernel_driver, group_pressure=True)

    def has_spiked() -> bool:
        # A look may also want a cycle because this machine stalls for memory.
        return urgency.look(time.monotonic_ns()).cycle and urgency.spike is not None

    try:
        sampler.snapshot(time.monotonic_ns())
        assert until(lambda: sampler.snapshot(time.monotonic_ns()).node.cpu_milli is not None)
        urgency.sampled(sampler.snapshot(time.monotonic_ns()))
        crowd(start, SERVICE)
        assert until(has_spiked)
    finally:
        urgency.close()
    assert urgency.spike is not None
    assert (urgency.spike.pods["web"].usage.cpu_milli or 0) > 0

"""A driver makes, fills, empties and removes groups, below its own root alone."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, InvalidValueError, Knob, NodeCapabilities
from tests.integration.node_kernel.waiting import own_base, until

Start = Callable[[str, str], int]
CONTAINER = "besteffort/poda/main"


def test_a_group_is_made_with_the_groups_above_it_and_removed_with_those_below(driver: CgroupDriver) -> None:
    driver.create(CONTAINER)
    assert driver.groups() == ["besteffort", "besteffort/poda", CONTAINER]
    driver.create(CONTAINER)

    driver.remove("besteffort/poda")

    assert driver.groups() == ["besteffort"] == driver.rescan()
    assert not driver.exists("besteffort/poda")
    assert driver.read("besteffort/poda", Knob.CPU_QUOTA) is None


@pytest.mark.parametrize("group", ["..", "a/../..", "/etc", "a//b"])
def test_a_group_outside_the_own_root_is_refused(driver: CgroupDriver, group: str) -> None:
    with pytest.raises(InvalidValueError, match="relative path"):
        driver.create(group)
    with pytest.raises(InvalidValueError, match="the executor's root"):
        driver.remove("")


def test_a_process_enters_every_hierarchy_and_its_children_follow(driver: CgroupDriver, start: Start) -> None:
    pid = start(CONTAINER, "sleep 60 & wait")

    def both() -> bool:
        return len(driver.pids(CONTAINER)) == 2

    assert until(both)
    assert pid in driver.pids(CONTAINER)
    assert driver.pids("") == driver.pids(CONTAINER)
    if not driver.sandbox:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        inside = [line for line in lines if line.endswith(f"{driver.root_group}/{CONTAINER}")]
        assert len(inside) >= len(driver.procs_paths(CONTAINER))


def test_a_group_with_processes_is_busy_until_they_are_killed(driver: CgroupDriver, start: Start) -> None:
    pid = start(CONTAINER, "sleep 60 & wait")
    with pytest.raises(OSError, match="busy") as refusal:
        driver.remove(CONTAINER)
    assert refusal.value.errno == errno.EBUSY
    assert not driver.close()

    assert pid in driver.kill("besteffort")

    assert until(lambda: not driver.pids("besteffort"))
    driver.remove("besteffort")
    assert driver.groups() == []


def test_nobody_outside_the_group_is_killed(driver: CgroupDriver, start: Start) -> None:
    bystander = start("besteffort/podb/main", "exec sleep 60")
    start(CONTAINER, "exec sleep 60")
    driver.kill(CONTAINER)
    assert until(lambda: not driver.pids(CONTAINER))
    assert driver.pids("besteffort/podb") == [bystander]


def test_a_root_left_by_an_earlier_life_is_adopted(kernel_driver: CgroupDriver, start: Start) -> None:
    pid = start(CONTAINER, "exec sleep 60")
    again = open_driver(own_base(), "node-1")
    assert again.groups() == ["besteffort", "besteffort/poda", CONTAINER]
    assert again.pids(CONTAINER) == [pid]


def test_two_nodes_on_one_machine_do_not_touch_each_other(kernel_driver: CgroupDriver) -> None:
    kernel_driver.create("poda")
    other = open_driver(own_base(), "node-2")
    assert other.groups() == []
    assert other.close()
    assert kernel_driver.rescan() == ["poda"]


def test_closing_leaves_nothing_behind(kernel_driver: CgroupDriver) -> None:
    kernel_driver.create(CONTAINER)
    assert kernel_driver.close()
    found = subprocess.run(
        ["find", "/sys/fs/cgroup", "-type", "d", "-path", f"*{kernel_driver.root_group}*"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == ""


def test_the_basic_knobs_are_supported_and_what_is_not_says_why(capabilities: NodeCapabilities) -> None:
    for knob in (Knob.CPU_SHARES, Knob.CPU_QUOTA, Knob.CPU_BURST, Knob.CPU_IDLE, Knob.CPUSET_CPUS, Knob.MEMORY_LIMIT):
        assert capabilities.supports(knob), capabilities.knobs[knob.value].why
    missing = {name: support for name, support in capabilities.knobs.items() if not support.supported}
    assert all(support.why for support in missing.values())
    assert not capabilities.supports(Knob.CPU_BVT)  # no mainline kernel has it
    assert capabilities.supports(Knob.MEMORY_HIGH) is (capabilities.version is CgroupVersion.V2)


def test_probing_leaves_no_group(driver: CgroupDriver, capabilities: NodeCapabilities) -> None:
    assert driver.rescan() == []


def test_the_kernel_kills_by_itself_where_it_can(kernel_driver: CgroupDriver, capabilities: NodeCapabilities) -> None:
    if kernel_driver.version is CgroupVersion.V2:
        assert capabilities.supports("cgroup.kill")
        assert set(kernel_driver.controllers) >= {"cpu", "memory", "pids"}
    assert capabilities.kernel == os.uname().release

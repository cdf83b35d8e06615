"""Inside the guest: the machine is the one that was asked for, and a delegated unit is recognised."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.cgroup.v2 import AGENT_LEAF
from cotenant_node_executor.targets.cgroup.writer import Writer
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, Knob, NodeCapabilities

LAYOUT = os.environ.get("COTENANT_GUEST_LAYOUT", "")
pytestmark = pytest.mark.skipif(not LAYOUT, reason="says something about the guest alone")


@pytest.fixture
def own_group() -> Callable[[], str]:
    return lambda: Path("/proc/self/cgroup").read_text().strip().removeprefix("0::/")


def test_the_own_root_lies_where_the_layout_has_it(kernel_driver: CgroupDriver, own_group: Callable[[], str]) -> None:
    assert kernel_driver.version is CgroupVersion.V2
    assert set(kernel_driver.controllers) >= {"cpu", "cpuset", "io", "memory", "pids"}
    if LAYOUT == "systemd":
        assert kernel_driver.root_group == "system.slice/guest.service/cotenant/node-1"
        assert own_group() == f"system.slice/guest.service/{AGENT_LEAF}"
    else:
        assert kernel_driver.root_group == f"cotenant-test-{os.getpid()}/cotenant/node-1"
        assert own_group() == ""


def test_what_mainline_has_and_lacks_is_found(capabilities: NodeCapabilities) -> None:
    for name in ("psi.node", "psi.group", "cgroup.kill", Knob.MEMORY_HIGH, Knob.MEMORY_OOM_GROUP, Knob.PIDS_MAX):
        assert capabilities.supports(name), capabilities
    for name in ("resctrl", "core_sched", "kidled", Knob.CPU_BVT, Knob.BLKIO_READ_BPS, Knob.CPU_UCLAMP_MIN):
        assert not capabilities.supports(name), capabilities


def test_a_child_never_gets_what_its_parent_lacks(
    kernel_driver: CgroupDriver, capabilities: NodeCapabilities, cpus: list[int]
) -> None:
    kernel_driver.create("besteffort/poda")
    writer = Writer(kernel_driver, capabilities)
    writer.apply({("besteffort", Knob.CPUSET_CPUS): str(cpus[0])})
    every = f"{cpus[0]}-{cpus[-1]}"
    (refused,) = writer.apply({("besteffort/poda", Knob.CPUSET_CPUS): every}).refused
    assert "kernel shows" in refused.message
    assert parse_cpu_list(kernel_driver.read("besteffort/poda", Knob.CPUSET_CPUS) or "") == (cpus[0],)


def test_a_given_base_works_beside_systemd_and_is_put_back(kernel_driver: CgroupDriver) -> None:
    mount = Path("/sys/fs/cgroup")
    before = (mount / "cgroup.subtree_control").read_text()
    other = open_driver("cotenant-base", "node-2")
    other.create("besteffort/poda")
    assert other.root_group == "cotenant-base/cotenant/node-2"
    assert other.read("besteffort/poda", Knob.CPUSET_CPUS) is not None
    assert other.close()
    assert not (mount / "cotenant-base").exists()
    assert (mount / "cgroup.subtree_control").read_text() == before


CONTAINER_SCRIPT = """
from pathlib import Path
from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.interface import Knob
driver = open_driver(None, "node-4")
driver.create("besteffort/poda")
driver.write("besteffort", Knob.CPU_QUOTA, "20000")
print(sorted(driver.controllers), driver.read("besteffort", Knob.CPU_QUOTA), driver.refused_controllers)
print(Path("/proc/self/cgroup").read_text().strip(), driver.close())
"""


def test_in_a_container_the_top_of_the_mount_is_cleared_first(kernel_driver: CgroupDriver) -> None:
    kernel_driver.create("box")
    inside = 'umount -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"'
    enter = f"echo $$ > {kernel_driver.procs_paths('box')[0]} && exec unshare -C -m sh -c '{inside}' sh \"$@\""
    ran = subprocess.run(
        ["sh", "-c", enter, "sh", sys.executable, "-c", CONTAINER_SCRIPT], capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == ["['cpu', 'cpuset', 'io', 'memory', 'pids'] 20000 {}", f"0::/{AGENT_LEAF} True"]

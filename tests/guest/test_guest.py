"""The integration tests of node-executor's kernel side, again, on a mainline kernel with cgroup v2 booted in QEMU.

One boot a layout: cgroup v2 mounted bare, and under systemd in a unit with Delegate=yes, there with four CPUs so that a
cpuset can shrink and still be two, on two sockets and four NUMA nodes. Each has a disk to write to. Emulated CPUs share one
host core: the inner tests measure nothing absolute.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INNER = ("tests/integration/node_kernel",)
NUMA_NODES = 4
NUMA = " ".join(
    f"-object memory-backend-ram,id=ram{node},size=256M -numa node,nodeid={node},cpus={node},memdev=ram{node}"
    for node in range(NUMA_NODES)
)
DISTANCES = " ".join(
    f"-numa dist,src={one},dst={other},val={21 if one // 2 == other // 2 else 31}"
    for one in range(NUMA_NODES)
    for other in range(one + 1, NUMA_NODES)
)
"""Two nodes a socket."""
LAYOUTS = {
    "plain": {
        "NUMA_NODES": "1",
        "SELECT": "not sandbox and not (kubelet_node and not (strategies_write and systemd)) and not under_systemd "
        "and not cold_memory and not outlives_the_executor and not (page_cache and (the_files or switches_off))",
    },
    "systemd": {
        "SYSTEMD": "1",
        "GUEST_ARGS": f"-smp 4,sockets=2,cores=2,threads=1 {NUMA} {DISTANCES}",
        "NUMA_NODES": str(NUMA_NODES),
        "SELECT": "not sandbox and not v2_strategies and not kubelet_node and not test_protection and not cold_memory "
        "and not killed_executor and not page_cache",
    },
}
"""`SELECT`: what the strategies do to a group does not depend on who made its parent, so one layout tells, and one of kubelet's
drivers: the groups of the other differ in their names. Left out is what depends on no version of cgroups:
evictions, how the groups of kubelet are found, and what runs on an imitated tree. How fast DAMON finds cold pages depends on
what the host leaves to the guest: that test is for a machine of its own."""
DISK_BYTES = 128 << 20
NO_RESULT, MISSING_TOOL = 125, 126
BOOTS = 3

pytestmark = [pytest.mark.guest, pytest.mark.timeout(6000)]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Importing is most of what an emulated CPU would do: collecting and loading here compiles the modules for the guest."""
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", *INNER]
    load = [sys.executable, "-c", "import cotenant_node_executor.__main__"]
    for command in (collect, load):
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def boot(layout: str, disk: Path) -> subprocess.CompletedProcess[str]:
    python = Path(sys.executable).relative_to(ROOT) if sys.executable.startswith(str(ROOT)) else sys.executable
    chosen = LAYOUTS[layout]["SELECT"]
    # Verbose: what is printed before a time limit ends with the test that was running.
    inner = f"{python} -m pytest -v --durations 5 -p no:cacheprovider -m 'not guest' -k '{chosen}' {' '.join(INNER)}"
    environment = os.environ | LAYOUTS[layout]
    arguments = f"{environment.get('GUEST_ARGS', '')} -drive file={disk},format=raw,if=virtio"
    settings = f"COTENANT_GUEST_LAYOUT={layout} COTENANT_GUEST_NUMA_NODES={environment['NUMA_NODES']}"
    script = ["sh", str(ROOT / "tests/guest/guest.sh"), f"{settings} {inner}"]
    environment = environment | {"GUEST_ARGS": arguments}
    return subprocess.run(script, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_the_kernel_side_works_on_cgroup_v2(layout: str, tmp_path: Path) -> None:
    disk = tmp_path / "disk.raw"
    disk.touch()
    os.truncate(disk, DISK_BYTES)
    for _ in range(BOOTS):
        result = boot(layout, disk)
        if result.returncode != NO_RESULT:  # the guest's kernel dies once in some fifty boots; a failed test is no such thing
            break
    if result.returncode == MISSING_TOOL:
        pytest.fail(result.stderr.strip(), pytrace=False)
    assert result.returncode == 0, result.stdout + result.stderr

    summary = result.stdout.strip().splitlines()[-1]
    passed = re.search(r"(\d+) passed", summary)
    assert passed is not None, result.stdout
    assert int(passed.group(1)) >= 40
    assert "skipped" not in summary, result.stdout

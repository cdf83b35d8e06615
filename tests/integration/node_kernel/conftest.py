"""The same statements on this machine's own cgroups, v1 or v2, and on the imitating tree with either version's rules."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.cgroup.knobs import probe
from cotenant_node_executor.targets.cgroup.sandbox.driver import SandboxDriver
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, NodeCapabilities
from tests.integration.node_executor.executor_harness import Harness
from tests.integration.node_kernel.waiting import own_base, until
from tests.nats_server import NatsServer

STORE_BYTES = 200 << 20
"""The guest's disk is its memory."""
Start = Callable[[str, str], int]
ENTER = 'for procs; do echo $$ > "$procs" || exit 9; done; '


@pytest.fixture(params=["kernel", "sandbox-v1", "sandbox-v2"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CgroupDriver]:
    if request.param == "kernel":
        try:
            opened = open_driver(own_base(), "node-1")
        except OSError as error:
            pytest.skip(f"cgroups of this machine may not be written: {error}")
    else:
        version = CgroupVersion.V1 if request.param == "sandbox-v1" else CgroupVersion.V2
        opened = SandboxDriver(tmp_path, "node-1", version=version)
    yield opened
    opened.kill("")
    assert closes(opened), "processes are left in the own subtree"


@pytest.fixture
def kernel_driver(driver: CgroupDriver) -> CgroupDriver:
    if driver.sandbox:
        pytest.skip("an imitated group enforces nothing")
    return driver


@pytest.fixture
def capabilities(driver: CgroupDriver) -> NodeCapabilities:
    return probe(driver)


def closes(driver: CgroupDriver) -> bool:
    """Killed processes take a moment to leave."""
    return until(driver.close)


@pytest.fixture
def start(driver: CgroupDriver) -> Iterator[Start]:
    """Runs a shell script in a group once it is there: ``start("besteffort/poda/main", "exec sleep 60")`` -> pid."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(group: str, script: str) -> int:
        driver.create(group)
        paths = [str(path) for path in driver.procs_paths(group)]
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"{ENTER}echo in; {script}", "sh", *paths], stdout=subprocess.PIPE, start_new_session=True
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n", "the process could not enter its group"
        return process.pid

    yield begin
    for process in running:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0))


@pytest.fixture
async def harness(nats_server: NatsServer) -> AsyncIterator[Harness]:
    """An executor process on a server of its own, not started yet."""
    made = Harness(nats_server.url, store_bytes=STORE_BYTES)
    await made.open()
    yield made
    await made.close()

"""What a running executor says of its machine and of work outside pods."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from cotenant.events.node.topology import MachineTopology
from cotenant.events.node.usage import UsageSample
from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.interface import CgroupDriver
from tests.integration.node_executor.executor_harness import NODE, Harness
from tests.integration.node_kernel.waiting import until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

ENTER = 'for procs; do echo $$ > "$procs" || exit 9; done; while :; do :; done'


@pytest.fixture
def outside(harness: Harness) -> Iterator[CgroupDriver]:
    """A burning process in a group `app` that is no executor's."""
    driver = open_driver(f"{harness.base}-outside", "work")
    driver.create("app")
    paths = [str(path) for path in driver.procs_paths("app")]
    process = subprocess.Popen(["/bin/sh", "-c", ENTER, "sh", *paths])
    yield driver
    process.kill()
    process.wait()
    assert until(driver.close)


async def test_a_machine_and_its_host_applications_are_reported(harness: Harness, outside: CgroupDriver) -> None:
    harness.start()
    path, nowhere = ({"base": "CgroupRoot", "relativePath": f"{outside.root_group}/{name}"} for name in ("app", "none"))
    burning_one = {"name": "burner", "qos": "BE", "priority": "koord-batch", "cgroupPath": path}
    spec = {"hostApplications": [burning_one, {"name": "absent", "cgroupPath": nowhere}]}
    await harness.node_slo(spec, memory_collect_policy="usageWithPageCache")

    def topology() -> MachineTopology | None:
        return next((e.data for e in reversed(harness.facts) if isinstance(e.data, MachineTopology)), None)

    machine: MachineTopology = await harness.wait("the machine is reported", topology)
    assert machine.node == NODE
    assert {cpu.cpu for cpu in machine.cpus} == os.sched_getaffinity(0)
    assert machine.shared_pools
    assert machine.best_effort_pools

    def burning() -> UsageSample | None:
        for event in reversed(harness.facts):
            if isinstance(event.data, UsageSample) and event.data.host_applications:
                application = event.data.host_applications[0]
                if max(application.series.cpu_milli) > 100:
                    return event.data
        return None

    sample: UsageSample = await harness.wait("the application's usage", burning)
    [burner] = sample.host_applications
    assert (burner.name, burner.qos, burner.priority) == ("burner", "BE", "koord-batch")
    assert burner.series.page_cache_bytes
    assert sample.node_usage.page_cache_bytes
    node, system = sample.node_usage.cpu_milli[-1], sample.system_usage.cpu_milli[-1]
    assert system <= max(node - burner.series.cpu_milli[-1], 0), "its usage is not the system's"

    def numa() -> UsageSample | None:
        found = (e.data for e in reversed(harness.facts) if isinstance(e.data, UsageSample) and e.data.numa)
        return next(found, None)

    await harness.wait("the NUMA nodes' usage", numa)

    def lacking() -> MachineTopology | None:
        found = topology()
        return found if found is not None and "host-application/absent" in found.unavailable else None

    machine = await harness.wait("the application without a control group", lacking)
    assert f"{outside.root_group}/none" in machine.unavailable["host-application/absent"]
    assert "host-application/burner" not in machine.unavailable

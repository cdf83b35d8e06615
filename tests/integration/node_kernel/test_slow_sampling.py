"""The machine's facts, host applications, limits and slow collectors on the real kernel."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from cotenant.api.snapshots import Address, Snapshot
from cotenant.events.envelope import Event
from cotenant.kinds.node_resource_topologies import TOPOLOGIES, compose_topology
from cotenant.model.subjects import topology_subject
from cotenant_node_executor.host_facts import host_facts, host_given
from cotenant_node_executor.sampling.given import given_machine
from cotenant_node_executor.sampling.host_applications import application_directory
from cotenant_node_executor.sampling.machine import MachineReader
from cotenant_node_executor.sampling.sampler import Sampler
from cotenant_node_executor.sampling.slow.cold_memory import by_group
from cotenant_node_executor.sampling.slow.cpi import Counters, by_pod
from cotenant_node_executor.sampling.slow.damon import Damon
from cotenant_node_executor.sampling.slow.numa import NumaReader
from cotenant_node_executor.sampling.slow.page_owners import PageOwners, frames, sampled, system_ram
from cotenant_node_executor.sampling.slow.readings import Asked, Unavailable
from cotenant_node_executor.sampling.slow.stalls import read as read_stalls
from cotenant_node_executor.sampling.wanted import HostApplication
from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.cgroup.paths import HostApplicationPath
from cotenant_node_executor.targets.interface import CgroupDriver, Knob, Stat
from tests.integration.node_kernel.waiting import until

Start = Callable[[str, str], int]
PROC, SYS = Path("/proc"), Path("/sys")
CONTAINER = "besteffort/poda/main"
BURN = "while :; do :; done"
MIB = 1 << 20
EVERY_PAGE = 1 << 40
SOFTWARE_CPU_CLOCK, SOFTWARE_TASK_CLOCK = (1, 0), (1, 1)


def test_this_machine_has_a_topology_and_its_object(kernel_driver: CgroupDriver) -> None:
    given = host_given(kernel_driver)
    topology, _ = MachineReader("n1", given, proc=PROC, sys=SYS, kubelet=Path("/nonexistent")).read()
    facts = host_facts("n1", given)
    assert {cpu.cpu for cpu in topology.cpus} == set(given.cpus) == {each.cpu for each in facts.processors}
    assert topology.cpu.cpu_model
    assert sum(numa.memory_bytes for numa in topology.numa_nodes) > 0

    address = Address(TOPOLOGIES, "", "n1")
    event = Event(subject=topology_subject("n1"), data=topology, sequence=1)
    shown = msgspec.json.decode(Snapshot(address, None, {event.subject: event}, 1, compose_topology).document)
    cpus = [int(each["capacity"]) for zone in shown["zones"] for each in zone["resources"] if each["name"] == "cpu"]
    assert sum(cpus) == len(given.cpus)
    assert all(cost["value"] >= 10 for zone in shown["zones"] for cost in zone.get("costs", ()))


def test_zones_are_the_numa_nodes_of_this_kernel_with_their_distances(kernel_driver: CgroupDriver) -> None:
    topology, _ = MachineReader("n1", host_given(kernel_driver), proc=PROC, sys=SYS, kubelet=Path("/nonexistent")).read()
    rows = {int(path.name.removeprefix("node")): path for path in (SYS / "devices/system/node").glob("node[0-9]*")}
    assert {each.node for each in topology.numa_nodes} == set(rows)
    for each in topology.numa_nodes:
        assert list(each.distances) == [int(text) for text in (rows[each.node] / "distance").read_text().split()]
    booted = os.environ.get("COTENANT_GUEST_NUMA_NODES")
    if booted is not None:
        assert len(rows) == int(booted)
        assert len({cpu.socket for cpu in topology.cpus}) == (2 if int(booted) > 1 else 1)


def test_a_host_application_is_no_usage_of_the_system(kernel_driver: CgroupDriver, start: Start) -> None:
    start("besteffort/hadoop-yarn/container_1", BURN)
    yarn = HostApplication("yarn", "BE", "", HostApplicationPath("KubepodsBesteffort", "", "hadoop-yarn"))
    places = {"yarn": application_directory(yarn, None, kernel_driver.root_group)}
    sampler = Sampler(kernel_driver, group_pressure=False)
    sampler.snapshot(time.monotonic_ns(), places)

    def is_seen() -> bool:
        time.sleep(0.2)
        seen = sampler.snapshot(time.monotonic_ns(), places)
        used = seen.host_applications["yarn"].usage.cpu_milli or 0
        node, system = seen.node.cpu_milli or 0, seen.system.cpu_milli or 0
        return used > 200 and abs(node - used - system) <= 1 + max(used - node, 0)

    assert until(is_seen)


def test_limits_around_a_node_are_its_capacity_and_their_groups_its_usage(kernel_driver: CgroupDriver, start: Start) -> None:
    start("podlimited/main", BURN)
    kernel_driver.write("podlimited", Knob.CPU_QUOTA, "20000")
    kernel_driver.write("podlimited", Knob.MEMORY_LIMIT, str(256 * MIB))
    cpus = frozenset(os.sched_getaffinity(0))
    around = f"{kernel_driver.root_group}/podlimited"
    given = given_machine(read_hierarchies(), {"": around}, cpus, cpus, 1 << 50)
    assert (given.capacity_milli, given.memory_bytes) == (200, 256 * MIB)
    sampler = Sampler(kernel_driver, group_pressure=False, given=given)
    first = sampler.snapshot(time.monotonic_ns())
    assert first.node.memory_total_bytes == 256 * MIB
    assert first.node.memory_bytes < 64 * MIB
    assert first.node.cpu_capacity_milli == 200

    def is_within() -> bool:
        time.sleep(0.5)
        used = sampler.snapshot(time.monotonic_ns()).node.cpu_milli
        return used is not None and 50 <= used <= 300

    assert until(is_within)


def test_page_cache_is_found_by_the_group_that_has_it(kernel_driver: CgroupDriver, start: Start, tmp_path: Path) -> None:
    try:
        owners, ram = PageOwners(PROC), system_ram(PROC)
    except Unavailable as error:
        pytest.skip(str(error))
    start(CONTAINER, f"head -c {8 * MIB} /dev/zero > {tmp_path}/file; exec sleep 600")
    asked = Asked((("a", "besteffort/poda"),))

    def is_found() -> bool:
        _, blocks = sampled(frames(ram), EVERY_PAGE)
        counted = owners.in_block(blocks[0])
        for block in blocks[1:]:
            counted.update(owners.in_block(block))
        return by_group(kernel_driver, asked, counted, 1).pods["a"] >= 6 * MIB

    found = until(is_found)
    owners.close()
    assert found


def test_damon_monitors_physical_memory_and_is_put_back(kernel_driver: CgroupDriver) -> None:
    number = SYS / "kernel/mm/damon/admin/kdamonds/nr_kdamonds"
    try:
        damon = Damon(SYS, system_ram(PROC))
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        scheme = number.parent / "0/contexts/0/schemes/0"
        assert (scheme / "action").read_text().strip() == "stat", "nothing is paged out"
        assert (number.parent / "0/state").read_text().strip() == "on"
        for start, end in damon.cold_ranges():
            assert start < end
    finally:
        damon.close()
    assert number.read_text().strip() == "0"


def test_counters_count_a_groups_own_time(kernel_driver: CgroupDriver, start: Start) -> None:
    start(CONTAINER, BURN)
    kernel_driver.create("podidle")
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    counters = Counters(kernel_driver, SYS, (SOFTWARE_CPU_CLOCK, SOFTWARE_TASK_CLOCK))
    pods = (("a", "besteffort/poda"), ("idle", "podidle"), ("gone", "podgone"))
    asked = Asked(pods, containers=(CONTAINER, "podgone/main"))
    try:
        counters.begin(asked, cpus)
    except Unavailable as error:
        pytest.skip(str(error))

    time.sleep(0.5)
    counted = counters.end()
    assert set(counted) == {CONTAINER, "podidle"}
    found = by_pod(asked, counted)
    assert set(found) == {"a", "idle"}
    assert found["a"].cycles > found["idle"].cycles
    assert found["a"].cycles > 1e7, "nanoseconds of the clock"


def test_pages_and_stalls_of_a_pods_containers_are_found(kernel_driver: CgroupDriver, start: Start) -> None:
    """A shell that holds 8 MiB; then two burners in the same container with a tenth of a CPU."""
    start(CONTAINER, f"held=$(head -c {8 * MIB} /dev/zero | tr '\\0' a); sleep 600")
    asked = Asked((("a", "besteffort/poda"),), containers=(CONTAINER,))
    of_cpu = dict.fromkeys(os.sched_getaffinity(0), 0)
    usage = NumaReader(kernel_driver, PROC, SYS, of_cpu)
    path = kernel_driver.stat_path(CONTAINER, Stat.MEMORY_NUMA)
    if path is None or not path.exists():
        pytest.skip("this kernel has no memory.numa_stat")
    usage.read(time.monotonic_ns(), asked)

    def are_found() -> bool:
        found = usage.read(time.monotonic_ns(), asked)
        pods, batch = sum(each.pods_bytes or 0 for each in found), sum(each.best_effort_bytes or 0 for each in found)
        return min(pods, batch) >= 8 * MIB

    assert until(are_found)
    pressure = kernel_driver.stat_path(CONTAINER, Stat.CPU_PRESSURE)
    if pressure is None or not pressure.exists():
        pytest.skip("this kernel has no pressure files of groups")
    kernel_driver.write(CONTAINER, Knob.CPU_QUOTA, "10000")
    start(CONTAINER, BURN)
    start(CONTAINER, BURN)

    def stalls_are_seen() -> bool:
        cpu = read_stalls(kernel_driver, asked)[CONTAINER].cpu
        return cpu is not None and cpu.some.avg10 > 1

    assert until(stalls_are_seen)

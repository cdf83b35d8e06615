"""What processes use is seen in their pod, their tier and the node, on real counters."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from cotenant_node_executor.sampling.sampler import Sampler
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.targets.interface import CgroupDriver, Knob, NodeCapabilities
from tests.integration.node_kernel.waiting import until

Start = Callable[[str, str], int]
CONTAINER = "besteffort/poda/main"
BURN = "while :; do :; done"


@pytest.fixture
def sampler(driver: CgroupDriver, capabilities: NodeCapabilities) -> Sampler:
    return Sampler(driver, group_pressure=capabilities.supports("psi.group"))


def sampled_until(sampler: Sampler, condition: Callable[[UsageSnapshot], bool], *, every: float = 0.2) -> UsageSnapshot:
    """Snapshots over at least ``every`` seconds each, until one meets the condition; within a bound."""
    taken = [sampler.snapshot(time.monotonic_ns())]

    def one_more() -> bool:
        if time.monotonic_ns() - taken[-1].monotonic_ns < every * 1e9:
            return False
        taken.append(sampler.snapshot(time.monotonic_ns()))
        return condition(taken[-1])

    assert until(one_more), taken[-1]
    return taken[-1]


def test_a_burning_pod_is_seen_with_its_container_and_tier(driver: CgroupDriver, sampler: Sampler, start: Start) -> None:
    start(CONTAINER, BURN)
    seen = sampled_until(sampler, lambda snapshot: (snapshot.pods["a"].usage.cpu_milli or 0) > 200)
    pod = seen.pods["a"]
    assert pod.tier == "besteffort"
    assert [container.name for container in pod.containers] == ["main"]
    assert (pod.containers[0].usage.cpu_milli or 0) > 0
    assert (seen.tiers["besteffort"].cpu_milli or 0) > 0
    assert (seen.node.cpu_milli or 0) > 0
    assert pod.usage.memory_bytes is not None
    assert seen.skipped == ()


def test_the_first_snapshot_has_no_rates(driver: CgroupDriver, sampler: Sampler) -> None:
    driver.create(CONTAINER)
    first = sampler.snapshot(time.monotonic_ns())
    assert (first.interval_ns, first.node.cpu_milli, first.system.cpu_milli) == (None, None, None)
    assert first.pods["a"].usage.cpu_milli is None
    assert first.node.memory_total_bytes > first.node.memory_bytes > 0


def test_a_quota_holds_a_burning_pod_back_and_is_seen_as_throttling(
    kernel_driver: CgroupDriver, sampler: Sampler, start: Start
) -> None:
    kernel_driver.create(CONTAINER)
    kernel_driver.write("besteffort/poda", Knob.CPU_QUOTA, "10000")
    start(CONTAINER, BURN)

    def held_back(snapshot: UsageSnapshot) -> bool:
        usage = snapshot.pods["a"].usage
        return (usage.throttled_ratio or 0) > 0.5 and (usage.cpu_milli or 0) > 0

    seen = sampled_until(sampler, held_back, every=1.0).pods["a"].usage
    assert (seen.cpu_milli or 0) < 500  # a tenth of a CPU, told by an emulated and crowded guest's clock; free it takes 1000


def test_memory_that_a_pod_holds_is_seen(driver: CgroupDriver, sampler: Sampler, start: Start) -> None:
    start(CONTAINER, "x=$(head -c 8000000 /dev/zero | tr '\\0' a); sleep 60")
    seen = sampled_until(sampler, lambda snapshot: (snapshot.pods["a"].usage.memory_bytes or 0) > 8_000_000)
    assert (seen.pods["a"].usage.memory_with_page_cache_bytes or 0) >= (seen.pods["a"].usage.memory_bytes or 0)


def test_a_pod_that_goes_is_no_longer_in_the_snapshot(driver: CgroupDriver, sampler: Sampler) -> None:
    driver.create(CONTAINER)
    assert set(sampler.snapshot(1).pods) == {"a"}
    driver.remove("besteffort/poda")
    gone = sampler.snapshot(2)
    assert (gone.pods, gone.skipped) == ({}, ())


def test_a_group_removed_behind_the_drivers_back_is_named_and_left_out(kernel_driver: CgroupDriver, sampler: Sampler) -> None:
    kernel_driver.create("poda")
    kernel_driver.create("podb")
    for path in kernel_driver.procs_paths("poda"):
        path.parent.rmdir()
    snapshot = sampler.snapshot(time.monotonic_ns())
    assert set(snapshot.pods) == {"b"}
    assert [(each.group, each.reason) for each in snapshot.skipped] == [("poda", "the group has gone")]


def test_pressure_of_a_pod_is_read_where_the_kernel_has_it(
    kernel_driver: CgroupDriver, sampler: Sampler, capabilities: NodeCapabilities
) -> None:
    kernel_driver.create(CONTAINER)
    snapshot = sampler.snapshot(time.monotonic_ns())
    pressure = snapshot.pods["a"].usage.pressure.cpu
    assert (pressure is not None) is capabilities.supports("psi.group")
    assert (snapshot.node.pressure.cpu is not None) is capabilities.supports("psi.node")

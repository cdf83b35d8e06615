"""A node's whole cycle on this kernel, without a server: batch pods as real processes are squeezed and let go again.

The node reserves all its CPU for the system, so at a threshold of 100 % nothing is left for batch, and at 200 % the whole
node is, whatever else this machine does meanwhile.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cotenant_node_executor.targets.interface import CgroupDriver, Knob, NodeCapabilities
from tests.integration.node_kernel.kernel_bench import CONTAINER, POD, TIER, Bench
from tests.integration.node_kernel.waiting import until


@pytest.fixture
def bench(kernel_driver: CgroupDriver, capabilities: NodeCapabilities, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(kernel_driver, capabilities, tmp_path / "pods")
    yield made
    assert until(lambda: made.machine.stop_everything(datetime.now(UTC), 0))


def test_a_batch_pods_process_runs_under_its_batch_values(bench: Bench) -> None:
    bench.place()
    assert bench.steps_until(lambda: bool(bench.driver.pids(CONTAINER)))
    for group in (POD, CONTAINER):
        assert bench.value(group, Knob.CPU_QUOTA) == "50000"
        assert bench.value(group, Knob.MEMORY_LIMIT) == str(64 << 20)
        assert int(bench.value(group, Knob.CPU_SHARES)) == pytest.approx(512, rel=0.06)


def test_the_cpuset_policy_shrinks_batch_to_two_cpus_at_once_and_lets_it_grow_by_steps(bench: Bench) -> None:
    if bench.cpus < 2:
        pytest.skip("one CPU")
    bench.place()
    bench.threshold(100, "cpuset")
    assert bench.steps_until(lambda: bench.size(TIER) == 2 and bool(bench.driver.pids(CONTAINER)))
    (pid, *_) = bench.driver.pids(CONTAINER)
    assert len(os.sched_getaffinity(pid)) == 2
    assert bench.size(CONTAINER) == 2

    bench.threshold(200, "cpuset")
    sizes = [bench.size(TIER)]
    while sizes[-1] < bench.cpus:
        assert bench.steps_until(lambda: bench.size(TIER) > sizes[-1])
        sizes.append(bench.size(TIER))
    growth = -(-bench.cpus // 10)
    assert all(later - earlier <= growth for earlier, later in itertools.pairwise(sizes))
    assert len(os.sched_getaffinity(pid)) == bench.cpus


def test_the_quota_policy_bounds_the_tier_and_frees_the_pods_below_it(bench: Bench) -> None:
    bench.place()
    assert bench.steps_until(lambda: bench.value(CONTAINER, Knob.CPU_QUOTA) == "50000")
    bench.threshold(100, "cfsQuota")
    assert bench.steps_until(lambda: 0 < int(bench.value(TIER, Knob.CPU_QUOTA)) <= 10_000)
    assert [bench.value(group, Knob.CPU_QUOTA) for group in (POD, CONTAINER)] == ["-1", "-1"]

    bench.threshold(200, "cfsQuota")
    narrow = int(bench.value(TIER, Knob.CPU_QUOTA))
    assert bench.steps_until(lambda: int(bench.value(TIER, Knob.CPU_QUOTA)) > narrow)
    assert int(bench.value(TIER, Knob.CPU_QUOTA)) - narrow <= bench.cpus * 10_000

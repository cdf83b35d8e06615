"""A node's whole cycle on this kernel, without a server: batch pods as real processes are squeezed and let go again.

The node reserves all its CPU for the system, so at a threshold of 100 % nothing is left for batch, and at 200 % the whole
node is, whatever else this machine does meanwhile.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from cotenant.events.envelope import Event, Payload
from cotenant.events.node.resources import NodeSLORendered
from cotenant.events.placements import Placement
from cotenant.log.contract import LOG
from cotenant.model.subjects import placement_subject, slo_subject
from cotenant_node_executor.core.core import ExecutorCore
from cotenant_node_executor.core.node import ExecutorNode, Periods
from cotenant_node_executor.host_facts import executor_status, host_facts, host_given
from cotenant_node_executor.kernel_machine import KernelMachine
from cotenant_node_executor.targets.cpulist import parse_cpu_list
from cotenant_node_executor.targets.interface import Capabilities, CgroupDriver, Knob
from tests.builders import container, pod_document
from tests.integration.node_kernel.waiting import until

NODE, UID = "node-1", "11111111-1111-4111-8111-111111111111"
TIER, POD = "besteffort", f"besteffort/pod{UID}"
CONTAINER = f"{POD}/main"
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
MANIFEST = pod_document(
    "burner",
    uid=UID,
    labels={"koordinator.sh/qosClass": "BE"},
    runtimeClassName="process",
    restartPolicy="Never",
    containers=[container(command=["/bin/sh", "-c", "while :; do :; done"], requests=BATCH, limits=BATCH)],
)


class Bench:
    """A node, and facts given to it as the log would."""

    def __init__(self, driver: CgroupDriver, capabilities: Capabilities, folder: Path) -> None:
        self.driver = driver
        self.cpus = len(os.sched_getaffinity(0))
        facts = host_facts(NODE, host_given(driver))
        self.machine = KernelMachine(driver, capabilities, folder)
        core = ExecutorCore(facts, capabilities, "boot", plain_processes=True)
        status = executor_status(facts, capabilities, "boot", "test")
        self.node = ExecutorNode(core, self.machine, status, Periods())
        self._sequence = 0
        self._fold(self.node.start_marker(datetime.now(UTC)))

    def _fold(self, event: Event) -> None:
        self._sequence += 1
        self.node.apply(msgspec.structs.replace(event, sequence=self._sequence))

    def tell(self, subject: str, data: Payload) -> None:
        self._fold(Event(subject=subject, data=data, time=datetime.now(UTC)))

    def place(self) -> None:
        pod = msgspec.Raw(msgspec.json.encode(MANIFEST))
        bound = datetime.now(UTC)
        placement = Placement(node=NODE, namespace="default", name="burner", uid=UID, pod=pod, bound_at=bound)
        self.tell(placement_subject(NODE, "default", "burner"), placement)

    def threshold(self, percent: int, policy: str) -> None:
        slo = NodeSLORendered(
            node=NODE,
            enable=True,
            cpu_suppress_policy=policy,
            cpu_suppress_threshold_percent=percent,
            reserved_cpu_milli=self.cpus * 1000,
        )
        self.tell(slo_subject(NODE), slo)

    def step(self) -> None:
        for event in self.node.step(datetime.now(UTC)):
            if event.stream == LOG:
                self._fold(event)

    def steps_until(self, condition: Callable[[], bool]) -> bool:
        def stepped() -> bool:
            self.step()
            return condition()

        return until(stepped)

    def value(self, group: str, knob: Knob) -> str:
        return self.driver.read(group, knob) or ""

    def size(self, group: str) -> int:
        return len(parse_cpu_list(self.value(group, Knob.CPUSET_CPUS)))


@pytest.fixture
def bench(kernel_driver: CgroupDriver, capabilities: Capabilities, tmp_path: Path) -> Iterator[Bench]:
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

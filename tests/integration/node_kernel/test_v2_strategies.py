"""What only cgroup v2 has, to its end on the real kernel: the ladder of memory, rates of disks, bursts, a dry run.

Thresholds are set around what the node uses at the time, so that no memory has to be taken from anybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cotenant_node_executor.strategies.gates import DEFAULT_GATES
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.targets.interface import CgroupDriver, CgroupVersion, Knob, NodeCapabilities
from tests.integration.node_kernel.kernel_bench import CONTAINER, TIER, Bench, pod_manifest
from tests.integration.node_kernel.waiting import GUEST_DISK, until

Start = Callable[[str, str], int]
MIB = 1 << 20
HELD_MIB = 120
HOLD = ["/usr/bin/python3", "-S", "-c", f"import signal; held = b'x' * ({HELD_MIB} << 20); signal.pause()"]
SLEEP = ["/bin/sleep", "3600"]
SERVICE = "22222222-2222-4222-8222-222222222222"
LARGE = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "512Mi"}
GATES = DEFAULT_GATES | {"BEMemoryEvict"}


@pytest.fixture
def bench(kernel_driver: CgroupDriver, capabilities: NodeCapabilities, tmp_path: Path) -> Iterator[Bench]:
    if capabilities.version is not CgroupVersion.V2:
        pytest.skip("this machine's controllers are on cgroup v1")
    made = Bench(kernel_driver, capabilities, tmp_path / "pods", strategies_of(GATES))
    yield made
    assert until(lambda: made.machine.stop_everything(datetime.now(UTC), 0))
    made.machine.close()


def held_and_measured(bench: Bench) -> int:
    """Place a batch pod that holds memory, and a service; return what the node uses then, in percent."""
    bench.place(pod_manifest("hog", HOLD, amounts=LARGE))
    bench.place(pod_manifest("web", SLEEP, uid=SERVICE, qos="LS", amounts={"cpu": "100m", "memory": "64Mi"}))

    def ready() -> bool:
        seen = bench.node.core.seen
        held = seen.snapshot.tiers.get(TIER) if seen is not None and seen.snapshot is not None else None
        holds = held is not None and (held.memory_bytes or 0) >= HELD_MIB * MIB
        return holds and bench.runs_now("hog") and bench.runs_now("web")

    assert bench.steps_until(ready)
    seen = bench.node.core.seen
    assert seen is not None
    assert seen.snapshot is not None
    return seen.snapshot.node.memory_bytes * 100 // seen.snapshot.node.memory_total_bytes


def thresholds(bench: Bench, stop: int, reclaim: int, evict: int, **more: object) -> None:
    bench.sections(
        resourceUsedThresholdWithBE={
            "enable": True,
            "memoryStopPlacingPercent": stop,
            "memoryReclaimPercent": reclaim,
            "memoryEvictThresholdPercent": evict,
            "memoryEvictLowerPercent": evict - 1,
            **more,
        }
    )


def test_memory_is_relieved_step_by_step_and_the_batch_pod_goes_last(bench: Bench) -> None:
    used = held_and_measured(bench)

    thresholds(bench, stop=used - 3, reclaim=used + 15, evict=used + 30)
    assert bench.steps_until(lambda: bool(bench.node.core.memory_pressure))
    assert bench.value(TIER, Knob.MEMORY_HIGH) == "-1"
    assert not bench.said("memory-relief")

    thresholds(bench, stop=used - 3, reclaim=used - 3, evict=used + 30)
    assert bench.steps_until(lambda: 0 < int(bench.value(TIER, Knob.MEMORY_HIGH)) < HELD_MIB * MIB)
    assert bench.steps_until(lambda: any("bytes freed of" in each for each in bench.said("memory-relief")))
    assert bench.runs_now("hog")

    thresholds(bench, stop=used - 3, reclaim=used - 3, evict=max(used - 3, 2))
    assert bench.steps_until(lambda: bench.runs["hog"].phase.terminal)
    assert bench.runs["hog"].reason == "Evicted"
    assert bench.runs_now("web")

    thresholds(bench, stop=98, reclaim=98, evict=99)
    assert bench.steps_until(lambda: bench.value(TIER, Knob.MEMORY_HIGH) == "-1" and not bench.node.core.memory_pressure)


def test_a_dry_run_of_the_ladder_says_what_it_would_do_and_does_nothing(bench: Bench) -> None:
    used = held_and_measured(bench)
    low = max(used - 3, 2)
    thresholds(bench, stop=low, reclaim=low, evict=low, dryRun=True)
    assert bench.steps_until(lambda: any(each.startswith("dry run of memory-evict") for each in bench.said("memory-evict")))
    assert bench.runs_now("hog")
    assert bench.value(TIER, Knob.MEMORY_HIGH) == "-1"
    assert not bench.node.core.memory_pressure


def test_a_disks_rate_slows_direct_writes_of_batch_down(bench: Bench, start: Start) -> None:
    if GUEST_DISK is None:
        pytest.skip("no disk that may be overwritten")
    rate = {"name": str(GUEST_DISK), "type": "device", "ioCfg": {"writeBPS": MIB}}
    bench.sections(resourceQOSStrategy={"beClass": {"blkioQOS": {"enable": True, "blocks": [rate]}}})
    assert bench.steps_until(lambda: f"wbps={MIB}" in bench.value(TIER, Knob.IO_MAX))
    began = time.monotonic()
    process = start(CONTAINER, f"exec dd if=/dev/zero of={GUEST_DISK} bs=64k count=32 oflag=direct 2> /dev/null")
    assert until(lambda: process not in bench.driver.pids(CONTAINER))
    assert time.monotonic() - began >= 1.0

    bench.sections()
    assert bench.steps_until(lambda: "wbps" not in bench.value(TIER, Knob.IO_MAX))


def test_a_service_may_burst_up_to_its_quota(bench: Bench) -> None:
    bench.sections(cpuBurstStrategy={"policy": "auto"})
    bench.place(pod_manifest("web", SLEEP, uid=SERVICE, qos="LS", amounts={"cpu": "500m", "memory": "64Mi"}))
    group = f"pod{SERVICE}/main"
    assert bench.steps_until(lambda: bench.value(group, Knob.CPU_BURST) not in ("", "0"))
    assert 0 < int(bench.value(group, Knob.CPU_BURST)) <= int(bench.value(group, Knob.CPU_QUOTA))

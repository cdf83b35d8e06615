"""Cold page cache goes first: this kernel's DAMON finds it, the strategy asks for it, the kernel frees it.

DAMON's intervals are shortened, so that five minutes without an access become a few seconds, and its regions are small: the
guest has 1 GiB, of which much is in use everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cotenant_node_executor.host_facts import host_given
from cotenant_node_executor.sampling.machine import MachineReader
from cotenant_node_executor.sampling.slow import cold_memory, damon
from cotenant_node_executor.sampling.slow.collectors import SlowCollectors
from cotenant_node_executor.sampling.slow.worker import SlowWorker
from cotenant_node_executor.sampling.wanted import WITH_HOT_PAGE_CACHE
from cotenant_node_executor.strategies.gates import DEFAULT_GATES
from cotenant_node_executor.strategies.registry import strategies_of
from cotenant_node_executor.targets.interface import RECLAIM, CgroupDriver, NodeCapabilities
from tests.integration.node_kernel.kernel_bench import NODE, POD, Bench, pod_manifest
from tests.integration.node_kernel.waiting import GUEST_DISK, until

MIB = 1 << 20
EACH_MIB = 48
LEAST_COLD_MIB = 10
"""Of those that a pod leaves alone: DAMON samples regions, and an emulated machine under load samples few."""
SHORTENED = {
    "SAMPLE_US": 500_000, "AGGREGATION_US": 5_000_000, "APPLY_US": 1_000_000, "AGE": 2,
    "LEAST_REGIONS": 250, "MOST_REGIONS": 1000,
}
HOT = "44444444-4444-4444-8444-444444444444"
LARGE = {"kubernetes.io/batch-cpu": "2000", "kubernetes.io/batch-memory": "512Mi"}
READS = (
    "import mmap, os, sys, time\n"
    "disk, first, again = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2]) << 20, sys.argv[3] == 'hot'\n"
    f"pages = mmap.mmap(disk, {EACH_MIB} << 20, prot=mmap.PROT_READ, offset=first)\n"
    "while True:\n"
    "    pages[::4096]\n"
    "    time.sleep(0.01 if again else 3600)\n"
)
"""Through a mapping: with the multi-generational LRU the kernel does not tell DAMON that a page was read by a system call."""


@pytest.fixture
def bench(
    kernel_driver: CgroupDriver, capabilities: NodeCapabilities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    if GUEST_DISK is None or not capabilities.supports(RECLAIM):
        pytest.skip("no disk to read that belongs to the tests")
    if "damon" not in cold_memory.cold_memory_ways(Path("/sys")):
        pytest.skip("this kernel has no DAMON")
    for name, value in SHORTENED.items():
        monkeypatch.setattr(damon, name, value)
    monkeypatch.setattr(cold_memory.ByDamon, "seconds", 2.0)
    given = host_given(kernel_driver)
    reader = MachineReader(NODE, given, proc=Path("/proc"), sys=Path("/sys"), kubelet=tmp_path, kernel=capabilities.kernel)
    slow = SlowWorker(SlowCollectors(kernel_driver, reader))
    made = Bench(kernel_driver, capabilities, tmp_path / "pods", strategies_of(DEFAULT_GATES | {"BEMemoryEvict"}), slow)
    mode = GUEST_DISK.stat().st_mode
    os.chmod(GUEST_DISK, 0o644)
    slow.start()
    yield made
    assert until(lambda: made.machine.stop_everything(datetime.now(UTC), 0))
    made.machine.close()
    os.chmod(GUEST_DISK, mode)
    assert Path("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds").read_text().strip() == "0", "DAMON is put back"


def reading(what: str, first: int) -> list[str]:
    return ["/usr/bin/python3", "-S", "-c", READS, str(GUEST_DISK), str(first), what]


def test_the_page_cache_that_nobody_touches_is_taken_back_before_that_of_a_pod_that_reads_it_again(bench: Bench) -> None:
    bench.memory_collect_policy = WITH_HOT_PAGE_CACHE
    bench.sections()
    bench.place(pod_manifest("cold", reading("cold", 0), amounts=LARGE))
    bench.place(pod_manifest("hot", reading("hot", EACH_MIB), uid=HOT, amounts=LARGE))

    def cold() -> dict[str, int]:
        seen = bench.node.core.seen
        found = seen.slow.cold if seen is not None and seen.slow is not None else None
        return dict(found.pods) if found is not None else {}

    cold_uid = POD.rpartition("/pod")[2]

    def is_told_apart() -> bool:
        found = cold()
        return found.get(cold_uid, 0) > max(LEAST_COLD_MIB * MIB, 4 * found.get(HOT, 0))

    assert bench.steps_until(is_told_apart), cold()

    seen = bench.node.core.seen
    assert seen is not None
    assert seen.snapshot is not None
    used = seen.snapshot.node.memory_bytes * 100 // seen.snapshot.node.memory_total_bytes
    section = {"enable": True, "memoryStopPlacingPercent": 98, "memoryReclaimPercent": max(used - 3, 2)}
    section |= {"memoryEvictThresholdPercent": 99, "memoryEvictLowerPercent": 98}
    bench.sections(resourceUsedThresholdWithBE=section)
    assert bench.steps_until(lambda: any("bytes freed of" in each for each in bench.said("memory-relief")))
    first = next(each for each in bench.said("memory-relief") if "bytes freed of" in each)
    assert first.startswith(f"{POD}: ")
    assert int(first.split()[1]) > 8 * MIB
    assert bench.runs_now("cold")
    assert bench.runs_now("hot")

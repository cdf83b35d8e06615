"""Page-cache limits: by the files of Anolis' kernel on a tree that refuses as it does, by reclaim on this machine's own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cotenant_node_executor.targets.cgroup.knobs import probe
from cotenant_node_executor.targets.interface import RECLAIM, CgroupDriver, CgroupVersion, Knob, NodeCapabilities
from tests.integration.node_executor.executor_harness import SEEN_BY_PODS
from tests.integration.node_kernel.kernel_bench import CONTAINER, POD, Bench, pod_manifest
from tests.integration.node_kernel.waiting import GUEST_DISK, until
from tests.unit.node_executor.imitated_anolis import AnolisTree

SIZE, SYNC, ENABLE = Knob.MEMORY_PAGECACHE_SIZE, Knob.MEMORY_PAGECACHE_SYNC, Knob.MEMORY_PAGECACHE_ENABLE
MIB = 1 << 20
SLEEP = ["/bin/sleep", "3600"]
LARGE = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "512Mi"}
WRITES = (
    "import os, sys, time\n"
    "with open(sys.argv[1], 'w+b') as file:\n"
    "    for _ in range(96): file.write(bytes(1 << 20))\n"
    "    file.flush(); os.fsync(file.fileno())\n"
    "time.sleep(3600)\n"
)
READS = (
    "import sys, time\n"
    "with open(sys.argv[1], 'rb', buffering=0) as disk:\n"
    "    for _ in range(96): disk.read(1 << 20)\n"
    "    time.sleep(3600)\n"
)
"""The cache of a disk lives as long as somebody has the disk open."""


def opened(driver: CgroupDriver, capabilities: NodeCapabilities, folder: Path) -> Iterator[Bench]:
    made = Bench(driver, capabilities, folder)
    yield made
    assert until(lambda: made.machine.stop_everything(datetime.now(UTC), 0))
    made.machine.close()


@pytest.fixture
def anolis(tmp_path: Path) -> Iterator[Bench]:
    driver = AnolisTree(tmp_path / "tree", "node-1", version=CgroupVersion.V1)
    yield from opened(driver, probe(driver), tmp_path / "pods")


@pytest.fixture
def bench(kernel_driver: CgroupDriver, capabilities: NodeCapabilities, tmp_path: Path) -> Iterator[Bench]:
    if not capabilities.supports(RECLAIM):
        pytest.skip("this kernel reclaims no group's memory")
    if capabilities.supports(SIZE):
        pytest.skip("this kernel limits page cache itself")
    yield from opened(kernel_driver, capabilities, tmp_path / "pods")


def limit(bench: Bench, mib: int, *, on: bool = True, dry: bool = False) -> None:
    fields = {"enable": on, "pageCacheLimitEnable": 1, "pageCacheLimitSize": mib * MIB, "pageCacheLimitSync": 1}
    bench.sections(resourceQOSStrategy={"dryRun": dry, "beClass": {"memoryQOS": fields}})


def texts(bench: Bench, group: str) -> tuple[str, ...]:
    return tuple(bench.value(group, knob) for knob in (SIZE, SYNC, ENABLE))


def test_the_files_get_the_limit_within_the_containers_memory_and_are_put_back(anolis: Bench) -> None:
    limit(anolis, 1024)
    anolis.place(pod_manifest("job", SLEEP, amounts=LARGE))
    assert anolis.steps_until(lambda: texts(anolis, CONTAINER) == (str(512 * MIB), "1", "1"))
    assert anolis.said("refusals") == []
    limit(anolis, 1024, on=False)
    assert anolis.steps_until(lambda: texts(anolis, CONTAINER) == texts(anolis, POD) == ("0", "0", "0"))


def test_the_next_executor_switches_off_what_one_that_was_killed_had_limited(anolis: Bench, tmp_path: Path) -> None:
    limit(anolis, 64)
    job = pod_manifest("job", SLEEP, amounts=LARGE)
    anolis.place(job)
    assert anolis.steps_until(lambda: texts(anolis, CONTAINER) == texts(anolis, POD) == (str(64 * MIB), "1", "1"))
    assert anolis.steps_until(lambda: anolis.runs_now("job"))

    driver = AnolisTree(tmp_path / "tree", "node-1", version=CgroupVersion.V1)
    following = Bench(driver, probe(driver), tmp_path / "pods")
    assert texts(following, CONTAINER) == (str(64 * MIB), "1", "1")
    following.place(job)
    following.sections()
    assert following.steps_until(lambda: texts(following, CONTAINER) == texts(following, POD) == ("0", "0", "0"))
    assert following.runs_now("job")


def test_a_dry_run_of_the_files_says_what_it_would_write_and_writes_nothing(anolis: Bench) -> None:
    limit(anolis, 64, dry=True)
    anolis.place(pod_manifest("job", SLEEP, amounts=LARGE))
    assert anolis.steps_until(lambda: any(each.startswith("dry run of page-cache") for each in anolis.said("page-cache")))
    assert texts(anolis, CONTAINER) == ("0", "0", "0")


def cached(bench: Bench) -> int:
    seen = bench.node.core.seen
    pods = seen.snapshot.pods if seen is not None and seen.snapshot is not None else {}
    return sum((each.usage.memory_with_page_cache_bytes or 0) - (each.usage.memory_bytes or 0) for each in pods.values())


@pytest.fixture
def cached_file() -> Iterator[list[str]]:
    """A program that fills 96 MiB of page cache: with a file that all users may write, in the guest with its disk."""
    if GUEST_DISK is not None:
        mode = GUEST_DISK.stat().st_mode
        GUEST_DISK.chmod(0o644)
        yield ["/usr/bin/python3", "-S", "-c", READS, str(GUEST_DISK)]
        GUEST_DISK.chmod(mode)
        return
    with tempfile.TemporaryDirectory(dir=SEEN_BY_PODS) as folder:
        os.chmod(folder, 0o777)
        kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
        if kind in ("tmpfs", "overlayfs"):
            pytest.skip(f"files of {kind} are no page cache")
        yield ["/usr/bin/python3", "-S", "-c", WRITES, f"{folder}/file"]


@pytest.fixture
def caching(bench: Bench, cached_file: list[str]) -> Bench:
    """A batch pod with 96 MiB of page cache."""
    bench.place(pod_manifest("cache", cached_file, amounts=LARGE))
    assert bench.steps_until(lambda: cached(bench) >= 90 * MIB), bench.runs
    return bench


def test_this_kernel_takes_back_what_a_pod_has_above_its_limit_and_says_how_much(caching: Bench) -> None:
    limit(caching, 32)
    assert caching.steps_until(lambda: any("bytes freed of" in each for each in caching.said("page-cache")))
    assert caching.steps_until(lambda: cached(caching) < (32 + 16) * MIB)
    assert caching.runs_now("cache")


def test_a_dry_run_takes_nothing_back(caching: Bench) -> None:
    limit(caching, 32, dry=True)
    assert caching.steps_until(lambda: any(each.startswith("dry run of page-cache") for each in caching.said("page-cache")))
    assert cached(caching) >= 90 * MIB

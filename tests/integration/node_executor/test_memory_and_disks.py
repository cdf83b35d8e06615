"""Eviction for memory, OOM scores and rates of disks, by a real executor on this machine's own kernel.

The threshold is one percent, so that no memory has to be taken from anybody; the disk is that of the root file system.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from cotenant.events.node.execution import Execution
from cotenant.events.node.runs import RunPhase
from cotenant_node_executor.targets.cgroup.files import holds
from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.interface import CgroupVersion, Knob
from cotenant_node_executor.targets.other.storage import read_storage
from tests.integration.node_executor.executor_harness import SEEN_BY_PODS, Harness, alive, pod_manifest
from tests.integration.node_executor.test_enforcement import batch_pod

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

SLEEP = "import time\ntime.sleep(600)"
WRITES = """
import os, time
with open({path!r}, "wb") as file:
    while True:
        file.seek(0)
        for _ in range(32):
            file.write(bytes(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        time.sleep(0.5)
"""
"""Keeps 32 MiB of page cache."""
GATES = "--feature-gates=BEMemoryEvict=true"


def score_of(pid: int) -> int:
    """What the kernel says of a process."""
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


async def test_a_full_node_evicts_batch_and_no_service_and_a_dry_run_only_says_so(harness: Harness) -> None:
    harness.start(GATES)
    section: dict[str, Any] = {"enable": True, "memoryEvictThresholdPercent": 1, "memoryEvictLowerPercent": 0}
    await harness.node_slo({"resourceUsedThresholdWithBE": {**section, "dryRun": True}})
    await harness.place(batch_pod("job", SLEEP))
    await harness.place(pod_manifest("web", SLEEP, labels={"koordinator.sh/qosClass": "LS"}))
    job, web = await harness.running("job"), await harness.running("web")

    def said(text: str) -> list[Execution]:
        return [each for each in harness.executions("memory-evict") if text in each.summary]

    await harness.wait("the dry run is said", lambda: said("dry run of memory-evict, not done: "))
    assert alive(job.pid)
    await harness.node_slo({"resourceUsedThresholdWithBE": section})
    run = await harness.ended("job")
    assert (run.phase, run.reason) == (RunPhase.FAILED, "Evicted")
    (event,) = await harness.wait("the eviction is told", lambda: said("default/job: evicted by memory-evict"))
    assert event.figures["node.memory-percent"] >= event.figures["threshold.percent"] == 1
    assert "trigger by koordlet feature BEMemoryEvict" in event.summary
    assert alive(web.pid)
    assert not alive(job.pid)


@pytest.mark.skipif(os.path.ismount(SEEN_BY_PODS), reason=f"{SEEN_BY_PODS} is a file system in memory: it has no page cache")
async def test_before_an_eviction_no_batch_is_asked_for_and_page_cache_is_reclaimed(harness: Harness) -> None:
    harness.folder.chmod(0o777)
    harness.start(GATES)
    await harness.wait("the executor is there", harness.statuses)
    if (why := harness.statuses()[-1].capabilities.get("memory.reclaim", "")) != "supported":
        pytest.skip(why)
    section = {
        "enable": True,
        "memoryEvictThresholdPercent": 100,
        "memoryEvictLowerPercent": 99,
        "memoryStopPlacingPercent": 1,
        "memoryReclaimPercent": 1,
    }
    await harness.place(batch_pod("job", WRITES.format(path=str(harness.folder / "file"))))
    await harness.running("job")
    await harness.node_slo({"resourceUsedThresholdWithBE": section})

    def freed() -> int:
        return sum(each.figures.get("freed.memory-bytes", 0) for each in harness.executions("memory-relief"))

    await harness.wait("page cache of the pod is reclaimed", lambda: freed() > 8 * 1024**2)
    status = harness.statuses()[-1]
    assert "no further best-effort pods" in status.memory_pressure
    assert ("node.kubernetes.io/memory-pressure", "", "NoSchedule") in status.taints
    assert harness.runs["job"].phase is RunPhase.RUNNING
    await harness.node_slo({"resourceUsedThresholdWithBE": {**section, "enable": False}})
    await harness.wait("the node takes batch again", lambda: not harness.statuses()[-1].memory_pressure)


async def test_without_its_gate_nothing_is_evicted_and_scores_follow_the_annotation(harness: Harness) -> None:
    harness.start()
    section = {"enable": True, "memoryEvictThresholdPercent": 1, "memoryEvictLowerPercent": 0}
    await harness.node_slo({"resourceUsedThresholdWithBE": section})
    manifest = batch_pod("job", SLEEP)
    uid = await harness.place(manifest)
    job = await harness.running("job")
    assert score_of(job.pid) == 1000
    manifest["metadata"]["annotations"] = {"koordinator.sh/oom-score-adj": "321"}  # type: ignore[index]
    await harness.place(manifest, uid)
    await harness.wait("the running process has the score", lambda: score_of(job.pid) == 321)
    harness.kill()
    manifest["metadata"]["annotations"] = {}  # type: ignore[index]
    await harness.place(manifest, uid)
    harness.start()
    await harness.wait("it has its own score back", lambda: score_of(job.pid) == 1000)
    assert alive(job.pid)


async def test_the_rates_of_a_disk_are_written_and_reset_also_by_the_next_executor(harness: Harness) -> None:
    storage = read_storage()
    try:
        number = storage.of_mount("/")
    except ValueError:
        pytest.skip("the root file system is on no disk")
    device = next(name for name, found in storage.disks.items() if found == number)
    harness.start()
    blocks = [{"name": device, "type": "device", "ioCfg": {"readBPS": 104857600}}]
    await harness.node_slo({"resourceQOSStrategy": {"beClass": {"blkioQOS": {"enable": True, "blocks": blocks}}}})
    version = read_hierarchies().version
    knob, line = (
        (Knob.BLKIO_READ_BPS, f"{number} 104857600")
        if version is CgroupVersion.V1
        else (Knob.IO_MAX, f"{number} rbps=104857600")
    )
    await harness.wait("the executor is there", harness.statuses)
    if harness.statuses()[-1].capabilities.get(knob.value) != "supported":
        pytest.skip(f"no {knob.value}: {harness.statuses()[-1].capabilities.get(knob.value)}")

    assert version is not None

    def is_set() -> bool:
        text = harness.value("besteffort", knob)
        return bool(text) and holds(version, knob, line, text)

    await harness.wait("the rate is written", is_set)
    harness.kill()
    await harness.node_slo()
    harness.start()
    await harness.wait("the next executor resets it", lambda: not is_set())

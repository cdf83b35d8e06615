"""SIGKILL in the middle of what a strategy does, and what the next executor leaves of it when nobody asks for it any more.

A real executor on a real server, on this kernel. It is killed as soon as the first of its files has changed; the next one is
told nothing of the strategy, and every file of the subtree has to hold again what it held before. Killed in the middle of an
eviction, the next one finishes it, and evicts nobody else before the cool-down is over.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from cotenant.events.node.resources import CpuIdentity, NodeResources
from cotenant.events.node.runs import RunPhase
from cotenant.model.subjects import resources_subject
from cotenant_node_executor.strategies.memory.evict import COOL_DOWN_SECONDS
from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.interface import CgroupVersion
from cotenant_node_executor.targets.other.storage import read_storage
from tests.integration.kubelet_tree import FILES
from tests.integration.node_executor.executor_harness import NODE, Harness, alive, pod_manifest
from tests.integration.node_kernel.waiting import EMULATED, GUEST_DISK

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real control groups"),
    pytest.mark.timeout(1800),
]

LOOKS = 5
GATES = "--feature-gates=BEMemoryEvict=true"
FIRST = str(min(os.sched_getaffinity(0)))
DISKS = ("blkio.throttle.read_bps_device", "io.max", "io.weight", "blkio.bfq.weight", "blkio.weight")
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
SLEEP = "import signal; signal.pause()"
DEAF = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
IDENTITIES = {
    "ls_identity": CpuIdentity(enable=True, group_identity=2),
    "be_identity": CpuIdentity(enable=True, group_identity=-1),
}


class Case(Struct, frozen=True):
    """What turns a strategy on: fields of the node SLO, its sections; only on this version of control groups."""

    fields: dict[str, Any] = {}
    sections: dict[str, Any] = {}
    version: CgroupVersion | None = None
    ratio: float = 1.0
    """Of CPU normalisation."""


def suppression(policy: str) -> dict[str, Any]:
    """As narrow as it gets: all CPUs are reserved for others."""
    cpus = os.cpu_count() or 1
    return {
        "enable": True,
        "cpu_suppress_policy": policy,
        "cpu_suppress_threshold_percent": 100,
        "reserved_cpu_milli": 1000 * cpus,
    }


def qos(**classes: Any) -> dict[str, Any]:
    return {"resourceQOSStrategy": {f"{name}Class": part for name, part in classes.items()}}


MEMORY = {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 60, "throttlingPercent": 50}
LADDER = {
    "enable": True, "memoryStopPlacingPercent": 1, "memoryReclaimPercent": 1,
    "memoryEvictThresholdPercent": 100, "memoryEvictLowerPercent": 99,
}
FULL = Case(sections={"resourceUsedThresholdWithBE": {
    "enable": True, "memoryEvictThresholdPercent": 1, "memoryEvictLowerPercent": 0
}})
"""Whoever may be evicted is."""
CASES = {
    "suppress-quota": Case(suppression("cfsQuota")),
    "suppress-cpuset": Case({**suppression("cpuset"), "reserved_cpus": FIRST}),
    "idle-and-spread": Case(IDENTITIES),
    "cpu-burst": Case(sections={"cpuBurstStrategy": {"policy": "auto"}}),
    "cpu-normalization": Case({"cpu_suppress_policy": "cpuset"}, ratio=2.0),
    "memory-qos": Case(sections=qos(ls={"memoryQOS": MEMORY}), version=CgroupVersion.V2),
    "memory-relief": Case(sections={"resourceUsedThresholdWithBE": LADDER}, version=CgroupVersion.V2),
}


def cases() -> dict[str, Case]:
    """Those that this machine can have; on an emulated one, where every start takes long, those of cgroup v2 alone."""
    version, device = read_hierarchies().version, disk()
    wanted = (version,) if EMULATED else (None, version)
    found = {name: case for name, case in CASES.items() if case.version in wanted}
    if device:
        blocks = [{"name": device, "type": "device", "ioCfg": {"readBPS": 104857600}}]
        found["blkio"] = Case(sections=qos(be={"blkioQOS": {"enable": True, "blocks": blocks}}))
    return found


def disk() -> str:
    """A disk whose rate may be bounded for the tests' groups; "" for none."""
    if GUEST_DISK is not None:
        return str(GUEST_DISK)
    storage = read_storage()
    try:
        number = storage.of_mount("/")
    except ValueError:
        return ""
    return next((name for name, found in storage.disks.items() if found == number), "")


def states(harness: Harness) -> dict[str, str]:
    """Every file of the subtree's tiers and pods that strategies may write."""
    found = read_hierarchies()
    mounts = list(dict.fromkeys(found.v1.values())) if found.version is CgroupVersion.V1 else [found.v2]
    values: dict[str, str] = {}
    for mount in mounts:
        assert mount is not None
        for directory, _, files in os.walk(mount / harness.base):
            for name in {*FILES, *DISKS}.intersection(files):
                try:
                    values[f"{directory}/{name}"] = (Path(directory) / name).read_text().strip()
                except OSError:
                    continue  # io.weight and its like without a scheduler for it
    return values


async def asked(harness: Harness, case: Case | None) -> None:
    """Have the node SLO ask for a strategy, or for none."""
    fields, sections = ({}, {}) if case is None else (case.fields, case.sections)
    ratio = 1.0 if case is None else case.ratio
    await harness.store(resources_subject(NODE), NodeResources(node=NODE, cpu_normalization_ratio=ratio))
    await harness.node_slo(sections, **{"enable": False, **fields})


async def test_a_killed_executor_leaves_nothing_that_the_next_one_does_not_put_back(harness: Harness) -> None:
    amounts = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "500m", "memory": "128Mi"}}
    harness.start(GATES)
    await asked(harness, None)
    service = {"labels": {"koordinator.sh/qosClass": "LS"}, "container": {"resources": amounts}}
    batch = {"labels": {"koordinator.sh/qosClass": "BE"}, "container": {"resources": {"requests": BATCH, "limits": BATCH}}}
    for name, spec in (("web", service), ("job", batch)):
        await harness.place(pod_manifest(name, SLEEP, **spec))
        await harness.running(name)
    before = await settled(harness)

    for name, case in cases().items():
        await asked(harness, case)
        await harness.wait(f"{name} changes a file", lambda: states(harness) != before)
        harness.kill()
        await asked(harness, None)
        harness.start(GATES)
        await harness.wait(f"what {name} set is put back", lambda: states(harness) == before)
    assert harness.stop() == 0


async def test_an_eviction_outlives_the_executor_and_so_does_its_cool_down(harness: Harness) -> None:
    harness.start(GATES)
    await asked(harness, None)
    batch = {"labels": {"koordinator.sh/qosClass": "BE"}, "container": {"resources": {"requests": BATCH, "limits": BATCH}}}
    await harness.place(pod_manifest("first", DEAF, terminationGracePeriodSeconds=3, **batch))
    pid = (await harness.running("first")).pid
    await asked(harness, FULL)
    begun = await harness.wait("first is told to end", lambda: harness.runs["first"].eviction)
    assert harness.runs["first"].phase is RunPhase.RUNNING
    harness.kill()
    await harness.place(pod_manifest("second", SLEEP, terminationGracePeriodSeconds=3, **batch))
    harness.start(GATES)

    ended = await harness.ended("first")
    assert (ended.phase, ended.reason, ended.eviction) == (RunPhase.FAILED, "Evicted", begun)
    assert ended.message.startswith("trigger by koordlet feature BEMemoryEvict: node memory")
    assert not alive(pid)
    next_one = (await harness.ended("second")).eviction
    assert next_one is not None
    assert next_one.strategy == begun.strategy == "memory-evict"
    assert next_one.at - begun.at >= timedelta(seconds=COOL_DOWN_SECONDS)
    assert harness.stop() == 0


async def settled(harness: Harness) -> dict[str, str]:
    """The files' values once they are the same at LOOKS looks; the harness looks with each of the node's messages."""
    last: dict[str, str] = {}
    looks = 0

    def same() -> bool:
        nonlocal last, looks
        before, last = last, states(harness)
        looks = looks + 1 if before == last else 0
        return looks >= LOOKS

    await harness.wait("nothing changes", same)
    return last

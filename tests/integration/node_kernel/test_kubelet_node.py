"""A running executor on a node whose pods kubelet runs: real groups with real processes, LOG on a real server.

On whichever cgroup version the machine has. The share pool's threshold is far above what this machine can be loaded with, so
that what else runs here moves no quota.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from cotenant.domain.qos import KubeQoS
from cotenant.events.node.runs import RunPhase
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver
from cotenant_node_executor.targets.disks import UnknownDiskError
from cotenant_node_executor.targets.interface import CgroupVersion
from cotenant_node_executor.targets.other.storage import mount_sources, read_storage
from tests.builders import container, pod_document
from tests.integration.kubelet_tree import BURN, KubeletTree
from tests.integration.node_executor.executor_harness import NAMESPACE, Harness

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real control groups"),
    pytest.mark.timeout(900),
]

LIMIT_US = 5_000
BURST = {"policy": "auto", "cfsQuotaBurstPercent": 200, "sharePoolThresholdPercent": 100_000}
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
MIB = 1 << 20
MEMORY_QOS = {"enable": True, "minLimitPercent": 50, "lowLimitPercent": 60, "throttlingPercent": 50}
SECTIONS = {
    "cpuBurstStrategy": BURST,
    "resourceQOSStrategy": {"lsClass": {"memoryQOS": MEMORY_QOS}},
}


SYSTEMD, CGROUPFS = (KubeletCgroupDriver.SYSTEMD, "containerd"), (KubeletCgroupDriver.CGROUPFS, "docker")
CRI_O = (KubeletCgroupDriver.SYSTEMD, "cri-o")


def laid_out(*layouts: tuple[KubeletCgroupDriver, str]) -> pytest.MarkDecorator:
    """The layouts that a test runs on."""
    names = [f"{layout.value}-{runtime}" for layout, runtime in layouts]
    return pytest.mark.parametrize("tree", layouts, ids=names, indirect=True)


@pytest.fixture
def tree(request: pytest.FixtureRequest, harness: Harness, tmp_path: Path) -> Iterator[KubeletTree]:
    layout, runtime = request.param
    made = KubeletTree(harness.base, layout, runtime, tmp_path / "containers")
    yield made
    if harness._process is not None and harness._process.poll() is None:
        harness.kill()
    made.close()


def begin(harness: Harness, tree: KubeletTree, *flags: str) -> None:
    harness.start("--pods", "kubelet", "--kubelet-cgroup-root", harness.base, "--container-logs", str(tree.logs), *flags)


def service(name: str = "service") -> dict[str, Any]:
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "50m", "memory": "128Mi"}}
    labels = {"koordinator.sh/qosClass": "LS"}
    return pod_document(name, namespace=NAMESPACE, uid="", labels=labels, containers=[container("web", resources=resources)])


def batch(name: str = "batch") -> dict[str, Any]:
    labels = {"koordinator.sh/qosClass": "BE"}
    resources = {"requests": BATCH, "limits": BATCH}
    return pod_document(name, namespace=NAMESPACE, uid="", labels=labels, containers=[container("job", resources=resources)])


def quota(tree: KubeletTree, directory: str) -> str:
    return tree.read(directory, "cpu.cfs_quota_us", "cpu.max").split(" ")[0].replace("max", "-1")


def memory_limit(tree: KubeletTree, directory: str) -> str:
    return tree.read(directory, "memory.limit_in_bytes", "memory.max")


def has_memory(tree: KubeletTree, directory: str) -> bool:
    return memory_limit(tree, directory) == str(64 * MIB)


def has_restarted(harness: Harness, times: int) -> bool:
    run = harness.container("batch")
    return run is not None and run.state == "running" and run.restarts == times


@laid_out(SYSTEMD, CGROUPFS)
async def test_strategies_write_into_the_groups_that_kubelet_made_and_what_was_there_is_restored(
    harness: Harness, tree: KubeletTree
) -> None:
    web_uid, job_uid = str(uuid4()), str(uuid4())
    web_pod = tree.pod(web_uid, KubeQoS.BURSTABLE, shares=51, quota_us=LIMIT_US)
    _, pause = tree.container(web_pod, "pause", link=False)
    _, web = tree.container(web_pod, "web", BURN, shares=51, quota_us=LIMIT_US)
    job_pod = tree.pod(job_uid, KubeQoS.BEST_EFFORT)
    _, job = tree.container(job_pod, "job")
    before = tree.states()

    begin(harness, tree)
    await harness.node_slo(
        SECTIONS,
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=200,
        reserved_cpu_milli=1000,
    )
    await harness.place(service(), web_uid)
    await harness.place(batch(), job_uid)
    await harness.running("service")
    await harness.running("batch")

    # Burst of the service's container and its pod; batch limits; suppression of the tier.
    await harness.wait("the quota is at its ceiling", lambda: quota(tree, web) == str(2 * LIMIT_US))
    await harness.wait("the pod's follows", lambda: quota(tree, web_pod) == str(2 * LIMIT_US))
    await harness.wait("batch has its memory", lambda: memory_limit(tree, job) == memory_limit(tree, job_pod) == str(64 * MIB))
    tier = job_pod.rpartition("/")[0]
    await harness.wait("best-effort is suppressed", lambda: quota(tree, tier) not in ("", "-1"))
    if tree.version is CgroupVersion.V2:
        await harness.wait("memory QoS", lambda: tree.read(web, "memory.low") == str(64 * MIB * 60 // 100 // 4096 * 4096))
        assert tree.read(web, "memory.min") == str(32 * MIB)
        assert tree.read(web, "memory.high") == str(96 * MIB)
    # What is nobody's keeps its values: the pause container of a service.
    assert {file: text for file, text in tree.states(of=pause).items() if before[file] != text} == {}
    status = harness.statuses()[-1]
    assert status.pods_by == "kubelet"
    assert set(status.strategies_off) == {"pod-values", "spread", "realtime"}
    assert tree.layout.value in harness.said()

    # A container restarts: its group is another one.
    tree.end(web)
    _, again = tree.container(web_pod, "web", BURN, shares=51, quota_us=LIMIT_US)
    await harness.wait("the new group's quota is at its ceiling", lambda: quota(tree, again) == str(2 * LIMIT_US))
    await harness.wait("its attempt is counted", lambda: (run := harness.container("service")) and run.restarts == 1)

    # The executor is killed, and what it had set stays until the next one takes it up.
    harness.kill()
    assert memory_limit(tree, job) == str(64 * MIB)
    statuses = len(harness.statuses())
    begin(harness, tree)
    await harness.wait("it is there again", lambda: len(harness.statuses()) > statuses)
    await harness.wait("the quota is at its ceiling", lambda: quota(tree, again) == str(2 * LIMIT_US))
    run = harness.container("service")
    assert run is not None
    assert run.restarts == 1

    # It stops: every file is as it was, and every process runs.
    assert harness.stop() == 0
    after = tree.states()
    new = {file.replace(again, web): text for file, text in after.items()}
    assert {file: (before[file], text) for file, text in new.items() if before.get(file) != text} == {}
    assert tree.alive()
    assert not harness.subtree_exists()


@laid_out(SYSTEMD)
async def test_what_a_killed_executor_set_is_restored_by_the_next_where_nobody_asks_for_it_any_more(
    harness: Harness, tree: KubeletTree
) -> None:
    uid = str(uuid4())
    pod = tree.pod(uid, KubeQoS.BEST_EFFORT)
    _, job = tree.container(pod, "job")
    before = tree.states()
    begin(harness, tree)
    await harness.place(batch(), uid)
    await harness.wait("batch has its memory", lambda: memory_limit(tree, job) == str(64 * MIB))
    harness.kill()
    await harness.forget("batch")

    begin(harness, tree)
    await harness.wait("the limits are back", lambda: tree.states() == before)
    await harness.wait("it is told", lambda: harness.executions("restored"))


@laid_out(CRI_O)
async def test_groups_that_come_late_go_and_come_again_are_followed(harness: Harness, tree: KubeletTree) -> None:
    begin(harness, tree)
    uid = str(uuid4())
    await harness.place(batch(), uid)
    await harness.wait("it is pending", lambda: "batch" in harness.runs and harness.runs["batch"].phase is RunPhase.PENDING)
    for attempt in range(2):
        pod = tree.pod(uid, KubeQoS.BEST_EFFORT)
        _, job = tree.container(pod, "job")
        await harness.wait("batch has its memory", partial(has_memory, tree, job))
        await harness.wait("its attempts are counted", partial(has_restarted, harness, attempt))
        tree.end(job)
        tree.remove(pod)
        await harness.wait("it waits", lambda: (run := harness.container("batch")) and run.state == "waiting")
    assert harness.runs["batch"].phase is RunPhase.RUNNING
    await harness.end("batch")
    await harness.wait("it is stopped", lambda: harness.runs["batch"].phase is RunPhase.STOPPED)


@laid_out(CGROUPFS)
async def test_what_belongs_to_nobody_is_reported_and_left_alone(harness: Harness, tree: KubeletTree) -> None:
    stranger = tree.pod(str(uuid4()), KubeQoS.BEST_EFFORT, shares=77)
    _, lonely = tree.container(stranger, "job", shares=78)
    root = stranger.split("/")[0]
    for name in ("kubepods-besteffort-pod", "system.slice", "pod", "garbage", "crio-conmon-1.scope"):
        tree.make(f"{root}/{name}")
    kata_uid, uid = str(uuid4()), str(uuid4())
    kata_pod = tree.pod(kata_uid, KubeQoS.BEST_EFFORT)
    _, machine = tree.container(kata_pod, "job")
    pod = tree.pod(uid, KubeQoS.BEST_EFFORT)
    _, job = tree.container(pod, "job")
    before = tree.states(of=stranger) | tree.states(of=machine)

    begin(harness, tree)
    kata = batch("kata")
    kata["spec"]["runtimeClassName"] = "kata-qemu"
    await harness.place(kata, kata_uid)
    await harness.place(batch("lost"), str(uuid4()))
    await harness.place(batch(), uid)
    await harness.wait("batch has its memory", lambda: memory_limit(tree, job) == str(64 * MIB))

    def told() -> bool:
        lines = [change.new for each in harness.executions("kubelet")[-1:] for change in each.changes]
        return all(
            any(part in line for line in lines)
            for part in (f"{stranger}: a group without a pod", "default/lost: no control group", "default/kata: a Kata pod")
        )

    await harness.wait("all of it is told", told)
    assert tree.states(of=stranger) | tree.states(of=machine) == before
    assert memory_limit(tree, kata_pod) == str(64 * MIB)
    assert tree.read(lonely, "cgroup.procs")
    assert tree.alive()


MOUNTS = "mount --make-rprivate / && mount --bind $1 $1/data && mount --bind $1 $1/logs && exec sleep 100000"
"""A container's own mounts: two volumes on the disk of the test's folder, at paths below it."""


@laid_out(SYSTEMD)
async def test_the_volumes_of_several_claims_are_bounded_on_the_disk_that_the_container_sees(
    harness: Harness, tree: KubeletTree, tmp_path: Path
) -> None:
    sources = mount_sources(Path("/proc/self/mountinfo"))
    source = sources[max((point for point in sources if tmp_path.is_relative_to(point)), key=len)]
    try:
        number = read_storage().of_source(source)
    except UnknownDiskError:
        pytest.skip(f"the test's folder is on no disk, but on {source}")
    for name in ("data", "logs"):
        (tmp_path / name).mkdir()
    uid = str(uuid4())
    pod = tree.pod(uid, KubeQoS.BEST_EFFORT)
    names = ("blkio.throttle.read_bps_device", "io.max")
    if tree.file(pod, names[0]) is None and tree.file(pod, names[1]) is None:
        pytest.skip(f"kubelet's groups have neither {names[0]} nor {names[1]}")
    begin(harness, tree)
    await harness.node_slo()
    blocks = [{"name": "data", "type": "podvolume", "ioCfg": {"readBPS": 104857600}}]
    manifest = batch()
    manifest["metadata"]["annotations"] = {"koordinator.sh/blkioQOS": json.dumps({"blocks": blocks})}
    manifest["spec"]["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "logs")]
    mounts = [{"name": name, "mountPath": str(tmp_path / name)} for name in ("data", "logs")]
    manifest["spec"]["containers"][0]["volumeMounts"] = mounts
    await harness.place(manifest, uid)
    await harness.wait("the pod waits for its container", lambda: "batch" in harness.runs)
    _, job = tree.container(pod, "job", ("unshare", "-m", "sh", "-c", MOUNTS, "sh", str(tmp_path)))
    await harness.wait("the pod's rate is written", lambda: f"{number} " in tree.read(pod, *names))
    assert [each.summary for each in harness.executions("refusals") if "blkio" in each.summary] == []
    assert "104857600" in tree.read(pod, *names)
    tree.end(job)
    assert harness.stop() == 0
    await harness.wait("the rate is taken back", lambda: "104857600" not in tree.read(pod, *names))

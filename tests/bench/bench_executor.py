"""Memory and CPU of a node's executor with all sampling and every strategy on: with 50 pods, with 1,000 finished pods beside
them, and for the start of a pod.

A real executor on a real server and real control groups; each pod is one `sleep`. The finished pods ended while the executor
was down; it finds them by their files, as after a restart. Memory is the process's own. CPU time is that of the executor's
own control group, which its helper programs share, without the pods and their shims: neighbours disturb it little. Needs
root. Run it alone: `python -m tests.bench.bench_executor [FINISHED] [kubelet]`.

With `kubelet` the pods' groups and processes are made as kubelet with the systemd driver and containerd make them, and the
executor runs with `--pods kubelet`; what has finished has no group any more, and its status says so.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver
from cotenant_node_executor.targets.interface import CgroupVersion
from tests.benched_server import run_as_root
from tests.builders import container, pod_document
from tests.integration.kubelet_tree import KubeletTree
from tests.integration.node_executor.executor_harness import Harness

BATCH, SERVICES = 40, 10
FINISHED = 1000
STARTS = 20
SETTLE_SECONDS = 30.0
YARN = {"name": "yarn", "qos": "BE", "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "yarn"}}
CLASS = {"cpuQOS": {"enable": True}, "memoryQOS": {"enable": True}}
SPEC: dict[str, Any] = {
    "hostApplications": [YARN],
    "resourceUsedThresholdWithBE": {
        "enable": True,
        "cpuSuppressThresholdPercent": 65,
        "cpuSuppressPolicy": "cfsQuota",
        "cpuEvictBESatisfactionLowerPercent": 1,
        "cpuEvictBESatisfactionUpperPercent": 2,
        "cpuEvictTimeWindowSeconds": 86400,
        "cpuEvictThresholdPercent": 99,
        "cpuEvictLowerPercent": 98,
        "evictEnabledPriorityThreshold": 5999,
        "memoryEvictThresholdPercent": 99,
    },
    "cpuBurstStrategy": {"policy": "auto"},
    "resourceQOSStrategy": {"lsrClass": CLASS, "lsClass": CLASS, "beClass": CLASS},
}
GATES = "--feature-gates=BEMemoryEvict=true"


def sleeping_pod(number: int) -> dict[str, object]:
    """A pod that does nothing: the first are services, all others batch."""
    amounts, qos = {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "32Mi"}, "BE"
    if number < SERVICES:
        amounts, qos = {"cpu": "20m", "memory": "32Mi"}, "LS"
    return _pod(f"pod-{number}", ["/bin/sleep", "3600"], qos, amounts)


def _pod(name: str, command: list[str], qos: str, amounts: dict[str, str]) -> dict[str, object]:
    labels = {"koordinator.sh/qosClass": qos}
    members: dict[str, Any] = {"runtimeClassName": "process", "restartPolicy": "Never"}
    main = container(command=command, requests=amounts, limits=amounts)
    return pod_document(name, uid="", labels=labels, containers=[main], **members)


def leave_ended(state: Path, uid: str) -> None:
    """Leave the files of a container that ran and ended while the executor was down."""
    folder = state / uid / "main"
    folder.mkdir(parents=True)
    for ending, text in (("launch", "{}"), ("pid", "1\n"), ("wait", "0\n"), ("log", ""), ("status", "0\n")):
        (folder / f"0.{ending}").write_text(text)


def resident_mib(pid: int) -> float:
    """What the process holds in memory now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has ended")


class OwnGroup:
    """A control group for the executor and its helper programs, which counts their CPU time."""

    def __init__(self, name: str) -> None:
        hierarchies = read_hierarchies()
        if hierarchies.version is CgroupVersion.V2:
            assert hierarchies.v2 is not None
            self.folder, self._v1 = hierarchies.v2 / name, False
        else:
            self.folder, self._v1 = hierarchies.v1["cpuacct"] / name, True
        self.folder.mkdir()

    @property
    def prefix(self) -> list[str]:
        """A command that starts another one in the group."""
        return ["/bin/sh", "-c", f'echo $$ > {self.folder}/cgroup.procs; exec "$@"', "sh"]

    @property
    def seconds(self) -> float:
        """CPU time so far."""
        if self._v1:
            return int((self.folder / "cpuacct.usage").read_text()) / 1e9
        return int((self.folder / "cpu.stat").read_text().split()[1]) / 1e6

    def remove(self) -> None:
        """Remove it, once its processes are gone."""
        ends = time.monotonic() + 10
        while time.monotonic() < ends:
            try:
                self.folder.rmdir()
            except OSError:
                time.sleep(0.05)
            else:
                return


class Measurement:
    """One executor in progress. `tree`: where kubelet runs the pods."""

    def __init__(self, harness: Harness, group: OwnGroup, tree: KubeletTree | None) -> None:
        self.harness = harness
        self.group = group
        self.tree = tree
        self.flags = ["--report-period", "15", GATES]
        if tree is not None:
            self.flags += ["--pods", "kubelet", "--kubelet-cgroup-root", harness.base, "--container-logs", str(tree.logs)]

    def start(self) -> None:
        """Start the executor in its group."""
        self.harness.start(*self.flags, prefix=self.group.prefix)

    async def place(self, pod: dict[str, object], *, service: bool = False) -> str:
        """Place a pod; where kubelet runs it, begin it first."""
        uid = str(uuid4())
        if self.tree is not None:
            quota_us = 2_000 if service else None
            qos = KubeQoS.BURSTABLE if service else KubeQoS.BEST_EFFORT
            await asyncio.to_thread(self._begin, self.tree.pod(uid, qos, quota_us=quota_us), quota_us)
        return await self.harness.place(pod, uid)

    def _begin(self, directory: str, quota_us: int | None) -> None:
        assert self.tree is not None
        self.tree.container(directory, "main", quota_us=quota_us)

    async def finished(self, name: str) -> None:
        """Place a pod that ended while the executor was down."""
        pod = _pod(name, ["/bin/true"], "BE", {})
        if self.tree is None:
            leave_ended(self.harness.folder / "data/pods", await self.harness.place(pod))
        else:
            await self.harness.place(pod | {"status": {"phase": "Succeeded"}})

    def all_of(self, prefix: str, phase: str, count: int) -> bool:
        """Whether so many pods of this name are reported in this phase."""
        found = self.harness.runs.items()
        return sum(name.startswith(prefix) and run.phase.value == phase for name, run in found) == count

    async def settled(self, what: str, memory_goal: int, cpu_goal: int) -> None:
        """Read what the executor costs while nothing happens."""
        await asyncio.sleep(3)
        before, began = self.group.seconds, time.monotonic()
        await asyncio.sleep(SETTLE_SECONDS)
        percent = 100 * (self.group.seconds - before) / (time.monotonic() - began)
        print(f"executor.memory.{what} {resident_mib(self.harness.pid):.1f} MiB (goal {memory_goal})", flush=True)
        print(f"executor.cpu.{what} {percent:.2f} %-of-one-core (goal {cpu_goal})", flush=True)

    async def starts(self) -> None:
        """Read what the start of one pod costs, beside what the same time costs without one."""
        before, began = self.group.seconds, time.monotonic()
        await asyncio.sleep(5)
        idle = (self.group.seconds - before) / (time.monotonic() - began)
        before, began = self.group.seconds, time.monotonic()
        for number in range(STARTS):
            await self.place(_pod(f"start-{number}", ["/bin/sleep", "3600"], "BE", {}))
            await self.harness.running(f"start-{number}")
        used = self.group.seconds - before - idle * (time.monotonic() - began)
        print(f"executor.cpu.pod-start {1000 * used / STARTS:.1f} ms (goal 30)", flush=True)


async def measure(url: str) -> None:
    """Place the pods, wait, read. Nobody is evicted: the thresholds are out of reach, the window longer than the run."""
    numbers = [int(each) for each in sys.argv[1:] if each.isdecimal()]
    finished = numbers[0] if numbers else FINISHED
    harness = Harness(url)
    await harness.open()
    group = OwnGroup(f"{harness.base}-executor")
    tree = None
    if "kubelet" in sys.argv[1:]:
        tree = KubeletTree(harness.base, KubeletCgroupDriver.SYSTEMD, "containerd", harness.folder / "containers")
    measured = Measurement(harness, group, tree)
    try:
        measured.start()
        suppressing = {"enable": True, "cpu_suppress_policy": "cfsQuota", "cpu_suppress_threshold_percent": 65}
        await harness.node_slo(SPEC, **suppressing, memory_collect_policy="usageWithHotPageCache")
        for number in range(BATCH + SERVICES):
            await measured.place(sleeping_pod(number), service=number < SERVICES)
        await harness.wait("all pods run", partial(measured.all_of, "pod-", "running", BATCH + SERVICES))
        await measured.settled("50-pods", 58, 4)
        await measured.starts()
        if finished:
            harness.kill()
            for number in range(finished):
                await measured.finished(f"done-{number}")
            measured.start()
            await harness.wait("they are reported", partial(measured.all_of, "done-", "succeeded", finished))
            await measured.settled(f"50-pods-and-{finished}-finished", 70, 5)
    finally:
        if tree is not None:
            harness.kill()
            tree.close()
        await harness.close()
        group.remove()


if __name__ == "__main__":
    run_as_root("executor.memory.50-pods", measure)

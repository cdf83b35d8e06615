"""A running executor on a node whose pods' slices and scopes are made by systemd itself, PID 1, as kubelet and containerd ask.

Slices nest by their names below the mount's kubepods.slice; each container is a scope with properties, and systemd enables in a
slice only the controllers that its units ask for.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from cotenant.domain.qos import KubeQoS
from cotenant_node_executor.targets.cgroup.hierarchy import read_hierarchies
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver, pod_dir, tier_dir
from tests.integration.kubelet_tree import FILES
from tests.integration.node_executor.executor_harness import Harness
from tests.integration.node_kernel.test_kubelet_node import LIMIT_US, MIB, SECTIONS, batch, service
from tests.integration.node_kernel.waiting import EMULATED, until

pytestmark = [
    pytest.mark.skipif(
        not EMULATED or not Path("/run/systemd/system").is_dir(), reason="makes units of the machine's own systemd: the guest's"
    ),
    pytest.mark.timeout(1800),
]


class SystemdPods:
    """Pods as units of systemd."""

    def __init__(self, logs: Path) -> None:
        found = read_hierarchies()
        assert found.v2 is not None
        self.top, self.logs = found.v2, logs
        self._running: list[subprocess.Popen[bytes]] = []
        logs.mkdir()

    def container(self, uid: str, qos: KubeQoS, name: str, *properties: str) -> str:
        """Start a container of a pod as a scope in the pod's slice; returns its directory below the mount."""
        number = uuid4().hex * 2
        directory = f"{pod_dir(KubeletCgroupDriver.SYSTEMD, qos, uid)}/cri-containerd-{number}.scope"
        pod_slice = directory.split("/")[-2]
        asked = [argument for each in ("CPUWeight=1", "TasksMax=100", *properties) for argument in ("-p", each)]
        command = ["systemd-run", "--quiet", "--scope", f"--unit=cri-containerd-{number}", f"--slice={pod_slice}", *asked]
        self._running.append(subprocess.Popen([*command, "/bin/sleep", "100000"]))
        assert until(lambda: bool(self.read(directory, "cgroup.procs"))), "systemd did not start the scope"
        (self.logs / f"pod_default_{name}-{number}.log").symlink_to("/dev/null")
        return directory

    def read(self, directory: str, name: str) -> str:
        try:
            return (self.top / directory / name).read_text().strip()
        except FileNotFoundError:
            return ""

    def states(self) -> dict[str, str]:
        """Every file below kubepods.slice that may be written."""
        return {
            f"{directory}/{name}": (Path(directory) / name).read_text().strip()
            for directory, _, files in os.walk(self.top / "kubepods.slice")
            for name in FILES
            if name in files
        }

    def alive(self) -> bool:
        return all(process.poll() is None for process in self._running)

    def close(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        systemctl("stop", "kubepods.slice")


def systemctl(*arguments: str) -> None:
    """Ask PID 1."""
    subprocess.run(["systemctl", *arguments], check=True)


@pytest.fixture
def pods(harness: Harness, tmp_path: Path) -> Iterator[SystemdPods]:
    made = SystemdPods(tmp_path / "containers")
    yield made
    harness.kill()
    made.close()


async def test_strategies_write_beside_systemd_also_after_it_is_reloaded_and_restore_what_it_had_set(
    harness: Harness, pods: SystemdPods
) -> None:
    web_uid, job_uid = str(uuid4()), str(uuid4())
    web = pods.container(web_uid, KubeQoS.BURSTABLE, "web", f"CPUQuota={LIMIT_US // 1000}%", "MemoryMax=128M")
    job = pods.container(job_uid, KubeQoS.BEST_EFFORT, "job", "MemoryMax=infinity", "CPUQuota=200%")
    before = pods.states()

    harness.start("--pods", "kubelet", "--container-logs", str(pods.logs))
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

    def is_written() -> bool:
        tier = tier_dir(KubeletCgroupDriver.SYSTEMD, KubeQoS.BEST_EFFORT)
        limits = {pods.read(each, "memory.max") for each in (job, job.rpartition("/")[0])}
        quota = pods.read(tier, "cpu.max").split(" ")[0]
        return limits == {str(64 * MIB)} and quota.isdecimal() and pods.read(web, "memory.min") == str(32 * MIB)

    await harness.wait("batch is limited and suppressed, the service's memory protected", is_written)
    status = harness.statuses()[-1]
    assert (status.pods_by, "driver systemd" in status.message) == ("kubelet", True)

    # systemd writes its own values again when it is told new ones, and when it is reloaded.
    scope = job.rpartition("/")[2]
    await asyncio.to_thread(systemctl, "set-property", "--runtime", scope, "MemoryMax=256M")
    await asyncio.to_thread(systemctl, "daemon-reload")
    await harness.wait("what systemd overwrote is written again", is_written)

    harness.kill()
    assert pods.read(job, "memory.max") == str(64 * MIB)
    statuses = len(harness.statuses())
    harness.start("--pods", "kubelet", "--container-logs", str(pods.logs))
    await harness.wait("it is there again", lambda: len(harness.statuses()) > statuses)
    await harness.wait("everything is as it was", is_written)

    assert harness.stop() == 0
    after = pods.states()
    before[f"{pods.top / job}/memory.max"] = str(256 * MIB)  # what systemd has written meanwhile
    changed = {file: (text, after.get(file)) for file, text in before.items() if after.get(file) != text}
    assert changed == {}
    assert pods.alive()

"""What the kernel's own files say while services and batch pods run beside each other.

The node reserves all its CPU for the system and the threshold is 200 %, so that what else runs on this machine cannot
move the quantity: it is two CPUs less what the services use.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from cotenant.events.node.execution import Execution
from cotenant.events.node.resources import CpuIdentity
from cotenant.events.node.runs import ExecutorStatus, RunPhase
from cotenant_node_executor.targets.interface import Knob
from tests.integration.node_executor.executor_harness import NODE, WAIT_SECONDS, Harness, alive, pod_manifest
from tests.nats_server import NatsServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

CPUS = len(os.sched_getaffinity(0))
NODE_US = CPUS * 100_000
QUOTA = ("besteffort", Knob.CPU_QUOTA)
SPIKE_MILLI = max(100, CPUS * 10)
"""A tenth of a CPU and more than the dead band: a crowded machine gives a burning service that much all the same."""
BURN = "while True: pass"
BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}


def about(shares: int) -> object:
    """Shares as a kernel with weights shows them: the conversion is lossy."""
    return pytest.approx(shares, rel=0.06)


def batch_pod(name: str, script: str = BURN) -> dict[str, object]:
    return pod_manifest(
        name,
        script,
        labels={"koordinator.sh/qosClass": "BE"},
        container={"resources": {"requests": BATCH, "limits": BATCH}},
    )


def service_pod(name: str, go: Path) -> dict[str, object]:
    """A service that burns two CPUs, or what it gets of them, while the file is there."""
    script = (
        "import os, time\nos.fork()\n"
        f"while True:\n    while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        f"    while os.path.exists({str(go)!r}):\n        for _ in range(20000): pass\n"
    )
    return pod_manifest(
        name,
        script,
        labels={"koordinator.sh/qosClass": "LS"},
        container={"resources": {"requests": {"cpu": "500m", "memory": "64Mi"}}},
    )


def is_wide(quota_us: int) -> bool:
    """Whether the services, at rest, leave batch the node."""
    return quota_us > NODE_US * 95 // 100


def quotas(said: Sequence[Execution]) -> list[tuple[int, int]]:
    """Before and after of every change that these tell; the first one speaks for the whole tree."""
    return [(int(each.changes[0].old), int(each.changes[0].new)) for each in said]


def shrinkings(harness: Harness, after: int = 0) -> list[tuple[Execution, tuple[str, ...]]]:
    """What was said, behind the first `after`, of batch being held back because of services, with its causes."""
    return [
        (said, causes)
        for said, causes in [*zip(harness.executions("suppress"), harness.causes("suppress"), strict=True)][after:]
        if said.figures.get("services.cpu-milli", 0) >= SPIKE_MILLI and all(new < old for old, new in quotas([said]))
    ]


async def shrunk(harness: Harness, wide: int) -> None:
    """Wait until the kernel's file is narrower than it was by what a spike comes to. The server may be gone meanwhile."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (now := harness.number(*QUOTA)) > wide - SPIKE_MILLI * 100:
            wide = max(wide, now)
            await asyncio.sleep(0.01)


async def test_a_spike_of_a_service_shrinks_the_quota_of_batch_and_it_grows_back_by_steps(harness: Harness) -> None:
    harness.folder.chmod(0o755)
    go = harness.folder / "go"
    harness.start()
    await harness.node_slo(
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=200,
        reserved_cpu_milli=CPUS * 1000,
    )
    await harness.place(batch_pod("burner"))
    await harness.place(service_pod("service", go))
    await harness.running("burner")
    await harness.running("service")

    def quota() -> int:
        return harness.number(*QUOTA)

    wide = int(await harness.wait("the quota is wide", lambda: is_wide(quota()) and quota()))
    go.touch()
    await shrunk(harness, wide)
    said, causes = (await harness.wait("an event says that the services were the reason", lambda: shrinkings(harness)))[-1]
    assert causes[0].startswith("USAGE:")
    assert said.changes[0].target.startswith("besteffort/cpu.")
    assert said.figures["system.cpu-milli"] == CPUS * 1000
    assert "services" in said.summary

    go.unlink()
    await harness.wait("the quota has grown back", lambda: is_wide(quota()))
    await harness.wait("all of it is reported", lambda: is_wide(quotas(harness.executions("suppress"))[-1][1]))
    steps = [new - old for old, new in quotas(harness.executions("suppress")) if 0 < old < new]
    assert steps, "the quota did not grow back"
    assert max(steps) <= NODE_US // 10

    await harness.node_slo(enable=False)
    await harness.wait("recovered", lambda: quota() == -1)


async def test_services_stay_protected_while_the_server_is_gone_and_what_was_done_is_told_afterwards(
    harness: Harness, nats_server: NatsServer
) -> None:
    harness.folder.chmod(0o755)
    go = harness.folder / "go"
    harness.start()
    await harness.node_slo(
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=200,
        reserved_cpu_milli=CPUS * 1000,
    )
    await harness.place(batch_pod("burner"))
    enough = harness.folder / "enough"
    short = f"import os, time\nwhile not os.path.exists({str(enough)!r}): time.sleep(0.05)"
    await harness.place(pod_manifest("short", short))
    await harness.place(service_pod("service", go))
    for name in ("burner", "service"):
        await harness.running(name)
    process = await harness.running("short")
    await harness.wait("the quota is wide", lambda: is_wide(harness.number(*QUOTA)))
    before = len(harness.executions("suppress"))
    nats_server.kill()
    go.touch()
    enough.touch()
    await shrunk(harness, harness.number(*QUOTA))
    async with asyncio.timeout(WAIT_SECONDS):
        while alive(process.pid):  # noqa: ASYNC110 - the server is gone, only the kernel tells
            await asyncio.sleep(0.05)
    nats_server.start()
    run = await harness.ended("short")
    assert run.phase is RunPhase.SUCCEEDED
    await harness.wait("the suppression is reported", lambda: shrinkings(harness, before))


async def test_batch_pods_carry_their_batch_values_and_no_quota_while_suppression_works_by_quota(harness: Harness) -> None:
    harness.start()
    await harness.node_slo(enable=True, cpu_suppress_policy="cpuset", cpu_suppress_threshold_percent=95)
    uid = await harness.place(batch_pod("batch", "import time; time.sleep(600)"))
    await harness.running("batch")
    for group in (f"besteffort/pod{uid}", f"besteffort/pod{uid}/main"):
        assert harness.number(group, Knob.CPU_SHARES) == about(512)
        assert harness.value(group, Knob.CPU_QUOTA) == "50000"
        assert harness.value(group, Knob.MEMORY_LIMIT) == str(64 << 20)
    await harness.node_slo(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=95)
    own = f"besteffort/pod{uid}/main"
    await harness.wait("its own quota is lifted", lambda: harness.value(own, Knob.CPU_QUOTA) == "-1")
    assert not harness.executions("refusals")


async def test_a_batch_pod_over_its_memory_limit_is_killed_and_the_reason_is_told(harness: Harness) -> None:
    harness.start()
    await harness.place(batch_pod("greedy", "x = bytearray(200 << 20); import time; time.sleep(600)"))
    run = await harness.ended("greedy")
    assert run.phase is RunPhase.FAILED
    assert (run.containers[0].exit_code, run.containers[0].reason) == (137, "OOMKilled")


async def test_without_group_identity_batch_pods_become_idle_and_services_get_raised_shares(harness: Harness) -> None:
    harness.start()
    await harness.node_slo(
        ls_identity=CpuIdentity(enable=True, group_identity=2), be_identity=CpuIdentity(enable=True, group_identity=-1)
    )
    go = harness.folder / "go"
    batch = await harness.place(batch_pod("batch"))
    service = await harness.place(service_pod("service", go))
    await harness.running("batch")
    await harness.running("service")
    tree = {
        (f"besteffort/pod{batch}", Knob.CPU_IDLE): 1,
        ("besteffort", Knob.CPU_IDLE): 1,
        (f"burstable/pod{service}", Knob.CPU_SHARES): 262144,
        ("burstable", Knob.CPU_SHARES): 262144,
    }
    for (group, knob), wanted in tree.items():
        assert harness.number(group, knob) == about(wanted), (group, knob)
    await harness.node_slo()
    pod = f"besteffort/pod{batch}"
    await harness.wait("no longer idle", lambda: harness.value(pod, Knob.CPU_IDLE) == "0")
    await harness.wait("its shares are its requests again", lambda: harness.number(pod, Knob.CPU_SHARES) == about(512))
    await harness.wait("nor is the directory", lambda: harness.value("besteffort", Knob.CPU_IDLE) == "0")
    await harness.wait("which has its shares", lambda: harness.number("besteffort", Knob.CPU_SHARES) == about(2))


async def test_where_control_groups_may_not_be_written_a_sandbox_is_used_and_said_plainly(harness: Harness) -> None:
    hidden = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh")
    harness.start(prefix=hidden)
    await harness.place(batch_pod("batch", "print('in the sandbox')"))
    run = await harness.ended("batch")
    assert run.phase is RunPhase.SUCCEEDED
    status = next(event.data for event in harness.facts if isinstance(event.data, ExecutorStatus))
    assert status.sandbox
    assert status.message.startswith("sandbox: ")
    assert await harness.logs("batch") == "in the sandbox\n"


async def test_usage_of_pods_is_said_once_a_report_period(harness: Harness) -> None:
    harness.start()
    uid = await harness.place(batch_pod("burner"))

    def sampled() -> object:
        for event in reversed(harness.facts):
            if event.subject == f"usage.{NODE.replace('.', '%2E')}":
                pods = {pod.uid: pod for pod in event.data.pods}  # type: ignore[attr-defined]
                if uid in pods and max(pods[uid].series.cpu_milli) > 0 and pods[uid].series.memory_bytes[-1] > 1 << 20:
                    return event.data
        return None

    sample = await harness.wait("its usage is said", sampled)
    pod = next(pod for pod in sample.pods if pod.uid == uid)
    assert (pod.namespace, pod.name, pod.qos, pod.priority) == ("default", "burner", "BE", "koord-batch")
    assert re.fullmatch(r"[0-9a-f]{12}", sample.boot)
    assert sample.offsets_ms[-1] == 0

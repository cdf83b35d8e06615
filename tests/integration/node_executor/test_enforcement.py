"""What the kernel's own files say while services and batch pods run beside each other.

The node reserves all its CPU for the system and the threshold is 200 %, so that what else runs on this machine cannot
move the quantity: it is two CPUs less what the services use.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import time
from pathlib import Path

import pytest

from cotenant.events.envelope import Event
from cotenant.events.execution import Execution
from cotenant.events.resources import CpuIdentity
from cotenant.events.runs import ExecutorStatus, RunPhase
from cotenant_node_executor.kernel.interface import Knob
from tests.integration.node_executor.executor_harness import NODE, Harness, pod_manifest
from tests.nats_server import NatsServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

CPUS = len(os.sched_getaffinity(0))
NODE_US = CPUS * 100_000
QUOTA = ("besteffort", Knob.CPU_QUOTA)
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
    """A service that burns two CPUs while the file is there."""
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

    await harness.wait("the quota is wide", lambda: quota() > NODE_US * 8 // 10)

    wide = quota()
    go.touch()
    began = time.monotonic()
    while quota() > wide - NODE_US // 10 and time.monotonic() - began < 10:  # noqa: ASYNC110 - a kernel file
        await asyncio.sleep(0.01)
    reaction = time.monotonic() - began
    assert reaction <= 2.5, f"the quota shrank after {reaction:.2f} s"

    def shrinkings() -> list[Event]:
        return [said for said in harness.executions("suppress") if said.data.figures["services.cpu-milli"] > 0]

    await harness.wait("an event says that the services were the reason", shrinkings)
    said = shrinkings()[-1]
    assert isinstance(said.data, Execution)
    assert said.causes[0].startswith("USAGE:")
    assert said.data.changes[0].target.startswith("besteffort/cpu.")
    assert said.data.figures["system.cpu-milli"] == CPUS * 1000
    assert "services" in said.data.summary

    go.unlink()
    values = [quota()]
    began = time.monotonic()
    while values[-1] < wide - NODE_US // 50 and time.monotonic() - began < 30:
        await asyncio.sleep(0.02)
        values.append(quota())
    steps = [later - earlier for earlier, later in itertools.pairwise(values) if later > earlier]
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
    await harness.place(pod_manifest("short", "import time; time.sleep(8)"))
    await harness.place(service_pod("service", go))
    for name in ("burner", "service", "short"):
        await harness.running(name)
    await harness.wait("the quota is wide", lambda: harness.number(*QUOTA) > NODE_US * 95 // 100)
    nats_server.kill()
    go.touch()
    async with asyncio.timeout(10):
        while harness.number(*QUOTA) > NODE_US * 9 // 10:  # noqa: ASYNC110 - the server is gone, only the kernel tells
            await asyncio.sleep(0.05)
    nats_server.start()
    run = await harness.ended("short", 30)
    assert run.phase is RunPhase.SUCCEEDED
    await harness.wait("the suppression is told", lambda: int(harness.executions("suppress")[-1].data.changes[0].new) < NODE_US)


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
        ("besteffort", Knob.CPU_IDLE): 0,
        ("besteffort", Knob.CPU_SHARES): 2,
        (f"burstable/pod{service}", Knob.CPU_SHARES): 262144,
        ("burstable", Knob.CPU_SHARES): 262144,
    }
    for (group, knob), wanted in tree.items():
        assert harness.number(group, knob) == about(wanted), (group, knob)
    await harness.node_slo()
    pod = f"besteffort/pod{batch}"
    await harness.wait("no longer idle", lambda: harness.value(pod, Knob.CPU_IDLE) == "0")
    await harness.wait("its shares are its requests again", lambda: harness.number(pod, Knob.CPU_SHARES) == about(512))


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
                if uid in pods and max(pods[uid].series.cpu_milli) > 0:
                    return event.data
        return None

    sample = await harness.wait("its usage is said", sampled)
    pod = next(pod for pod in sample.pods if pod.uid == uid)
    assert (pod.namespace, pod.name, pod.qos, pod.priority) == ("default", "burner", "BE", "koord-batch")
    assert pod.series.memory_bytes[-1] > 1 << 20
    assert re.fullmatch(r"[0-9a-f]{12}", sample.boot)
    assert sample.offsets_ms[-1] == 0

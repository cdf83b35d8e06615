"""Protection of latency-sensitive pods by the real kernel: threads on CPUs of their own, the real-time class, and its guard."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from cotenant.events.node.resources import CpuIdentity
from cotenant_node_executor.runtime.realtime.guard import threads_below
from cotenant_node_executor.targets.address import Knob
from tests.integration.node_executor.executor_harness import NODE, WAIT_SECONDS, Harness, alive, pod_manifest
from tests.integration.node_executor.test_enforcement import CPUS, batch_pod

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree"),
    pytest.mark.xdist_group("realtime"),  # a machine has one budget for real-time groups
]

CPU_TREE = Path("/sys/fs/cgroup/cpu")
needs_budgets = pytest.mark.skipif(
    not (CPU_TREE / "cpu.rt_runtime_us").exists(), reason="this kernel has no budgets for real-time groups (cgroup v1)"
)
BASE_US = 900_000
LIGHT = (
    "import time\nwhile True:\n    until = time.monotonic() + 0.01\n"
    "    while time.monotonic() < until: pass\n    time.sleep(0.09)"
)
"""A tenth of a CPU."""


def latency_sensitive(name: str, script: str, cpu_class: str = "") -> dict[str, object]:
    annotations = {"cotenant.io/cpu-class": cpu_class} if cpu_class else {}
    resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    return pod_manifest(
        name, script, labels={"koordinator.sh/qosClass": "LS"}, annotations=annotations, container={"resources": resources}
    )


def greedy(go: Path) -> str:
    """A tenth of a CPU, and every CPU as long as the file is there."""
    return (
        f"import os, time\nfor _ in range({CPUS - 1}): os.fork() if os.getpid() else 0\n"
        f"while True:\n    if os.path.exists({str(go)!r}):\n        for _ in range(20000): pass\n    else: time.sleep(0.02)\n"
    )


async def protect(harness: Harness) -> None:
    await harness.node_slo(
        ls_identity=CpuIdentity(enable=True, group_identity=2), be_identity=CpuIdentity(enable=True, group_identity=-1)
    )


def threads(harness: Harness, uid: str) -> list[int]:
    return [*threads_below([str(CPU_TREE / harness.base / "cotenant" / NODE / "burstable" / f"pod{uid}")])]


def classes(harness: Harness, uid: str) -> set[int]:
    """The scheduling classes of a pod's threads."""
    found: set[int] = set()
    for tid in threads(harness, uid):
        with contextlib.suppress(ProcessLookupError):
            found.add(os.sched_getscheduler(tid))
    return found


async def until_classes(harness: Harness, uid: str, wanted: set[int]) -> None:
    """Wait for all threads of a pod to have a class. Works while no executor is there."""
    async with asyncio.timeout(WAIT_SECONDS):
        while classes(harness, uid) != wanted:  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.005)


async def real_time(harness: Harness, script: str) -> str:
    """Run a pod in the real-time class."""
    harness.start()
    await harness.wait("the executor is there", harness.statuses)
    try:
        (CPU_TREE / harness.base / "cpu.rt_runtime_us").write_text(str(BASE_US))
    except OSError as error:
        pytest.skip(f"another subtree of this machine has the budget for real-time groups: {error}")
    await protect(harness)
    uid = await harness.place(latency_sensitive("service", script, "realtime"))
    await harness.running("service")
    await until_classes(harness, uid, {os.SCHED_FIFO})
    return uid


def guard_pid(harness: Harness) -> int:
    procs = CPU_TREE / harness.base / "cotenant" / NODE / "guard" / "cgroup.procs"
    return int(procs.read_text().split()[0])


async def test_busy_threads_get_long_slices_and_best_effort_is_idle_as_a_whole(harness: Harness) -> None:
    harness.start()
    await protect(harness)
    await harness.place(batch_pod("batch"))
    uid = await harness.place(latency_sensitive("service", LIGHT))
    await harness.running("batch")
    await harness.running("service")
    await harness.wait("best-effort is idle", lambda: harness.value("besteffort", Knob.CPU_IDLE) == "1")

    def slices() -> bool:
        said = [change for each in harness.executions("protection") for change in each.changes]
        return any(change.target.endswith("slice") and change.new == "100000000" for change in said)

    await harness.wait("a long slice", slices)
    assert classes(harness, uid) == {os.SCHED_OTHER}
    await harness.node_slo()
    await harness.wait("best-effort is as it was", lambda: harness.value("besteffort", Knob.CPU_IDLE) == "0")


@needs_budgets
async def test_a_pod_that_asks_for_it_is_real_time_until_it_does_not_any_more_and_nothing_is_left(harness: Harness) -> None:
    uid = await real_time(harness, LIGHT)
    pod = f"burstable/pod{uid}"
    assert harness.number("", Knob.CPU_RT_RUNTIME) == 900_000
    assert harness.number("burstable", Knob.CPU_RT_RUNTIME) == 850_000
    assert harness.number(f"{pod}/main", Knob.CPU_RT_RUNTIME) == 8_500_000
    assert os.sched_getscheduler(guard_pid(harness)) == os.SCHED_FIFO

    await harness.node_slo()
    await until_classes(harness, uid, {os.SCHED_OTHER})
    for group in (f"{pod}/main", pod, "burstable", ""):
        await harness.wait(f"no budget of {group}", lambda group=group: harness.number(group, Knob.CPU_RT_RUNTIME) == 0)  # type: ignore[misc]
    family = CPU_TREE / harness.base / "cotenant/cpu.rt_runtime_us"
    await harness.wait("the directory above has its own back", lambda: family.read_text().strip() == "0")
    assert not harness.executions("refusals")


@needs_budgets
async def test_an_overload_ends_the_real_time_class_within_50_ms_and_an_event_says_why(harness: Harness) -> None:
    harness.folder.chmod(0o755)
    go = harness.folder / "go"
    uid = await real_time(harness, greedy(go))
    go.touch()
    await until_classes(harness, uid, {os.SCHED_OTHER})

    text = await harness.wait("an event says why", lambda: harness.summary("protection", "realtime -> fair"))
    assert "real-time threads used" in text
    took_ms = float(text.rpartition("fair after ")[2].partition(" ms")[0])
    assert took_ms < 50


@needs_budgets
async def test_a_killed_executor_leaves_no_real_time_thread(harness: Harness) -> None:
    uid = await real_time(harness, LIGHT)
    guard = guard_pid(harness)
    harness.kill()
    await until_classes(harness, uid, {os.SCHED_OTHER})
    async with asyncio.timeout(WAIT_SECONDS):
        while alive(guard):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)


@needs_budgets
async def test_an_executor_that_hangs_loses_the_real_time_class(harness: Harness) -> None:
    uid = await real_time(harness, LIGHT)
    os.kill(harness.pid, signal.SIGSTOP)
    try:
        await until_classes(harness, uid, {os.SCHED_OTHER})
    finally:
        os.kill(harness.pid, signal.SIGCONT)


@needs_budgets
async def test_without_its_guard_nothing_stays_real_time(harness: Harness) -> None:
    uid = await real_time(harness, LIGHT)
    os.kill(guard_pid(harness), signal.SIGKILL)
    await until_classes(harness, uid, {os.SCHED_OTHER})
    await harness.wait("an event says why", lambda: harness.summary("protection", "the guard ended"))


@needs_budgets
async def test_directories_above_that_give_no_budget_are_named(harness: Harness) -> None:
    harness.start()
    await protect(harness)
    uid = await harness.place(latency_sensitive("service", LIGHT, "realtime"))
    await harness.running("service")
    await harness.wait("it is said", lambda: harness.summary("refusals", "the directories above give less"))
    assert classes(harness, uid) == {os.SCHED_OTHER}

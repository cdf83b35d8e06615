"""Protection of latency-sensitive pods by this kernel, v1 or v2: threads spread over CPUs, the real-time class, its guard."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant_node_executor.runtime.realtime.guard import GUARD_PRIORITY, HUNG_SECONDS, threads_below
from cotenant_node_executor.strategies.cpu.protection.spread import SLICE_NS
from cotenant_node_executor.targets.interface import SLICES, CgroupDriver, CgroupVersion, Knob, NodeCapabilities, Stat
from cotenant_node_executor.targets.other.threads import SchedulingCalls
from cotenant_node_executor.targets.parse import parse_cpu_usage_ns
from tests.integration.node_kernel.kernel_bench import BURN, UID, pod_manifest
from tests.integration.node_kernel.waiting import EMULATED, WAIT_SECONDS, own_base, until

pytestmark = pytest.mark.xdist_group("realtime")  # a machine has one budget for real-time groups

CPUS = len(os.sched_getaffinity(0))
SERVICE = "33333333-3333-4333-8333-333333333333"
GROUP = f"burstable/pod{SERVICE}"
PYTHON = ["/usr/bin/python3", "-S", "-c"]
AMOUNTS = {"cpu": "100m", "memory": "64Mi"}
BASE_US = 900_000
ABOVE_ALL = GUARD_PRIORITY + 10
"""Of the test itself, while it measures what others get."""
SILENCE_SECONDS = 6 * HUNG_SECONDS if EMULATED else HUNG_SECONDS
"""A crowded host may give the guest no CPU for some seconds."""
SHARE, WINDOW_SECONDS, MEASURED_SECONDS = 0.05, 1.0, 0.2


def working(go: str = "") -> list[str]:
    """As many processes as CPUs, each a tenth of a CPU; every CPU as long as the file `go` is there."""
    return [
        *PYTHON,
        f"import os, time\nfor _ in range({CPUS - 1}):\n    if not os.fork(): break\n"
        "while True:\n    until = time.monotonic() + 0.01\n    while time.monotonic() < until: pass\n"
        f"    while os.path.exists({go!r}): pass\n    time.sleep(0.09)",
    ]


def service(command: list[str], cpu_class: str = "") -> dict[str, Any]:
    manifest = pod_manifest("service", command, uid=SERVICE, qos="LS", amounts=AMOUNTS)
    manifest["spec"]["containers"][0]["resources"].pop("limits")
    if cpu_class:
        manifest["metadata"]["annotations"] = {"cotenant.io/cpu-class": cpu_class}
    return manifest


class Executor:
    """A process, what it said, and the pods that it runs."""

    def __init__(self, driver: CgroupDriver, folder: Path) -> None:
        self.driver, self._folder = driver, folder
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.said: list[dict[str, str]] = []

    def start(self, *manifests: dict[str, Any]) -> None:
        base = own_base()
        given = json.dumps(
            {"base": base, "folder": str(self._folder), "manifests": manifests, "hung_seconds": SILENCE_SECONDS}
        )
        command = [sys.executable, "-m", "tests.integration.node_kernel.executor_process", given]
        self._errors = self._folder.with_name("executor.log")
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._lines.put(line)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def withdraw(self) -> None:
        """No node SLO protects anybody any more."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End it cleanly."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.communicate(timeout=WAIT_SECONDS)

    def says(self, topic: str, part: str) -> str:
        """The first thing of a topic that contains a text."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.said.append(json.loads(self._lines.get_nowait()))
        return next((each["summary"] for each in self.said if each["topic"] == topic and part in each["summary"]), "")

    def everything(self) -> list[dict[str, str]]:
        """All that it said, for a failed test."""
        self.says("", "")
        return self.said

    def directory(self, group: str) -> str:
        path = self.driver.path(group, Knob.CPU_SHARES)
        assert path is not None
        return str(path.parent)

    def threads(self, group: str = GROUP) -> list[int]:
        return [*threads_below([self.directory(group)])]

    def classes(self, group: str = GROUP) -> set[int]:
        found: set[int] = set()
        for tid in self.threads(group):
            with contextlib.suppress(ProcessLookupError):
                found.add(os.sched_getscheduler(tid))
        return found

    def has_class(self, wanted: int) -> bool:
        """Whether the service runs in full, every thread in this class."""
        assert self._process is not None
        assert self._process.poll() is None, self._errors.read_text()
        return len(self.threads()) >= CPUS and self.classes() == {wanted}

    def guard(self) -> int:
        (pid, *_) = self.threads("guard")
        return pid

    def value(self, group: str, knob: Knob) -> str:
        return self.driver.read(group, knob) or ""

    def used_ns(self, group: str) -> int:
        path = self.driver.stat_path(group, Stat.CPU_USAGE)
        assert path is not None
        return parse_cpu_usage_ns(self.driver.version, path.read_text())


@pytest.fixture
def executor(kernel_driver: CgroupDriver, tmp_path: Path) -> Iterator[Executor]:
    made = Executor(kernel_driver, tmp_path / "pods")
    yield made
    made.end()


@pytest.fixture
def real_time(executor: Executor) -> Callable[..., Executor]:
    """Run the service in the real-time class, beside these pods."""

    def begin(*beside: dict[str, Any], go: str = "") -> Executor:
        own = executor.driver.path("", Knob.CPU_RT_RUNTIME)
        if own is not None and (base := own.parents[2] / own.name).exists():
            try:
                base.write_text(str(BASE_US))
            except OSError as error:
                pytest.skip(f"another subtree of this machine has the budget for real-time groups: {error}")
        executor.start(service(working(go), "realtime"), *beside)
        assert until(lambda: executor.has_class(os.SCHED_FIFO)), executor.everything()
        return executor

    return begin


def test_busy_threads_have_cpus_of_their_own_and_best_effort_is_idle_beside_them(
    executor: Executor, capabilities: NodeCapabilities
) -> None:
    if capabilities.version is not CgroupVersion.V2:
        pytest.skip("threads are spread while nothing but pods uses the machine: the guest is such a one")
    executor.start(service(working()), pod_manifest("burner", BURN))
    calls, default = SchedulingCalls(), SchedulingCalls().slice_of(0)

    def affinities() -> list[set[int]]:
        return [set(os.sched_getaffinity(tid)) for tid in executor.threads()]

    def spread() -> bool:
        found = affinities()
        return len(found) >= CPUS and all(len(each) == 1 for each in found) and len(set.union(*found)) == len(found)

    assert until(spread), (affinities(), executor.everything())
    assert executor.value("besteffort", Knob.CPU_IDLE) == "1"
    assert executor.value("burstable", Knob.CPU_IDLE) == "0"
    assert executor.directory("burstable").rpartition("/")[0] == executor.directory("besteffort").rpartition("/")[0]
    if capabilities.supports(SLICES):
        assert {calls.slice_of(tid) for tid in executor.threads()} == {SLICE_NS}

    executor.withdraw()
    assert until(lambda: all(len(each) == CPUS for each in affinities()))
    assert until(lambda: executor.value("besteffort", Knob.CPU_IDLE) == "0")
    assert {calls.slice_of(tid) for tid in executor.threads()} == {default}


def test_the_guard_runs_above_what_it_guards_in_a_group_of_its_own(real_time: Callable[..., Executor]) -> None:
    executor = real_time()
    assert os.sched_getscheduler(executor.guard()) == os.SCHED_FIFO
    assert os.sched_getparam(executor.guard()).sched_priority == GUARD_PRIORITY
    assert not set(executor.threads("guard")) & set(executor.threads())
    executor.withdraw()
    assert until(lambda: executor.has_class(os.SCHED_OTHER))
    assert until(lambda: not executor.driver.exists("guard"))


def test_an_overload_ends_within_50_ms_and_the_rest_keeps_a_twentieth_of_each_second(
    real_time: Callable[..., Executor], tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    go = Path("/run") / f"cotenant-go-{os.getpid()}"
    more = f"for _ in $(seq {CPUS - 1}); do ({BURN[2]}) & done; "
    burner = pod_manifest("burner", [*BURN[:2], more + BURN[2]], amounts={})
    executor = real_time(burner, go=str(go))
    assert until(lambda: len(executor.threads(f"besteffort/pod{UID}")) >= CPUS)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(ABOVE_ALL))
    readings: list[tuple[float, int]] = []
    try:
        go.touch()
        deadline = time.monotonic() + WAIT_SECONDS
        while executor.classes() & {os.SCHED_FIFO} and time.monotonic() < deadline:
            readings.append((time.monotonic(), executor.used_ns(GROUP)))
            time.sleep(MEASURED_SECONDS)
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        go.unlink(missing_ok=True)
    assert until(lambda: bool(executor.says("protection", "realtime -> fair"))), executor.everything()
    text = executor.says("protection", "realtime -> fair")
    assert "real-time threads used" in text
    assert float(text.rpartition("fair after ")[2].partition(" ms")[0]) < 50
    print(text, [(round(at - readings[0][0], 2), used // 1_000_000) for at, used in readings])
    for at, used in readings:
        later = next((each for each in readings if each[0] >= at + WINDOW_SECONDS), None)
        if later is not None:
            assert (later[1] - used) / 1e9 / (later[0] - at) <= (1 - SHARE) * CPUS * 1.005, readings


def test_a_killed_executor_leaves_no_real_time_thread(real_time: Callable[..., Executor]) -> None:
    executor = real_time()
    guard = executor.guard()
    executor.kill()
    assert until(lambda: executor.classes() == {os.SCHED_OTHER})
    assert until(lambda: not Path(f"/proc/{guard}").exists())


def test_an_executor_that_hangs_loses_the_real_time_class(real_time: Callable[..., Executor]) -> None:
    executor = real_time()
    began = time.monotonic()
    os.kill(executor.pid, signal.SIGSTOP)
    try:
        assert until(lambda: executor.classes() == {os.SCHED_OTHER})
        assert time.monotonic() - began < 4 * SILENCE_SECONDS
    finally:
        os.kill(executor.pid, signal.SIGCONT)
    assert until(lambda: bool(executor.says("protection", "the executor is silent")))


@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGKILL, "the guard ended"), (signal.SIGSTOP, "the guard does not answer")]
)
def test_without_a_working_guard_nothing_stays_real_time(
    real_time: Callable[..., Executor], number: signal.Signals, why: str
) -> None:
    executor = real_time()
    os.kill(executor.guard(), number)
    assert until(lambda: executor.classes() == {os.SCHED_OTHER})
    assert until(lambda: bool(executor.says("protection", why))), executor.everything()

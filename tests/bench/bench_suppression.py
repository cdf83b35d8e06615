"""From a service's first busy moment to the changed kernel file, over 40 spikes (another number as the first argument).

A real executor on real control groups, a batch pod, and a service that burns all CPUs, or a share of the node in percent (the
second argument), while a file is there. The service notes when it begins to burn; the clock ends when the best-effort group's
quota in the kernel's file is smaller by 5 % of the node. Spikes fall differently into the executor's second. During a spike the
pods' groups have BESIDE times the shares of other work on this machine, so that this takes little of the service's CPU. Three
spans of each spike:

- reaction: from the service's first busy moment to the file; the goal is 100 ms at p99
- kernel: from the same moment to the pressure trigger, on a descriptor of this program's own
- executor: from that trigger to the file; below 0 where the file came first

Then the flutter: how often the quota changes in FLUTTER_SECONDS of a steady load of short requests, less is better.
This program watches by SCHED_FIFO where it may, so that it measures the executor's waiting and not its own. Needs root; run it
alone: `python -m tests.bench.bench_suppression 100 20`.
"""

from __future__ import annotations

import asyncio
import os
import select
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from cotenant_node_executor.sampling.pressure.pressure_triggers import PressureTriggers
from cotenant_node_executor.sampling.urgency import CPU_TRIGGER
from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.interface import Knob, Stat
from tests.benched_server import run_as_root
from tests.integration.node_executor.executor_harness import NODE, Harness, pod_manifest
from tests.integration.node_executor.test_enforcement import CPUS, NODE_US, QUOTA, batch_pod

SPIKES = 40
"""Without an argument, so that `make bench` ends in its time."""
GROWN_US = NODE_US * 97 // 100
BESIDE = 64
LIMIT_SECONDS = 60.0
POLL_SECONDS = 0.001
FLUTTER_SECONDS = 30.0


class Reaction(Struct, frozen=True):
    """One spike, in ms since the service's first busy moment. `fired_ms` None: no trigger fired before the file changed."""

    written_ms: float
    fired_ms: float | None


def spiking_pod(go: Path, began: Path, steady: Path, percent: int) -> dict[str, object]:
    """A service that burns all CPUs, or this share of them, while `go` is there, and notes below `began` when it begins; while
    `steady` is there it serves requests of 2 ms, 50/s a process."""
    script = (
        "import os, random, time\n"
        f"for _ in range({CPUS - 1}):\n    if not os.fork(): break\n"
        f"go, began, steady = {str(go)!r}, {str(began)!r}, {str(steady)!r}\n"
        "while True:\n"
        "    while not os.path.exists(go):\n"
        "        if os.path.exists(steady):\n"
        "            time.sleep(random.expovariate(50)); end = time.thread_time() + 0.002\n"
        "            while time.thread_time() < end: pass\n"
        "        else: time.sleep(0.01)\n"
        "    with open(f'{began}/{os.getpid()}', 'w') as file: file.write(str(time.monotonic_ns()))\n"
        f"    end = time.thread_time(); at = time.monotonic()\n"
        "    while os.path.exists(go):\n"
        f"        at += 0.005; end += 0.005 * {percent} / 100\n"
        "        while time.thread_time() < end: pass\n"
        "        time.sleep(max(0, at - time.monotonic()))\n"
    )
    return pod_manifest(
        "service",
        script,
        labels={"koordinator.sh/qosClass": "LS"},
        container={"resources": {"requests": {"cpu": str(CPUS), "memory": "64Mi"}}},
    )


async def grown(harness: Harness) -> int:
    """Wait until the quota in the kernel's file is wide again; returns it."""
    began = time.monotonic()
    while (quota := harness.number(*QUOTA)) < GROWN_US:
        if time.monotonic() - began > LIMIT_SECONDS:
            raise RuntimeError(f"the quota is {quota}, not {GROWN_US} or more, after {LIMIT_SECONDS} s")
        await asyncio.sleep(0.05)
    return quota


def first_sign(folder: Path) -> int | None:
    """When the first process of the service began to burn (monotonic ns), as far as it has said so."""
    said = [text for each in folder.iterdir() if (text := each.read_text())]
    return min((int(text) for text in said), default=None)


@contextmanager
def above_others(harness: Harness) -> Iterator[None]:
    """Give the groups of the executor's pods BESIDE times the shares of what else runs beside them."""
    driver = open_driver(harness.base, NODE)
    own = driver.path("", Knob.CPU_SHARES)
    if own is None:
        raise RuntimeError("this kernel has no shares of groups")
    file = own.parents[2] / own.name
    usual = file.read_text()
    file.write_text(str(int(usual) * BESIDE))
    try:
        yield
    finally:
        file.write_text(usual)


def react(harness: Harness, triggers: PressureTriggers, go: Path, began: Path, before: int) -> Reaction:
    """Begin a spike and watch until the file has changed. Raises RuntimeError after LIMIT_SECONDS."""
    triggers.fired()
    for each in began.iterdir():
        each.unlink()
    poller = select.poll()
    poller.register(triggers.fileno(), select.POLLIN)
    fired = None
    started = time.monotonic_ns()
    go.touch()
    while harness.number(*QUOTA) > before - NODE_US // 20:
        if time.monotonic_ns() - started > LIMIT_SECONDS * 1e9:
            raise RuntimeError(f"the quota is {harness.number(*QUOTA)} after {LIMIT_SECONDS} s, {before} before the spike")
        if poller.poll(POLL_SECONDS * 1000) and fired is None and triggers.fired():
            fired = time.monotonic_ns()
        elif fired is not None:
            time.sleep(POLL_SECONDS)
    written, busy = time.monotonic_ns(), first_sign(began)
    go.unlink()
    if busy is None:
        raise RuntimeError("the quota shrank before the service began")
    return Reaction((written - busy) / 1e6, (fired - busy) / 1e6 if fired is not None else None)


async def flutter(harness: Harness, steady: Path) -> int:
    """How often the quota changes while the load is steady, after it has settled."""
    await asyncio.to_thread(steady.touch)
    await asyncio.sleep(5.0)
    changes, last, until = 0, harness.number(*QUOTA), time.monotonic() + FLUTTER_SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(0.005)
        now = harness.number(*QUOTA)
        changes, last = changes + (now != last), now
    await asyncio.to_thread(steady.unlink)
    return changes


def said(name: str, values: list[float], goal: str = "") -> None:
    """Print the distribution of one span."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    for part, value in (("p50", statistics.median(ordered)), ("p99", p99), ("worst", ordered[-1])):
        print(f"suppression.{name}.{part} {value:.0f} ms{f' (goal {goal})' if part == 'p99' and goal else ''}")


async def measure(url: str) -> None:
    """Run the spikes."""
    spikes = int(sys.argv[1]) if len(sys.argv) > 1 else SPIKES
    percent = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    harness = Harness(url)
    harness.folder.chmod(0o755)
    began = harness.folder / "began"
    began.mkdir()
    began.chmod(0o777)
    go, steady = harness.folder / "go", harness.folder / "steady"
    triggers = PressureTriggers()
    await harness.open()
    try:
        harness.start()
        await harness.node_slo(
            enable=True,
            cpu_suppress_policy="cfsQuota",
            cpu_suppress_threshold_percent=200,
            reserved_cpu_milli=CPUS * 1000,
        )
        await harness.place(batch_pod("burner"))
        await harness.place(spiking_pod(go, began, steady, percent))
        await harness.running("burner")
        await harness.running("service")
        pressure = open_driver(harness.base, NODE).stat_path("burstable", Stat.CPU_PRESSURE)
        triggers.watch({str(pressure): CPU_TRIGGER} if pressure is not None else {})
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        load = os.getloadavg()[0]
        taken: list[Reaction] = []
        for spike in range(spikes):
            await grown(harness)
            await asyncio.sleep(spike * 0.137 % 1.0)
            with above_others(harness):
                taken.append(react(harness, triggers, go, began, harness.number(*QUOTA)))
        print(f"suppression.spike {percent} % of the node")
        said("reaction", [each.written_ms for each in taken], "100")
        said("kernel", [each.fired_ms for each in taken if each.fired_ms is not None] or [float("nan")])
        said("executor", [each.written_ms - each.fired_ms for each in taken if each.fired_ms is not None] or [float("nan")])
        print(f"suppression.untriggered {sum(each.fired_ms is None for each in taken)} of {spikes}")
        print(f"suppression.load-average {load:.1f} -> {os.getloadavg()[0]:.1f}")
        await grown(harness)
        print(f"suppression.flutter {await flutter(harness, steady)} changes in {FLUTTER_SECONDS:.0f} s")
    finally:
        triggers.close()
        await harness.close()


if __name__ == "__main__":
    run_as_root("suppression.reaction", measure)

"""The memory ladder, 100 times (another number as the argument): no service is hurt while batch pods take all memory.

A real executor below a control group of its own with LIMIT_BYTES of memory and MOST_PROCESSES, which is all the memory that it
sees. Each run places a service that holds memory and counts, a batch pod with page cache, and two batch pods of different
priority that take memory without end, at speeds drawn from the run's number. Of each run it is checked that

- the steps came in this order: no further best-effort pods, memory.high or reclaim on best-effort, eviction
- nothing but the two was evicted, and the lower priority first
- the kernel killed nobody for want of memory in the service's groups, and how many elsewhere below the limit
- the service counted on, and afterwards no process, no pod group and no bound of memory is left

One line a run that broke something, then the sums, also of a benchmark that is interrupted (Ctrl-C); ends with 1 if a run
broke something. A run takes about ten seconds. Needs root: `python -m tests.bench.bench_memory_ladder 100`. `SEED` begins at
another run.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import statistics
import sys
import time
from pathlib import Path

from msgspec import Struct

from cotenant_node_executor.targets.cgroup.driver import open_driver
from cotenant_node_executor.targets.cgroup.tree import read_file
from cotenant_node_executor.targets.interface import UNLIMITED_TEXT, CgroupDriver, CgroupVersion, Knob
from tests.benched_server import run_as_root
from tests.integration.node_executor.executor_harness import NODE, Harness, pod_manifest

RUNS = 100
MIB = 1 << 20
LIMIT_BYTES, MOST_PROCESSES = 1 << 30, 2000
THRESHOLD, LOWER = 70, 65
"""Of the limit, in percent; the two steps before an eviction begin at 62 and 64."""
RUN_SECONDS = 60.0
POLL_SECONDS = 0.02
SERVICE_MIB, CACHE_MIB = 48, 64
HEAD = 0.26
"""The share of the limit that each hog takes at once."""
STEP_MIB = 4
HOGS = ("hog-low", "hog-high")
PRIORITIES = {"hog-low": 5100, "hog-high": 5500, "cache": 5900}
SERVICE = (
    "import time\nheld = bytearray({held} << 20)\nn, pages = 0, len(held) // 4096\nwhile True:\n    n += 1\n"
    "    held[::4096] = bytes([n & 255]) * pages\n    open({file!r}, 'w').write(str(n)); time.sleep(0.05)\n"
)
CACHE = (
    "import time\nwith open({file!r}, 'w+b') as file:\n    for _ in range({cache}): file.write(bytes(1 << 20))\n"
    "    file.flush()\n    import os; os.fsync(file.fileno())\n    while True:\n        file.seek(0)\n"
    "        while file.read(1 << 20): pass\n        time.sleep(0.5)\n"
)
HOG = (
    "import time\nheld = [b'x' * ({step} << 20) for _ in range({head} // {step})]\nwhile True:\n"
    "    held.append(b'x' * ({step} << 20)); time.sleep({pause})\n"
)


class Run(Struct):
    """What one run showed."""

    number: int
    wrong: list[str]
    service_kills: int = 0
    other_kills: int = 0
    peak_percent: int = 0
    seconds: float = 0.0
    relieved_seconds: float | None = None
    """From the first sight of memory above the threshold to the victim's end."""


class Ladder:
    """One executor and its runs."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._driver: CgroupDriver = open_driver(harness.base, NODE)
        self._top = self._limited()
        self._limit = 0

    def _limited(self) -> Path:
        """Limit the group around the executor's subtree; returns its directory of the memory controller."""
        found = Path()
        for knob, value in ((Knob.PIDS_MAX, MOST_PROCESSES), (Knob.MEMORY_LIMIT, LIMIT_BYTES)):
            own = self._driver.path("", knob)
            if own is None:
                raise RuntimeError(f"this machine cannot limit {knob.value}: a hog would harm it")
            found = own.parents[2]
            (found / own.name).write_text(str(value), encoding="ascii")
        return found

    async def begin(self) -> None:
        """Start the executor, and let best-effort be held back for memory alone."""
        self._harness.start("--feature-gates=BEMemoryEvict=true")
        section: dict[str, object] = {"enable": True, "memoryEvictThresholdPercent": THRESHOLD}
        section |= {"memoryEvictLowerPercent": LOWER}
        section |= {"cpuSuppressPolicy": "cpuset", "cpuSuppressThresholdPercent": 100}
        await self._harness.node_slo({"resourceUsedThresholdWithBE": section})

    def _kills(self, group: str) -> int:
        """How often the kernel killed in this group, and below on v2, for want of memory."""
        limit = self._driver.path(group, Knob.MEMORY_LIMIT) if group != "/" else self._top / "x"
        assert limit is not None
        name = "memory.oom_control" if self._driver.version is CgroupVersion.V1 else "memory.events"
        words = (read_file(limit.with_name(name)) or "").split()
        return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0

    def _used(self) -> int:
        name = "memory.usage_in_bytes" if self._driver.version is CgroupVersion.V1 else "memory.current"
        return int(read_file(self._top / name) or 0)

    def _batch(self, name: str, script: str) -> dict[str, object]:
        return pod_manifest(
            name,
            script,
            labels={"koordinator.sh/qosClass": "BE"},
            priority=PRIORITIES[name],
            terminationGracePeriodSeconds=1,
        )

    async def run(self, number: int) -> Run:
        """One run."""
        harness, chance, began = self._harness, random.Random(number), time.monotonic()
        folder = harness.folder / f"run-{number}"
        await asyncio.to_thread(_open_folder, folder)
        found = Run(number, [])
        harness.facts.clear()
        count, cache = folder / "count", folder / "cache"
        web = await harness.place(
            pod_manifest(
                "web",
                SERVICE.format(held=SERVICE_MIB, file=str(count)),
                labels={"koordinator.sh/qosClass": "LS"},
                container={"resources": {"requests": {"cpu": "500m", "memory": f"{SERVICE_MIB * 2}Mi"}}},
                priority=9500,
                terminationGracePeriodSeconds=1,
            )
        )
        await harness.place(self._batch("cache", CACHE.format(file=str(cache), cache=CACHE_MIB)))
        await harness.running("web")
        await harness.running("cache")
        head = int(LIMIT_BYTES * HEAD) >> 20
        for name in HOGS:
            script = HOG.format(head=head, step=STEP_MIB, pause=chance.choice((0.05, 0.08, 0.12, 0.2)))
            await harness.place(self._batch(name, script))
        groups = ("burstable", f"burstable/pod{web}", f"burstable/pod{web}/main")
        await self._watch(found)
        found.service_kills = sum(self._kills(group) for group in groups)
        found.other_kills = self._kills("/") + sum(self._kills(group) for group in ("besteffort",))
        await self._judge(found, count)
        await self._clear(found)
        found.seconds = time.monotonic() - began
        return found

    async def _watch(self, found: Run) -> None:
        """Wait until a hog has ended; look at the memory meanwhile."""
        until, above = time.monotonic() + RUN_SECONDS, []
        runs = self._harness.runs
        while not any(name in runs and runs[name].phase.terminal for name in HOGS):
            percent = self._used() * 100 // LIMIT_BYTES
            found.peak_percent = max(found.peak_percent, percent)
            if percent >= THRESHOLD:
                above.append(time.monotonic())
            if time.monotonic() > until:
                found.wrong.append(f"after {RUN_SECONDS:.0f} s no hog has ended: {sorted(runs)}, {percent} % used")
                return
            await asyncio.sleep(POLL_SECONDS)
        if above:
            found.relieved_seconds = time.monotonic() - above[0]

    async def _judge(self, found: Run, count: Path) -> None:
        """Compare what the executor said with what it promises."""
        harness = self._harness
        counted = _number(count)

        await harness.wait("an event tells the eviction", lambda: harness.executions("memory-evict"))
        stopped = [text for event in harness.facts if (text := getattr(event.data, "memory_pressure", ""))]
        await harness.wait("an event tells the relief", lambda: harness.executions("memory-relief"))
        relieved, said = ([each.summary for each in harness.executions(topic)] for topic in ("memory-relief", "memory-evict"))
        steps = [_percent(texts) for texts in (stopped, relieved, said)]
        if None in steps or steps != sorted(each for each in steps if each is not None):
            found.wrong.append(f"the steps were taken at {steps} % of memory: placing stopped, relief, eviction")
        ended = {name: run for name, run in harness.runs.items() if run.phase.terminal}
        for name, run in ended.items():
            if run.reason != "Evicted":
                found.wrong.append(f"{name} ended by {run.reason or run.phase.value}, not evicted")
        if not {"hog-low"} <= set(ended) <= set(HOGS):
            found.wrong.append(f"ended: {sorted(ended)}")
        if "hog-low" not in said[0]:
            found.wrong.append(f"the lower priority was not first: {said[0][:120]}")
        if not await _counts_on(count, counted):
            found.wrong.append("the service does not count on")

    async def _clear(self, found: Run) -> None:
        """End all pods, and see what is left."""
        harness = self._harness
        pods = ("web", "cache", *HOGS)
        for name in pods:
            await harness.end(name, 0)
        for name in pods:
            await harness.ended(name)
            await harness.forget(name)
        await harness.wait("their reports end", lambda: all(harness.run_has_ended(name) for name in pods))
        harness.runs.clear()
        await harness.wait("no groups of pods are left", lambda: not self._left())
        await harness.wait("placing goes on", lambda: not harness.statuses() or not harness.statuses()[-1].memory_pressure)
        high = self._driver.read("besteffort", Knob.MEMORY_HIGH)
        if high is not None and high != UNLIMITED_TEXT and self._driver.version is CgroupVersion.V2:
            await harness.wait(
                "no bound is left", lambda: self._driver.read("besteffort", Knob.MEMORY_HIGH) == UNLIMITED_TEXT
            )
        if pids := self._driver.pids(""):
            found.wrong.append(f"processes are left: {pids}")

    def _left(self) -> list[str]:
        return [group for group in self._driver.rescan() if "/pod" in f"/{group}"]


def _open_folder(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def _number(file: Path) -> int:
    return int((file.read_text() if file.exists() else "") or 0)


async def _counts_on(file: Path, before: int) -> bool:
    for _ in range(500):
        if _number(file) > before:
            return True
        await asyncio.sleep(POLL_SECONDS)
    return False


def _percent(said: list[str]) -> int | None:
    """What of the node's memory was used when a step was taken, by its first report: a relief is told when it is over."""
    found = re.search(r"node memory (\d+)% used", said[0]) if said else None
    return int(found[1]) if found is not None else None


def told(runs: list[Run]) -> int:
    """Print the sums; 1 if a run broke something."""
    print(f"memory-ladder.runs {len(runs)}")
    if not runs:
        return 0
    broken = [run for run in runs if run.wrong or run.service_kills]
    print(f"memory-ladder.broken {len(broken)} {[run.number for run in broken] or ''}")
    print(f"memory-ladder.service-oom-kills {sum(run.service_kills for run in runs)} (goal 0)")
    print(f"memory-ladder.other-oom-kills {sum(run.other_kills for run in runs)}")
    print(f"memory-ladder.peak.p50 {statistics.median(run.peak_percent for run in runs):.0f} %")
    print(f"memory-ladder.peak.worst {max(run.peak_percent for run in runs)} %")
    spans = [run.relieved_seconds for run in runs if run.relieved_seconds is not None]
    if spans:
        print(f"memory-ladder.above-threshold.p50 {statistics.median(spans):.1f} s")
        print(f"memory-ladder.above-threshold.worst {max(spans):.1f} s")
    print(f"memory-ladder.run {statistics.median(run.seconds for run in runs):.1f} s")
    return 1 if broken else 0


async def measure(url: str) -> None:
    """Run the ladder."""
    harness = Harness(url)
    await asyncio.to_thread(harness.folder.chmod, 0o755)
    await harness.open()
    runs: list[Run] = []
    try:
        ladder = Ladder(harness)
        await ladder.begin()
        first = int(os.environ.get("SEED", "1"))
        for number in range(first, first + (int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)):
            runs.append(await ladder.run(number))
            for wrong in runs[-1].wrong:
                print(f"run {number}: {wrong}", flush=True)
    finally:
        await harness.close()
        broken = told(runs)
    if broken:
        raise SystemExit(1)


if __name__ == "__main__":
    run_as_root("memory-ladder", measure)

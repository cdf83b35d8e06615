"""What 3,000 executors' readers of LOG cost a bare server: a consumer each, or republished messages and direct gets.

Both ways with a server of their own (disk, fsync), READERS readers in PROCESSES processes that only read, each pulling as an
executor does. Out, for each way: seconds until all are loaded; at rest, CPU of the server and of the readers as percent of a
core, and by how much the server's and the readers' memory grew; with PLACEMENTS_A_SECOND placements, their latency from before
the write until they are read, beside that until they are stored; with TOMBSTONES_A_SECOND tombstones, each over two earlier
messages, what one costs the server and how long its writer waits.

`python -m tests.bench.bench_readers 1` gives each reader a connection of its own; without a number a process has one. A way as
the second argument leaves out the other.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import uvloop

from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.events import Event, NodeResources
from cotenant.events.placements import Placement
from cotenant.log.contract import LOG, Reader, Stored, Write, ending
from cotenant.log.nats.log import NatsLog, connect
from cotenant.log.storing import store_batch
from cotenant.model.subjects import placement_subject, resources_subject
from cotenant.runtime.reading import PULL_SECONDS
from tests.nats_server import NatsServer

BATCH = MAX_EVENTS_PER_DECISION + 1
READERS = 3_000
PROCESSES = 2
WAYS = ("consumer", "republished")
SUBJECTS_A_NODE = 4
SETTLE_SECONDS = 75.0
"""Until the republished readers look as seldom as they will."""
REST_SECONDS = 60.0
WORK_SECONDS = 20.0
PLACEMENTS_A_SECOND = 25
TOMBSTONES_A_SECOND = 25
PULL_LIMIT = 500
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def cpu_seconds(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_A_SECOND


def memory_mib(pids: Sequence[int]) -> float:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                total += int(line.split()[1])
    return total / 1024


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else float("nan")


# -- the readers' process ----------------------------------------------------------------------------------------------


async def read(arguments: argparse.Namespace) -> None:
    """Follow a number of nodes until told to end; then print the latencies of placements, in milliseconds."""
    latencies: list[float] = []

    async def follow(log: NatsLog, node: str, is_loaded: asyncio.Semaphore) -> None:
        selected = f"node.{node}.>"
        reader: Reader = (
            await log.follow(LOG, [selected]) if arguments.way == "consumer" else await log.follow_republished(selected)
        )
        read = 0
        while True:
            events = await reader.pull(PULL_LIMIT, PULL_SECONDS)
            now = time.monotonic_ns()
            before, read = read, read + len(events)
            if before < SUBJECTS_A_NODE <= read:
                reader.loaded()
                is_loaded.release()
            latencies.extend(
                (now - int(event.causes[0])) / 1e6
                for event in events
                if isinstance(event.data, Placement) and event.data.name.startswith("pod-")
            )

    nodes = [node_name(arguments.first + number) for number in range(arguments.count)]
    joining = asyncio.Semaphore(0)
    async with asyncio.TaskGroup() as followers:
        for first in range(0, len(nodes), arguments.per_connection):
            log = await connect(arguments.url, "readers")
            for node in nodes[first : first + arguments.per_connection]:
                followers.create_task(follow(log, node, joining))
        for _ in nodes:
            await joining.acquire()
        print("loaded", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        print(" ".join(f"{latency:.3f}" for latency in latencies), flush=True)
        os._exit(0)


# -- the measuring process ---------------------------------------------------------------------------------------------


async def store(log: NatsLog, events: Sequence[Event]) -> None:
    for first in range(0, len(events), BATCH):
        outcome = await store_batch(log, [Write(event=event) for event in events[first : first + BATCH]], tries=20)
        assert isinstance(outcome, Stored), outcome


def report(node: str, index: int) -> Event:
    """One of the subjects that a node has anyway."""
    return Event(subject=f"{resources_subject(node)}.{index}", data=NodeResources(node=node, batch_cpu_milli=index))


def placement(node: str, pod: str) -> Event:
    data = Placement(node=node, namespace="default", name=pod, uid=pod)
    return Event(subject=placement_subject(node, "default", pod), data=data, causes=(str(time.monotonic_ns()),))


async def paced(rate: int, seconds: float, act: Callable[[int], Awaitable[None]]) -> int:
    """Act so many times a second, each in a task of its own; return how often."""
    started, tasks = time.monotonic(), []
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))
        tasks.append(asyncio.ensure_future(act(number)))
    await asyncio.gather(*tasks)
    return len(tasks)


async def measure(way: str, per_connection: int) -> None:
    """Print one line a figure of one way."""
    server = NatsServer()
    server.start()
    children: list[subprocess.Popen[str]] = []
    try:
        assert server._process is not None
        log = await connect(server.url, "bench")
        await log.declare()
        await store(log, [report(node_name(n), index) for n in range(READERS) for index in range(SUBJECTS_A_NODE)])
        bare = memory_mib([server._process.pid])
        idle = memory_of_an_idle_reader()
        started, count = time.monotonic(), READERS // PROCESSES
        for number in range(PROCESSES):
            orders = [str(number * count), str(count), str(min(per_connection, count))]
            command = [sys.executable, "-m", "tests.bench.bench_readers", "--read", way, server.url, *orders]
            children.append(started_process(command))
        for child in children:
            assert child.stdout is not None
            assert (await asyncio.to_thread(child.stdout.readline)).strip() == "loaded"
        print(f"readers_{way}_joined {time.monotonic() - started:.1f} s")
        servers, readers = [server._process.pid], [child.pid for child in children]
        await asyncio.sleep(SETTLE_SECONDS)
        before, began = (cpu_seconds(servers), cpu_seconds(readers)), time.monotonic()
        await asyncio.sleep(REST_SECONDS)
        passed = time.monotonic() - began
        rest = (cpu_seconds(servers) - before[0]) / passed
        print(f"readers_{way}_rest_server_cpu {100 * rest:.1f} percent_of_a_core")
        print(f"readers_{way}_rest_readers_cpu {100 * (cpu_seconds(readers) - before[1]) / passed:.1f} percent_of_a_core")
        print(f"readers_{way}_server_memory {memory_mib(servers) - bare:.0f} MiB")
        print(f"readers_{way}_readers_memory {memory_mib(readers) - PROCESSES * idle:.0f} MiB")

        waits: list[float] = []

        async def place(number: int) -> None:
            asked = time.monotonic()
            await log.append([Write(event=placement(node_name(random.randrange(READERS)), f"pod-{number}"))])
            waits.append(1000 * (time.monotonic() - asked))

        began, used = time.monotonic(), cpu_seconds(servers)
        placed = await paced(PLACEMENTS_A_SECOND, WORK_SECONDS, place)
        used = cpu_seconds(servers) - used - rest * (time.monotonic() - began)
        print(f"readers_{way}_placement_server_cpu {1000 * used / placed:.2f} ms")
        print(f"readers_{way}_placement_stored_p50 {percentile(waits, 0.5):.1f} ms")
        print(f"readers_{way}_placement_stored_p99 {percentile(waits, 0.99):.1f} ms")
        waits.clear()

        nodes = [node_name(random.randrange(READERS)) for _ in range(int(TOMBSTONES_A_SECOND * WORK_SECONDS))]
        for _ in range(2):
            await store(log, [placement(node, f"gone-{number}") for number, node in enumerate(nodes)])

        async def end(number: int) -> None:
            asked, last = time.monotonic(), placement(nodes[number], f"gone-{number}")
            # One try: a server that does not answer in time has a tombstone that cost so much at least.
            await log.append([Write(event=ending(last.subject, last.data))])
            waits.append(1000 * (time.monotonic() - asked))

        began, used = time.monotonic(), cpu_seconds(servers)
        ended = await paced(TOMBSTONES_A_SECOND, WORK_SECONDS, end)
        used = cpu_seconds(servers) - used - rest * (time.monotonic() - began)
        print(f"readers_{way}_tombstone_server_cpu {1000 * used / ended:.2f} ms")
        print(f"readers_{way}_tombstone_p50 {percentile(waits, 0.5):.1f} ms")
        print(f"readers_{way}_tombstone_p99 {percentile(waits, 0.99):.1f} ms")
        latencies = [value for child in children for value in await asyncio.to_thread(told, child)]
        print(f"readers_{way}_placements_read {len(latencies)} of {placed}")
        print(f"readers_{way}_placement_p50 {percentile(latencies, 0.5):.1f} ms")
        print(f"readers_{way}_placement_p99 {percentile(latencies, 0.99):.1f} ms")
        await log.close()
    finally:
        for child in children:
            child.kill()
            child.wait()
        server.close()


def started_process(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process of readers."""
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(child: subprocess.Popen[str]) -> list[float]:
    """Have a readers' process end; return what it measured."""
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return [float(word) for word in child.stdout.readline().split()]


def memory_of_an_idle_reader() -> float:
    """What a process takes that has loaded the same modules and reads nothing."""
    code = "import tests.bench.bench_readers, sys; print('up', flush=True); sys.stdin.readline()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        used = memory_mib([child.pid])
        child.communicate("\n")
    return used


def main() -> None:
    """Measure both ways, or be one of the readers' processes."""
    if sys.argv[1:2] == ["--read"]:
        parser = argparse.ArgumentParser()
        for name, kind in (("way", str), ("url", str), ("first", int), ("count", int), ("per_connection", int)):
            parser.add_argument(name, type=kind)
        uvloop.run(read(parser.parse_args(sys.argv[2:])))
        return
    per_connection = int(sys.argv[1]) if len(sys.argv) > 1 else READERS
    for way in sys.argv[2:] or WAYS:
        uvloop.run(measure(way, per_connection))


if __name__ == "__main__":
    main()

"""What overcommitment of 10,000 nodes takes, through the services as processes and a nats-server with fsync.

* recomputed: from a change of the ConfigMap `slo-controller-config` that changes every node's figures until the last node's
  resources event is read; its share that is the service's own CPU time;
* lent: 700 nodes a second get a new NodeMetric, in the batches that metrics-ingest makes: what became due since its last look,
  one batch at a time. From the metric's write until its resources event is read, median and p99. Its parts: metric_stored until
  the metric's own acknowledgement, which is the disk's; decided until the calculator began to decide (the event's time);
  answered from there until the event is read, which is deciding, the disk's again, and delivery. since_stored is from the
  metric's acknowledgement until the resources event is read. slowest: the means of the parts over the slowest 1 %, which say
  where the p99 comes from. batches: atomic batches a second, of metrics and of resources;
* usage: the whole way, with metrics-ingest as a process (`usage_path`).

30 prod pods a node. Every metric moves the node's figures by more than the dead band. Run it alone, on an idle machine:
`python -m tests.bench.bench_overcommitment`. COTENANT_BENCH_NODES and COTENANT_BENCH_RATE set another number of nodes and of
metrics a second; COTENANT_BENCH_INTERVALS_MS other times between two batches of metrics, measured one after the other
(`25,50,25,50`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec
import uvloop

from cotenant.events import Event, NodeMetricComputed, NodeResources, Placement
from cotenant.events.node.metrics import PodMetric, Usage
from cotenant.log.contract import LOG, MAX_BATCH, Stored, Write
from cotenant.log.nats.log import NatsLog
from cotenant.log.nats.reader import NatsReader
from cotenant.model.subjects import metrics_subject, node_subject, object_subject, placement_subject
from cotenant.runtime.process import GC_THRESHOLDS
from cotenant_metrics_ingest.core import LOOK_EVERY
from cotenant_verification.bench.testbed import Testbed
from tests.bench import usage_path
from tests.builders import encoded, node_document, pod_document, stored

NODES = int(os.environ.get("COTENANT_BENCH_NODES", "10000"))
PODS = 30
RATE = int(os.environ.get("COTENANT_BENCH_RATE", "700"))
SECONDS = 15
LOOK_MS = round(LOOK_EVERY.total_seconds() * 1000)
INTERVALS_MS = [int(each) for each in os.environ.get("COTENANT_BENCH_INTERVALS_MS", str(LOOK_MS)).split(",")]
SETTLED_SECONDS = 120.0
LOADED_SECONDS = 900.0
"""300,000 placements are written and loaded."""
CONFIG = object_subject("", "configmaps", "koordinator-system", "slo-controller-config")
CAPACITY = {"cpu": "64", "memory": "256Gi"}
PODS_CPU, PODS_MEMORY = 1000, 2 << 30
SERVICE = "batch-resource-calculator"


class Lent(msgspec.Struct):
    """One node's change: when its metric was written (wall clock), and the seconds from then until the metric was acknowledged,
    the calculator decided, and the resources event was read. `commit`: the commit that stored it."""

    written: float
    stored: float = 0.0
    decided: float = 0.0
    read: float = 0.0
    commit: str = ""


def node_name(number: int) -> str:
    return f"node-{number:05}"


def configuration(percent: int) -> Event:
    text = f'{{"enable": true, "cpuReclaimThresholdPercent": {percent}}}'
    document = {"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": text}}
    return Event(subject=CONFIG, data=stored(document))


def metric(number: int, cpu_milli: int) -> Event:
    """A node's report: its pods use so much together."""
    name, now = node_name(number), datetime.now(UTC)
    pods = tuple(
        PodMetric(
            namespace="default",
            name=f"{name}-{pod}",
            uid=f"{name}-{pod}",
            priority="koord-prod",
            qos="LS",
            usage=Usage(cpu_milli=cpu_milli // PODS, memory_bytes=PODS_MEMORY),
        )
        for pod in range(PODS)
    )
    data = NodeMetricComputed(
        node=name,
        update_time=now,
        node_usage=Usage(cpu_milli=cpu_milli + 500, memory_bytes=PODS * PODS_MEMORY + (1 << 30)),
        system_usage=Usage(cpu_milli=500, memory_bytes=1 << 30),
        pods=pods,
    )
    return Event(subject=metrics_subject(name), data=data)


def facts() -> Iterator[Event]:
    """Everything that a load reads: nodes, their pods, a report of each."""
    yield configuration(60)
    requests = {"cpu": f"{PODS_CPU}m", "memory": str(PODS_MEMORY)}
    manifest = encoded(pod_document("web", labels={"koordinator.sh/qosClass": "LS"}, requests=requests))
    for number in range(NODES):
        name = node_name(number)
        yield Event(subject=node_subject(name), data=stored(node_document(name, capacity=CAPACITY, allocatable=CAPACITY)))
        for pod in range(PODS):
            own = f"{name}-{pod}"
            placed = Placement(node=name, namespace="default", name=own, uid=own, pod=manifest)
            yield Event(subject=placement_subject(name, "default", own), data=placed)
        yield metric(number, 10_000)


async def measure() -> None:
    """Print one line a figure."""
    async with Testbed() as testbed:
        log = testbed.log
        await testbed.write(facts())
        reader = await log.follow(LOG, ("node.*.resources",))
        reader.loaded()
        testbed.start_module(SERVICE, "cotenant_batch_resource_calculator", "--nats", testbed.url, "--http-port", "-1")
        seen = await read(reader, NODES, LOADED_SECONDS)
        before = testbed.cpu_seconds()[SERVICE]
        began = time.perf_counter()
        assert isinstance(await log.append([Write(event=configuration(80))]), Stored)
        assert await read(reader, NODES) == seen
        print(f"overcommitment_recomputed {time.perf_counter() - began:.2f} s")
        print(f"overcommitment_recomputed_cpu {testbed.cpu_seconds()[SERVICE] - before:.2f} s")
        for turn, interval_ms in enumerate(INTERVALS_MS):
            earlier = testbed.cpu_seconds()
            changes, batches, seconds = await lent(log, reader, interval_ms / 1000, turn * RATE * SECONDS)
            print(f"overcommitment_lent_interval {interval_ms} ms")
            show_parts(changes)
            answers = len({change.commit for change in changes})
            print(f"overcommitment_lent_batches {batches / seconds:.0f} + {answers / seconds:.0f} 1/s")
            print(f"overcommitment_lent_rate {RATE * SECONDS / seconds:.0f} 1/s")
            usage_path.show_spent("overcommitment_lent", testbed, earlier, seconds)
        await usage_path.measure(testbed, reader, [node_name(number) for number in range(NODES)], RATE, PODS)
        await reader.close()


def show_parts(changes: Sequence[Lent]) -> None:
    """Print the parts of the changes' time, and of that of the slowest ones."""
    parts = {
        "": [change.read for change in changes],
        "_metric_stored": [change.stored for change in changes],
        "_decided": [change.decided for change in changes],
        "_answered": [change.read - change.decided for change in changes],
        "_since_stored": [change.read - change.stored for change in changes],
    }
    usage_path.show_parts("overcommitment_lent", parts)
    slowest = sorted(range(len(changes)), key=lambda place: changes[place].read)[-max(len(changes) // 100, 1) :]
    for part, seconds in parts.items():
        print(f"overcommitment_lent_slowest{part} {1000 * sum(seconds[place] for place in slowest) / len(slowest):.1f} ms")


async def read(reader: NatsReader, count: int, seconds: float = SETTLED_SECONDS) -> set[str]:
    """Read until so many nodes have a new event."""
    seen: set[str] = set()
    deadline = time.perf_counter() + seconds
    while len(seen) < count:
        assert time.perf_counter() < deadline, f"only {len(seen)} of {count} nodes after {seconds:.0f} s"
        for event in await reader.pull(MAX_BATCH, 1.0):
            assert isinstance(event.data, NodeResources)
            seen.add(event.data.node)
    return seen


async def lent(log: NatsLog, reader: NatsReader, interval: float, before: int) -> tuple[list[Lent], int, float]:
    """The changes whose metric led to a resources event, which names it; how many batches of metrics were written, and in how
    many seconds. `interval`: seconds between two batches; `before`: changes that were written before."""
    waiting: dict[str, float] = {}
    """When a node's last metric was written."""
    stored_as: dict[str, Lent] = {}
    answers: dict[str, tuple[float, Event]] = {}
    """By the metric: when its resources event was read."""
    total = RATE * SECONDS
    done = asyncio.Event()

    async def follow() -> None:
        while waiting or not done.is_set():
            for event in await reader.pull(MAX_BATCH, 0.05):
                assert isinstance(event.data, NodeResources)
                answers.setdefault(event.causes[0], (time.time(), event))
                if decided_at(event) > waiting.get(event.data.node, 0.0):
                    waiting.pop(event.data.node, None)

    async def write(events: list[Event]) -> None:
        now = time.time()
        for event in events:
            assert isinstance(event.data, NodeMetricComputed)
            waiting[event.data.node] = now
        outcome = await log.append([Write(event=event) for event in events])
        assert isinstance(outcome, Stored), outcome
        stored = time.time() - now
        stored_as.update({f"{LOG}:{outcome.first + place}": Lent(now, stored) for place in range(len(events))})

    # Built ahead, so that the reader is not kept waiting.
    numbers = range(before, before + total)
    events = [metric(number % NODES, 20_000 if (number // NODES) % 2 == 0 else 10_000) for number in numbers]
    # A whole collection stops the reader for 35 ms, which would count as the service's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    following = asyncio.create_task(follow())
    start = time.perf_counter()
    batches = written = 0
    while written < total:
        look = time.perf_counter()
        due = min(int((look - start) * RATE) + 1, total, written + MAX_BATCH)
        if due > written:
            await write(events[written:due])
            batches, written = batches + 1, due
        await asyncio.sleep(max(0.0, look + interval - time.perf_counter()))
    spent = time.perf_counter() - start
    done.set()
    async with asyncio.timeout(SETTLED_SECONDS):
        await following
    changes = []
    for metric_ref, change in stored_as.items():
        if metric_ref in answers:
            read_at, event = answers[metric_ref]
            change.read, change.decided = read_at - change.written, decided_at(event) - change.written
            change.commit = event.id.rpartition("/")[0]
            changes.append(change)
    return changes, batches, spent


def decided_at(event: Event) -> float:
    """When its service began to decide."""
    assert event.time is not None
    return event.time.timestamp()


if __name__ == "__main__":
    uvloop.run(measure())

"""The whole way of a usage sample: through metrics-ingest and the calculator as processes, until resources are stored.

In: a testbed whose log has nodes with pods and whose calculator is running. metrics-ingest is started, each node sends a
message, and once all are reported each sends another one, `rate` a second, that changes its figures by more than the dead
band. The report interval is so short that each of these makes a report: of 10,000 nodes that send every 15 s some 700 a second
are due where all began together.

Out, from the publication of the message until its node's resources event is read, median and p99, and its parts: reported until
metrics-ingest began to decide (the metric's time), metric_read from there until the metric is read from LOG, since_metric from
there until the resources event is read. batches: atomic batches a second of metrics-ingest and of the calculator.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.usage import PodUsage, Series, UsageSample
from cotenant.log.contract import LOG, MAX_BATCH, USAGE
from cotenant.log.nats.log import NatsLog
from cotenant.log.nats.reader import NatsReader
from cotenant.model.subjects import usage_subject
from cotenant_verification.bench.testbed import Testbed

SERVICE = "metrics-ingest"
REPORT_INTERVAL_SECONDS = 10
OFFSETS_MS = tuple(range(-14_000, 1, 1000))
SPAN = timedelta(seconds=16)
"""Between a node's messages, so that their samples do not overlap."""
SETTLED_SECONDS = 180.0
GIB = 1 << 30


class Sent(msgspec.Struct):
    """A message: when it was published (wall clock), and the seconds until each further event was decided or read. The commits
    are those that stored them."""

    at: float
    reported: float = 0.0
    metric_read: float = 0.0
    read: float = 0.0
    report_commit: str = ""
    answer_commit: str = ""


def message(node: str, counter: int, cpu_milli: int, pods: int) -> Event:
    """A node's message: fifteen samples, its pods use so much together."""

    def series(cpu: int, memory: int) -> Series:
        return Series(cpu_milli=(cpu,) * len(OFFSETS_MS), memory_bytes=(memory,) * len(OFFSETS_MS))

    sample = UsageSample(
        node=node,
        boot="1",
        counter=counter,
        offsets_ms=OFFSETS_MS,
        node_usage=series(cpu_milli + 500, 61 * GIB),
        system_usage=series(500, GIB),
        pods=tuple(
            PodUsage(
                namespace="default",
                name=f"{node}-{pod}",
                uid=f"{node}-{pod}",
                qos="LS",
                priority="koord-prod",
                series=series(cpu_milli // pods, 2 * GIB),
            )
            for pod in range(pods)
        ),
    )
    return Event(
        subject=usage_subject(node), data=sample, time=datetime.now(UTC), id=f"{node}/{counter}", source="/bench", stream=USAGE
    )


async def measure(testbed: Testbed, resources: NatsReader, nodes: Sequence[str], rate: int, pods: int) -> None:
    """Print one line a figure. `resources`: a reader of the nodes' resources events."""
    log = testbed.log
    metrics = await log.follow(LOG, ("metrics.*",))
    metrics.loaded()
    began = time.monotonic()
    testbed.start_module(
        SERVICE,
        "cotenant_metrics_ingest",
        *("--nats", testbed.url, "--http-port", "-1", "--set", f"report_interval_seconds={REPORT_INTERVAL_SECONDS}"),
    )
    for node in nodes:
        assert await log.publish(message(node, 1, 10_000, pods)) is not None
    await reported(metrics, set(nodes))
    print(f"overcommitment_usage_started {time.monotonic() - began:.1f} s")
    await asyncio.sleep(SPAN.total_seconds())
    while await resources.pull(MAX_BATCH, 1.0):
        pass
    earlier, start = testbed.cpu_seconds(), time.perf_counter()
    sent, seconds = await sent_and_answered(log, metrics, resources, nodes, rate, pods)
    show_spent("overcommitment_usage", testbed, earlier, time.perf_counter() - start)
    show(sent, seconds)
    await metrics.close()


async def reported(metrics: NatsReader, missing: set[str]) -> None:
    """Read until each of these nodes has a report of its samples."""
    deadline = time.monotonic() + SETTLED_SECONDS
    while missing:
        assert time.monotonic() < deadline, f"{len(missing)} nodes are not reported"
        for event in await metrics.pull(MAX_BATCH, 1.0):
            if isinstance(event.data, NodeMetricComputed) and event.data.digest is not None:
                missing.discard(event.data.node)


async def sent_and_answered(
    log: NatsLog, metrics: NatsReader, resources: NatsReader, nodes: Sequence[str], rate: int, pods: int
) -> tuple[list[Sent], float]:
    """One message of each node, and in how many seconds all were published. Only those with a resources event are returned."""
    by_message: dict[str, Sent] = {}
    reports: dict[str, tuple[float, Event]] = {}
    answers: dict[str, tuple[float, Event]] = {}
    missing, complete = set(nodes), asyncio.Event()

    async def follow(reader: NatsReader, found: dict[str, tuple[float, Event]]) -> None:
        while True:
            for event in await reader.pull(MAX_BATCH, 1.0):
                if event.causes:
                    found.setdefault(event.causes[0], (time.time(), event))
                if isinstance(event.data, NodeResources):
                    missing.discard(event.data.node)
            if not missing:
                complete.set()

    async def publish(event: Event) -> None:
        at = time.time()
        sequence = await log.publish(event)
        by_message[f"{USAGE}:{sequence}"] = Sent(at)

    following = [asyncio.create_task(follow(metrics, reports)), asyncio.create_task(follow(resources, answers))]
    start = time.perf_counter()
    publishing = []
    for place, node in enumerate(nodes):
        await asyncio.sleep(max(0.0, start + place / rate - time.perf_counter()))
        publishing.append(asyncio.create_task(publish(message(node, 2, 30_000, pods))))
    await asyncio.gather(*publishing)
    seconds = time.perf_counter() - start
    async with asyncio.timeout(SETTLED_SECONDS):
        await complete.wait()
    for task in following:
        task.cancel()
    await asyncio.wait(following)
    return joined(by_message, reports, answers), seconds


def joined(
    by_message: Mapping[str, Sent], reports: Mapping[str, tuple[float, Event]], answers: Mapping[str, tuple[float, Event]]
) -> list[Sent]:
    """The messages whose report led to a resources event: each event names its cause."""
    found = []
    for cause, sent in by_message.items():
        if cause not in reports:
            continue
        metric_read, report = reports[cause]
        if report.ref not in answers:
            continue
        read, answer = answers[report.ref]
        assert report.time is not None
        sent.reported, sent.metric_read, sent.read = report.time.timestamp() - sent.at, metric_read - sent.at, read - sent.at
        sent.report_commit, sent.answer_commit = (each.id.rpartition("/")[0] for each in (report, answer))
        found.append(sent)
    return found


def show(sent: Sequence[Sent], seconds: float) -> None:
    """Print the parts of the messages' time, and the batches."""
    parts = {
        "": [each.read for each in sent],
        "_reported": [each.reported for each in sent],
        "_metric_read": [each.metric_read - each.reported for each in sent],
        "_since_metric": [each.read - each.metric_read for each in sent],
    }
    show_parts("overcommitment_usage", parts)
    reports, answers = len({each.report_commit for each in sent}), len({each.answer_commit for each in sent})
    print(f"overcommitment_usage_batches {reports / seconds:.0f} + {answers / seconds:.0f} 1/s")
    print(f"overcommitment_usage_rate {len(sent) / seconds:.0f} 1/s")


def show_parts(figure: str, parts: Mapping[str, Sequence[float]]) -> None:
    """Print median and 99th percentile of each part; times in seconds."""
    for part, times in parts.items():
        found = sorted(times)
        print(f"{figure}{part}_p50 {1000 * found[len(found) // 2]:.1f} ms")
        print(f"{figure}{part}_p99 {1000 * found[int(len(found) * 0.99)]:.1f} ms")


def show_spent(figure: str, testbed: Testbed, earlier: Mapping[str, float], seconds: float) -> None:
    """Print each process's share of a core since its earlier CPU time."""
    for name, spent in sorted(testbed.cpu_seconds().items()):
        share = 100 * (spent - earlier.get(name, 0.0)) / seconds
        print(f"{figure}_{name.replace('-', '_')}_cpu {share:.0f} percent of a core")

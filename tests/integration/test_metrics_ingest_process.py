"""metrics-ingest as a process on a real server: samples become NodeMetrics, kill -9 loses no window, rubbish stops
nothing.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from cotenant.events import Event, NodeMetricComputed, ObjectStored, UsageSample
from cotenant.events.node.usage import Series
from cotenant.log.contract import EXECUTION, LOG, USAGE, Stored, Write
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.model.subjects import node_subject, usage_subject
from tests.nats_server import NatsServer

WAIT_SECONDS = 90


def metrics_ingest(server: NatsServer, replica: str) -> subprocess.Popen[bytes]:
    flags = ["--set", "report_interval_seconds=1", "--set", "aggregate_duration_seconds=300"]
    command = [sys.executable, "-m", "cotenant_metrics_ingest", "--nats", server.url, "--http-port", "-1"]
    return subprocess.Popen([*command, "--replica", replica, *flags])


async def sample(log: NatsLog, counter: int, cpu: list[int], at: datetime) -> None:
    data = UsageSample(
        node="n1",
        boot="b1",
        counter=counter,
        offsets_ms=tuple(range(-len(cpu) + 1, 1)),
        period_ms=1,
        node_usage=Series(cpu_milli=tuple(cpu), memory_bytes=tuple(4096 for _ in cpu)),
    )
    event = Event(subject=usage_subject("n1"), data=data, time=at, id=f"test/{counter}", source="/test", stream=USAGE)
    assert await log.publish(event) is not None


async def metric(log: NatsLog, expected: Callable[[NodeMetricComputed], bool]) -> Event:
    """Wait (bounded) until the node's metric is as expected."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            for event in await read_all(log, LOG, ["metrics.n1"]):
                if isinstance(event.data, NodeMetricComputed) and expected(event.data):
                    return event


async def test_samples_become_metrics_and_a_kill_loses_no_window(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    document = msgspec.Raw(msgspec.json.encode({"metadata": {"name": "n1"}}))
    node = Event(
        subject=node_subject("n1"), data=ObjectStored(object=document), time=datetime.now(UTC), id="n1", source="/test"
    )
    assert isinstance(await log.append([Write(event=node)]), Stored)
    process = metrics_ingest(nats_server, "first")
    try:
        await sample(log, 1, [1000, 2000, 3000], datetime.now(UTC))
        first = await metric(log, lambda found: found.node_usage.cpu_milli == 2000)
        assert any(cause.startswith("USAGE:") for cause in first.causes)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = metrics_ingest(nats_server, "second")
        await sample(log, 2, [8000, 8000, 8000], datetime.now(UTC))
        await metric(log, lambda found: found.node_usage.cpu_milli == 5000)
        await log.client.publish("usage.n1", b"this is no CloudEvent")
        await sample(log, 3, [9000], datetime(2020, 1, 1, tzinfo=UTC))
        refused = await metric(log, lambda found: found.refused_samples == 1)
        assert isinstance(refused.data, NodeMetricComputed)
        assert refused.data.refused_reason.startswith("TimeRunsBackwards")
        assert refused.data.node_usage.cpu_milli == 5000
        async with asyncio.timeout(WAIT_SECONDS):
            while not await read_all(log, EXECUTION, ["deadletter.USAGE.*"]):
                continue
    finally:
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    await log.close()

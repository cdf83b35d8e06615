"""batch-resource-calculator as a process on a real server: it follows the metrics, keeps what a rejected ConfigMap had in
force over a kill -9, every commit can be recomputed, and it answers what another ConfigMap would change.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from cotenant.engine.replay import verify
from cotenant.events import Event, NodeMetricComputed, NodeResources, ObjectStored, Payload
from cotenant.events.node.metrics import Usage
from cotenant.events.requests import CONFIG_DRY_RUN, ConfigEffect
from cotenant.log.contract import HISTORY, LOG, Stored, Write
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.model.subjects import metrics_subject, node_subject, object_subject
from cotenant_batch_resource_calculator.definition import DEFINITION
from tests.nats_server import NatsServer

WAIT_SECONDS = 90
CONFIG = object_subject("", "configmaps", "koordinator-system", "slo-controller-config")


def calculator(server: NatsServer, replica: str) -> subprocess.Popen[bytes]:
    module = "cotenant_batch_resource_calculator"
    return subprocess.Popen([sys.executable, "-m", module, "--nats", server.url, "--replica", replica, "--http-port", "-1"])


async def say(log: NatsLog, subject: str, data: Payload) -> None:
    now = datetime.now(UTC)
    event = Event(subject=subject, data=data, time=now, id=f"test/{subject}/{now.timestamp()}", source="/test")
    assert isinstance(await log.append([Write(event=event)]), Stored)


async def configure(log: NatsLog, colocation: str) -> None:
    document = {"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": colocation}}
    await say(log, CONFIG, ObjectStored(object=msgspec.Raw(msgspec.json.encode(document))))


async def measure(log: NatsLog, node: str, cpu_milli: int) -> None:
    used = Usage(cpu_milli=cpu_milli, memory_bytes=1 << 30)
    data = NodeMetricComputed(node=node, update_time=datetime.now(UTC), node_usage=used, system_usage=used)
    await say(log, metrics_subject(node), data)


async def lent(log: NatsLog, holds: Callable[[NodeResources], bool]) -> NodeResources:
    """Wait (bounded) until the node's resources are as expected."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            events = await read_all(log, LOG, ["node.*.resources"])
            last = events[-1].data if events else None
            if isinstance(last, NodeResources) and holds(last):
                return last


async def test_the_process_lends_survives_kill_nine_and_can_be_recomputed(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await configure(log, '{"enable": true, "cpuReclaimThresholdPercent": 50}')
    node = {"metadata": {"name": "n.1"}, "status": {"capacity": {"cpu": "8", "memory": "16Gi"}}}
    await say(log, node_subject("n.1"), ObjectStored(object=msgspec.Raw(msgspec.json.encode(node))))
    process = calculator(nats_server, "first")
    try:
        await lent(log, lambda found: found.reason == "NoMetric")
        await measure(log, "n.1", 1000)
        await lent(log, lambda found: found.batch_cpu_milli == 3000)
        process.send_signal(signal.SIGKILL)
        process.wait()
        await configure(log, "not JSON")
        await measure(log, "n.1", 2000)
        process = calculator(nats_server, "second")
        kept = await lent(log, lambda found: found.batch_cpu_milli == 2000)
    finally:
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    assert kept.reason == "ConfigRejected"
    last = await log.last_sequence(LOG)
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            history = await read_all(log, HISTORY, [">"])
            if history and history[-1].sequence >= last:
                break
    report = verify(history, {DEFINITION.name: DEFINITION})
    assert report.ok, report.first_difference
    assert report.verified >= 3
    await log.close()


async def asked(log: NatsLog, data: dict[str, str]) -> ConfigEffect:
    """Ask what a configuration would change; the service has loaded."""
    reply = await log.client.request(CONFIG_DRY_RUN, json.dumps(data).encode(), timeout=WAIT_SECONDS)
    assert not reply.headers, reply.headers
    return msgspec.json.decode(reply.data, type=ConfigEffect)


async def test_the_process_answers_what_a_configuration_would_change(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await configure(log, '{"enable": true, "cpuReclaimThresholdPercent": 50}')
    node = {"metadata": {"name": "n.1"}, "status": {"capacity": {"cpu": "8", "memory": "16Gi"}}}
    await say(log, node_subject("n.1"), ObjectStored(object=msgspec.Raw(msgspec.json.encode(node))))
    await measure(log, "n.1", 1000)
    process = calculator(nats_server, "only")
    try:
        await lent(log, lambda found: found.batch_cpu_milli == 3000)
        halved = '{"enable": true, "cpuReclaimThresholdPercent": 25}'
        effect = await asked(log, {"colocation-config": halved})
        assert effect == ConfigEffect(nodes=1, changes={"batch-cpu": -66.67})
        broken = await asked(log, {"colocation-config": '{"degradeTimeMinutes": 0}'})
        assert "degradeTimeMinutes" in broken.rejected["colocation-config"]
        assert (broken.nodes, broken.changes, broken.error) == (0, {}, "")
        assert await asked(log, {"colocation-config": '{"enable": true, "cpuReclaimThresholdPercent": 50}'}) == ConfigEffect()
    finally:
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
        await log.close()

"""Whatever is published on the streams and asked of the endpoints, no service stops: a pod runs afterwards."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from cotenant.engine.commit import Identity
from cotenant.events.deadletters import DeadLetter
from cotenant.events.migrations import evict_subject
from cotenant.events.requests import adopt_subject, logs_subject
from cotenant.log.contract import EXECUTION
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.runtime.deciding import DecidingService
from cotenant.runtime.follower import utc_now
from cotenant_batch_resource_calculator.definition import DEFINITION as CALCULATOR
from cotenant_descheduler_arbiter.definition import DEFINITION as ARBITER
from cotenant_metrics_ingest.definition import DEFINITION as METRICS
from cotenant_quota_tree.definition import DEFINITION as QUOTAS
from cotenant_scheduler.definition import DEFINITION as SCHEDULER
from tests.fuzz.extremes import TEXTS
from tests.fuzz.facts import OBJECT, STREAMS, SUBJECTS, event
from tests.integration.gateway.gateway_process import PODS, GatewayProcess, pod
from tests.nats_server import NatsServer

WAIT_SECONDS = 120
MESSAGES = 300
HEADER_BYTES = 8192
NODE = "calm"
"""A node that no message speaks of."""
EXECUTOR = Path(sys.executable).parent / "cotenant-node-executor"
HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"Nats-TTL": "²s"},
    {"Nats-TTL": "never"},
    {"Nats-Msg-Id": "x" * 4000},
    {"Nats-Marker-Reason": "?"},
    {"Nats-Stream-Source": "LOG ²"},
    {"Nats-Expected-Last-Subject-Sequence": "9" * 30},
    {"a": "ä"},
)


def message(random: Random) -> tuple[str, bytes]:
    """A subject of a stream, and bytes that are no event of it; an event of another type at best."""
    wires = sorted(wire for wire in SUBJECTS if STREAMS[wire] != "HISTORY" and not wire.startswith("cotenant.object"))
    subject = event(random, random.choice([*wires, OBJECT]), 0.0).subject
    other = event(
        random, random.choice([wire for wire in wires if wire != "cotenant.quota.v1"]), random.choice((0.0, 0.3))
    ).data
    match random.randrange(6):
        case 0:
            return subject, random.randbytes(random.choice((0, 1, 100)))
        case 1:
            return subject, other[: random.randrange(len(other))]
        case 2:
            place = random.randrange(len(other))
            return subject, other[:place] + random.randbytes(1) + other[place + 1 :]
        case 3:
            return subject, other
        case 4:
            return subject, other[:-2] + b',"more":"' + b"x" * random.choice((0, 1 << 20)) + b'"}}'
        case _:
            return subject, random.choice(TEXTS).encode(errors="replace")


def simulated_node(server: NatsServer, folder: Path) -> subprocess.Popen[bytes]:
    """Start an executor that simulates NODE."""
    return subprocess.Popen([EXECUTOR, "--nats", server.url, "--simulate", NODE, "--data", folder, "--http-port", "-1"])


@asynccontextmanager
async def services(server: NatsServer, folder: Path) -> AsyncIterator[tuple[NatsLog, GatewayProcess, list[asyncio.Task[None]]]]:
    """The deciding services in this process; gateway and executor in their own."""
    log = await connect(server.url, "test")
    await log.declare()
    running = [
        DecidingService(each, each.config_from(b"{}"), Identity(service=each.name), log, None, utc_now)
        for each in (SCHEDULER, CALCULATOR, QUOTAS, ARBITER, METRICS)
    ]
    tasks = [asyncio.ensure_future(service.run()) for service in running]
    gateway, executor = GatewayProcess(server.url), simulated_node(server, folder)
    try:
        await gateway.ready()
        yield log, gateway, tasks
        assert executor.poll() is None
        assert gateway.process.poll() is None
        assert [task for task in tasks if task.done()] == []
    finally:
        for service in running:
            service.stopping.set()
        executor.terminate()
        executor.wait(WAIT_SECONDS)
        gateway.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await log.close()


async def until_running(gateway: GatewayProcess, name: str) -> None:
    """Wait until a pod runs, within a bound."""
    async with gateway.session() as session, asyncio.timeout(WAIT_SECONDS):
        while True:
            async with session.get(f"{PODS}/{name}") as answer:
                shown: Any = await answer.json()
            if shown.get("status", {}).get("phase") == "Running":
                return
            await asyncio.sleep(0.2)


async def test_no_message_stops_a_service(nats_server: NatsServer, tmp_path: Path) -> None:
    random = Random(1)
    async with services(nats_server, tmp_path) as (log, gateway, _):
        for _ in range(MESSAGES):
            subject, data = message(random)
            # A client sends no more than that, headers included.
            data = data[: log.client.max_payload - HEADER_BYTES]
            await log.client.publish(subject, data, headers=random.choice(HEADERS) or None)
        await raw_subjects(nats_server)
        await log.client.flush()
        await ask(log, random)
        plain = pod("plain", by="test")
        async with gateway.session() as session, session.post(PODS, json=plain) as answer:
            assert answer.status == 201, await answer.text()
        await until_running(gateway, "plain")
        second = GatewayProcess(nats_server.url, "g2")
        try:
            await second.ready()
            await until_running(second, "plain")
        finally:
            second.close()
        letters = await read_all(log, EXECUTION, ["deadletter.>"])
        readers = {letter.data.service for letter in letters if isinstance(letter.data, DeadLetter)}
        assert {"test", "gateway"} <= readers


async def raw_subjects(server: NatsServer) -> None:
    """Subjects that no client library would send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b'CONNECT {"verbose":false,"pedantic":false}\r\n')
    for subject in (
        b"node.\xff\xfe.executor",
        b"objects.core.pods.\xc3.x",
        b"metrics.\xed\xa0\x80",
        b"usage.\xff",
        b"waiting.\x01.\x7f",
    ):
        writer.write(b"PUB " + subject + b" 2\r\n{}\r\n")
    writer.write(b"PING\r\n")
    async with asyncio.timeout(WAIT_SECONDS):
        while b"PONG" not in await reader.readline():
            pass
    writer.close()
    await writer.wait_closed()


async def ask(log: NatsLog, random: Random) -> None:
    """Each endpoint answers whatever it is asked."""
    for subject in (evict_subject("descheduler-arbiter"), logs_subject(NODE), adopt_subject(NODE)):
        for body in (
            b"", b"\xff", b"{}", b"null", b"[" * 5000, b"x" * (1 << 20), b'{"namespace":"","name":"","uid":""}',
            b'{"namespace":"a","name":"b","uid":"c","gracePeriodSeconds":1e30}', b'{"namespace":"a","name":"b","tailLines":-1}',
            random.randbytes(200),
        ):  # fmt: skip
            answer = await log.client.request(subject, body, timeout=WAIT_SECONDS)
            assert answer is not None

"""What every service shows of itself: status over HTTP, micro endpoints over NATS, telemetry over OTLP; and how it stops."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import nats
import pytest
from aiohttp import web
from nats.aio.client import Client

from cotenant.log.contract import LOG, Write
from cotenant.log.nats.log import connect
from cotenant.runtime.process import serve_http
from tests.contract.toy import metric
from tests.integration.pods import stored_pod
from tests.nats_server import NatsServer, free_port
from tests.streams import declare_streams

WAIT_SECONDS = 90


class Scheduler:
    """A scheduler process on a server."""

    def __init__(self, server: NatsServer, **environment: str) -> None:
        self.port = free_port()
        flags = ["--nats", server.url, "--replica", "a", "--http-port", str(self.port)]
        self.process = subprocess.Popen([sys.executable, "-m", "cotenant_scheduler", *flags], env=environment or None)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=WAIT_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    async def until(self, path: str, words: str) -> None:
        """Wait (bounded) for a status page to match: a process of its own tells nobody when it is ready."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                code, text = await asyncio.to_thread(self.get, path)
                if code == 200 and re.search(words, text):
                    return
                await asyncio.sleep(0.05)


@pytest.fixture
def scheduler(nats_server: NatsServer) -> Iterator[Scheduler]:
    declare_streams(nats_server.url)
    running = Scheduler(nats_server)
    yield running
    if running.process.poll() is None:
        running.process.kill()
    running.process.wait()


async def requested(client: Client, subject: str) -> dict[str, object]:
    answer: dict[str, object] = json.loads((await client.request(subject, b"", timeout=WAIT_SECONDS)).data)
    return answer


async def test_a_service_tells_how_it_is(nats_server: NatsServer, scheduler: Scheduler) -> None:
    await scheduler.until("/readyz", "ok")
    assert scheduler.get("/healthz") == (200, "ok\n")
    log = await connect(nats_server.url, "test")
    await log.client.request("metrics.bad", b"not an event")
    await log.append([Write(event=metric("a", 1))])
    await scheduler.until("/metrics", r"cotenant_dead_letters_total 1")
    await scheduler.until("/metrics", r"cotenant_events_folded_total [1-9]")
    assert await log.last_sequence(LOG) >= 3
    await log.close()


async def test_a_service_is_found_by_nats_micro(nats_server: NatsServer, scheduler: Scheduler) -> None:
    await scheduler.until("/readyz", "ok")
    client = await nats.connect(nats_server.url)
    ping = await requested(client, "$SRV.PING.cotenant-scheduler")
    assert ping["name"] == "cotenant-scheduler"
    info = await requested(client, "$SRV.INFO.cotenant-scheduler")
    assert info["metadata"] == {
        "cell": "cell",
        "partition": "0",
        "replica": "a",
        "http": f"http://127.0.0.1:{scheduler.port}",
    }
    assert (await requested(client, "$SRV.STATS.cotenant-scheduler"))["type"] == "io.nats.micro.v1.stats_response"
    await client.close()


async def test_sigterm_is_a_clean_stop(scheduler: Scheduler) -> None:
    await scheduler.until("/readyz", "ok")
    scheduler.process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(scheduler.process.wait, WAIT_SECONDS) == 0


async def test_a_service_waits_for_a_server_that_starts_later() -> None:
    server = NatsServer()
    running = Scheduler(server)
    try:
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(declare_streams, server.url)
        await running.until("/readyz", "ok")
    finally:
        running.process.terminate()
        await asyncio.to_thread(running.process.wait, WAIT_SECONDS)
        server.close()


async def test_telemetry_goes_to_a_collector_where_one_is_named(nats_server: NatsServer) -> None:
    await asyncio.to_thread(declare_streams, nats_server.url)
    got: dict[str, int] = {}
    arrived = asyncio.Event()

    async def collect(request: web.Request) -> web.Response:
        got[request.path] = got.get(request.path, 0) + len(await request.read())
        arrived.set()
        return web.Response()

    app = web.Application()
    app.add_routes([web.post("/v1/{what}", collect)])
    runner, url = await serve_http(app, "127.0.0.1", 0)
    running = Scheduler(nats_server, OTEL_EXPORTER_OTLP_ENDPOINT=url, OTEL_BSP_SCHEDULE_DELAY="200", PATH="/usr/bin:/bin")
    try:
        await running.until("/readyz", "ok")
        log = await connect(nats_server.url, "test")
        # A pod that fits nowhere makes the scheduler store a decision: that is a span.
        await log.append([Write(event=stored_pod("lonely"))])
        async with asyncio.timeout(WAIT_SECONDS):
            while "/v1/traces" not in got:
                arrived.clear()
                await arrived.wait()
        running.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(running.process.wait, WAIT_SECONDS) == 0
        assert got.get("/v1/metrics", 0) > 0, "metrics are sent at the latest when the service stops"
        await log.close()
    finally:
        if running.process.poll() is None:
            running.process.kill()
        running.process.wait()
        await runner.cleanup()

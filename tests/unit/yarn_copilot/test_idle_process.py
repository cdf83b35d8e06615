"""The process without YARN: it runs, is ready, and reports that it is idle."""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec
import nats

from tests.nats_server import NatsServer
from tests.streams import declare_streams

WAIT_SECONDS = 60


async def test_without_a_resource_manager_the_process_is_idle_and_reports_it(nats_server: NatsServer) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COTENANT_YARN_RESOURCE_MANAGER"}
    await asyncio.to_thread(declare_streams, nats_server.url)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cotenant_yarn_copilot", "--nats", nats_server.url, "--http-port", "-1", env=environment
    )
    client = await nats.connect(nats_server.url)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                try:
                    answer = await client.request("cotenant.yarn-copilot.status", b"", timeout=WAIT_SECONDS)
                except nats.errors.NoRespondersError:
                    await asyncio.sleep(0.1)
                    continue
                break
        assert msgspec.json.decode(answer.data)["detail"].startswith("idle: no ResourceManager is configured")
    finally:
        await client.close()
        process.terminate()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await process.wait() == 0


async def test_an_address_that_is_no_url_ends_the_process_with_a_message(nats_server: NatsServer) -> None:
    await asyncio.to_thread(declare_streams, nats_server.url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cotenant_yarn_copilot", "--nats", nats_server.url, "--resource-manager", "rm:8088"),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        _, stderr = await process.communicate()
    assert process.returncode != 0
    assert b"expected a URL such as http://host:8088" in stderr

"""The process without YARN: it runs, is ready, and reports that it is idle."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import Any

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


async def test_a_folder_without_configuration_ends_the_process_with_a_message(nats_server: NatsServer, tmp_path: Path) -> None:
    await asyncio.to_thread(declare_streams, nats_server.url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cotenant_yarn_copilot", "--nats", nats_server.url),
        *("--hadoop-conf-dir", str(tmp_path / "none")),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        _, stderr = await process.communicate()
    assert process.returncode != 0
    assert b"none is not a folder" in stderr


async def test_clusters_of_the_folder_are_asked_and_the_status_says_how_that_went(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    site = "<configuration><property><name>yarn.resourcemanager.webapp.address</name><value>127.0.0.1:9</value></property>"
    (tmp_path / "east.yarn-site.xml").write_text(f"{site}</configuration>")
    await asyncio.to_thread(declare_streams, nats_server.url)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cotenant_yarn_copilot", "--nats", nats_server.url, "--http-port", "-1"),
        *("--hadoop-conf-dir", str(tmp_path)),
    )
    client = await nats.connect(nats_server.url)
    told: dict[str, Any] = {}
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not told.get("lastPass", {}).get("failures"):
                with contextlib.suppress(nats.errors.NoRespondersError):
                    answer = await client.request("cotenant.yarn-copilot.status", b"", timeout=WAIT_SECONDS)
                    told = msgspec.json.decode(answer.data)
                await asyncio.sleep(0.1)
    finally:
        await client.close()
        process.terminate()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await process.wait() == 0
    assert told["clusters"] == {"east": ["http://127.0.0.1:9"]}
    assert "GET http://127.0.0.1:9/ws/v1/cluster/info" in told["lastPass"]["failures"]["east"]

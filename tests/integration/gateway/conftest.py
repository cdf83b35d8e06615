"""A gateway process for each test, on a nats-server of its own; a module may have another `gateway`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.integration.gateway.gateway_process import WAIT_SECONDS, GatewayProcess
from tests.nats_server import NatsServer


@pytest.fixture
async def gateway(nats_server: NatsServer) -> AsyncIterator[GatewayProcess]:
    """A gateway that is ready."""
    process = GatewayProcess(nats_server.url)
    await process.ready()
    yield process
    process.close()


@pytest.fixture
async def session(gateway: GatewayProcess) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of `gateway`, whose requests end within WAIT_SECONDS."""
    async with gateway.session(timeout=aiohttp.ClientTimeout(total=WAIT_SECONDS)) as found:
        yield found

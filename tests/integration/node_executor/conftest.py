"""The harness as a fixture."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.integration.node_executor.executor_harness import Harness
from tests.nats_server import NatsServer


@pytest.fixture
async def harness(nats_server: NatsServer) -> AsyncIterator[Harness]:
    """An executor that has not been started yet."""
    made = Harness(nats_server.url)
    await made.open()
    yield made
    await made.close()

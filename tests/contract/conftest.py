"""The log that the contract's tests run against: the one in memory, and that of a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cotenant.log.memory import MemoryLog
from cotenant.log.nats.log import connect
from tests.contract.logs import AnyLog
from tests.nats_server import NatsServer


@pytest.fixture(params=["memory", "nats"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[AnyLog]:
    if request.param == "memory":
        yield MemoryLog()
        return
    server: NatsServer = request.getfixturevalue("nats_server")
    made = await connect(server.url, "test")
    await made.declare()
    yield made
    await made.close()

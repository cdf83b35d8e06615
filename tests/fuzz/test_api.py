"""The gateway answers whatever requests can be made from its OpenAPI documents, and is none the larger for it."""

from __future__ import annotations

import asyncio

from tests.fuzz.api import Session, resident_mib, run
from tests.integration.gateway.gateway_process import GatewayProcess
from tests.nats_server import NatsServer

CASES = 100
GROWTH_MIB = 64


def test_no_request_is_a_fault_of_the_server(nats_server: NatsServer) -> None:
    gateway = GatewayProcess(nats_server.url)
    try:
        asyncio.run(gateway.ready())
        session = Session(gateway)
        run(session, CASES, derandomize=True)
        before = resident_mib(gateway.process.pid)
        run(session, CASES, derandomize=True)
        assert resident_mib(gateway.process.pid) <= before + GROWTH_MIB
        assert gateway.process.poll() is None
        assert {200, 400, 404} <= session.answers.keys()
    finally:
        gateway.close()

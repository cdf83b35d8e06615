"""Every plan is answered within its bound, whatever the server does."""

from __future__ import annotations

import asyncio

import pytest

from cotenant.api.snapshots import Address
from cotenant.events import NodeResources
from cotenant.kinds.config_maps import CONFIG_MAPS
from cotenant.log.contract import LOG, NoAnswer
from cotenant.log.nats.log import connect, read_all
from cotenant.log.plan_writer import PlanWriter
from cotenant.log.plans import Plan, Written, object_write
from cotenant.log.write_queue import Overloaded
from cotenant.runtime.follower import utc_now
from tests.nats_server import NatsServer

WAIT_SECONDS = 60


def plan(name: str) -> Plan:
    return Plan((object_write(Address(CONFIG_MAPS, "default", name), NodeResources(node=name), 0),))


async def at_once(_: int) -> bool:
    return True


async def test_a_server_that_says_nothing_keeps_no_client_waiting(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant.log.plan_writer.WRITE_SECONDS", 0.5)
    log = await connect(nats_server.url, "test")
    await log.declare()
    writer = PlanWriter(log, "/test", "1", utc_now, at_once)
    running = asyncio.ensure_future(writer.run())
    async with asyncio.timeout(WAIT_SECONDS):
        assert isinstance(await writer.submit(plan("before"), "user"), Written)
        nats_server.pause()
        # One beside a batch, and one in a batch.
        for name in ("beside", "sent"):
            assert isinstance(await writer.submit(plan(name), "user"), NoAnswer)
        with pytest.raises(Overloaded):
            await writer.submit(plan("queued"), "user")
        nats_server.resume()
        while not isinstance(await _tried(writer, plan("after")), Written):
            pass
    subjects = [event.subject for event in await read_all(log, LOG, ["objects.>"])]
    assert [subject.rsplit(".", 1)[1] for subject in subjects] == ["before", "beside", "sent", "after"]
    running.cancel()
    await log.close()


async def _tried(writer: PlanWriter, wanted: Plan) -> object:
    try:
        return await writer.submit(wanted, "user")
    except Overloaded as error:
        return error

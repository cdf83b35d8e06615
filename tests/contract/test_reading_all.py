"""Everything up to a stream's end: also from a server that is slow to answer, and past messages that other readers read."""

from __future__ import annotations

import asyncio

import pytest

from cotenant.events.envelope import Event
from cotenant.log.contract import LOG, Stored, Write
from cotenant.log.nats.jetstream import BusError
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.log.nats.reader import NatsReader
from tests.contract.toy import metric
from tests.nats_server import NatsServer

WAIT_SECONDS = 60


async def with_metrics(server: NatsServer, *nodes: str) -> NatsLog:
    log = await connect(server.url, "test")
    await log.declare()
    for node in nodes:
        assert isinstance(await log.append([Write(event=metric(node, 1))]), Stored)
    return log


async def read(log: NatsLog, *filters: str) -> list[str]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [event.subject for event in await read_all(log, LOG, filters)]


async def test_a_server_that_is_slow_to_answer_does_not_end_the_read(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await with_metrics(nats_server, "a", "b")
    monkeypatch.setattr("cotenant.log.nats.log.LISTEN_SECONDS", 0.001)
    assert await read(log, "metrics.*", "node.>") == ["metrics.a", "metrics.b"]
    await log.close()


async def test_a_read_of_one_filter_ends_though_the_last_messages_are_of_other_subjects(nats_server: NatsServer) -> None:
    log = await with_metrics(nats_server, "a", "b", "c")
    assert await read(log, "metrics.a") == ["metrics.a"]
    assert await read(log, "node.>") == []
    await log.close()


async def test_a_read_ends_though_the_last_message_is_gone(nats_server: NatsServer) -> None:
    log = await with_metrics(nats_server, "a", "b")
    await log.purge(LOG, "metrics.b")
    assert await read(log, "metrics.*", "node.>") == ["metrics.a"]
    await log.close()


async def test_a_server_that_is_silent_for_too_long_is_said_to_be(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the messages so far, as if they were all."""
    log = await with_metrics(nats_server, "a", "b")
    monkeypatch.setattr("cotenant.log.nats.log.SILENT_SECONDS", 0.5)
    followed = log.follow

    async def follow_and_pause(*filters: object, **options: object) -> NatsReader:
        reader = await followed(*filters, **options)  # type: ignore[arg-type]
        nats_server.pause()
        return reader

    monkeypatch.setattr(log, "follow", follow_and_pause)
    try:
        with pytest.raises(BusError, match=r"LOG: nothing was heard for .* s; read up to 0 of"):
            await read(log, "metrics.*", "node.>")
    finally:
        nats_server.resume()
    await log.close()


async def test_while_it_loads_a_reader_does_not_take_the_last_message_for_the_end_of_what_it_selects(
    nats_server: NatsServer,
) -> None:
    """A load gives messages subject by subject, not in order of sequence."""
    log = await with_metrics(nats_server, "a", "b", "a")
    end = await log.last_sequence(LOG)
    reader = await log.follow(LOG, ["metrics.*"])
    async with asyncio.timeout(WAIT_SECONDS):
        loaded: list[Event] = []
        while not reader.snapshot_over:
            assert reader.scanned == 0
            loaded += await reader.pull(1, 0.1)
        while reader.scanned < end:
            loaded += await reader.pull(1, 0.1)
    assert sorted(event.subject for event in loaded) == ["metrics.a", "metrics.b"]
    await reader.close()
    await log.close()

"""Explanations and events of a log whose beginning is gone say so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import aiohttp
import pytest

from cotenant.events.envelope import Event
from cotenant.events.placements import Waiting
from cotenant.log.contract import HISTORY, LOG, Stored, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant.model.subjects import pod_subject, waiting_subject
from tests.integration.gateway.gateway_process import PODS, WAIT_SECONDS, GatewayProcess, body_of, pod
from tests.nats_server import NatsServer


@pytest.fixture
async def log(nats_server: NatsServer) -> AsyncIterator[NatsLog]:
    made = await connect(nats_server.url, "test")
    await made.declare()
    yield made
    await made.close()


@pytest.fixture
async def http(nats_server: NatsServer, log: NatsLog) -> AsyncIterator[aiohttp.ClientSession]:
    """Of a gateway on that log."""
    gateway = GatewayProcess(nats_server.url)
    try:
        await gateway.ready()
        async with gateway.session(timeout=aiohttp.ClientTimeout(total=WAIT_SECONDS)) as session:
            yield session
    finally:
        gateway.close()


async def until_history_has(log: NatsLog, sequence: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while await log.last_sequence(HISTORY) < sequence:  # noqa: ASYNC110 - a source says nothing when it is there
            await asyncio.sleep(0.05)


async def test_what_is_older_than_history_is_said_to_be(log: NatsLog, http: aiohttp.ClientSession) -> None:
    created = await body_of(await http.post(PODS, json=pod("web")), 201)
    waiting = Waiting(namespace="default", name="web", uid=created["metadata"]["uid"], message="no node")
    subject = waiting_subject("default", "web")
    event = Event(subject=subject, data=waiting, causes=("LOG:1",), id="w", source="/x", time=datetime.now(UTC))
    stored = await log.append([Write(event=event)])
    assert isinstance(stored, Stored)
    await until_history_has(log, stored.last)
    await log.purge(HISTORY, ">", keep=1)
    await log.purge(LOG, "objects.scheduling%2Ek8s%2Eio.>")
    await log.purge(LOG, "objects.core.namespaces.>")
    await log.purge(LOG, "services.>")
    explained = await body_of(await http.get("/apis/cotenant.io/v1/explain/pod/default/web"), 200)
    lost = [link["sentence"] for link in explained["links"] if link.get("lost")]
    assert lost == [f"older than what HISTORY keeps, which begins at LOG:{stored.last}"]
    begins = await log.first_sequence(LOG)
    answer = await http.get("/apis/cotenant.io/v1/events", params={"since": "1"})
    await answer.read()
    assert answer.headers["Warning"] == f'299 - "1 is older than what LOG keeps, which begins at LOG:{begins}"'
    answer = await http.get("/apis/cotenant.io/v1/events", params={"since": str(stored.last)})
    assert "Warning" not in answer.headers


async def test_an_ended_pod_is_explained_from_history_when_log_holds_nothing_of_it(
    log: NatsLog, http: aiohttp.ClientSession
) -> None:
    await body_of(await http.post(PODS, json=pod("web")), 201)
    await body_of(await http.delete(f"{PODS}/web"), 200)
    subject = pod_subject("default", "web")
    gone = await log.last_known(subject)
    assert gone is not None
    assert gone.tombstone
    await until_history_has(log, gone.sequence)
    await log.purge(LOG, subject)  # as the tombstone's TTL does
    assert await log.head(subject) is None
    kept = await log.last_known(subject)
    assert kept is not None
    assert (kept.ref, kept.data, kept.causes, kept.tombstone) == (gone.ref, gone.data, gone.causes, True)
    explained = await body_of(await http.get("/apis/cotenant.io/v1/explain/pod/default/web"), 200)
    assert [link["ref"] for link in explained["links"]] == [gone.ref, *gone.causes]
    await body_of(await http.get("/apis/cotenant.io/v1/explain/pod/default/nobody"), 404)

"""Messages that LOG no longer holds: found in HISTORY, or said at once to be older than it. Start markers stay in HISTORY."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from cotenant.engine.commit import Identity
from cotenant.engine.load import Load
from cotenant.events.commits import LogDeclared, ServiceStarted
from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed
from cotenant.events.node.predictions import PredictionState
from cotenant.events.node.resources import NodeResources
from cotenant.log.contract import HISTORY, KEEP_PER_SUBJECT, LOG, MARKER_TTL_SECONDS, Stored, Write
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.log.nats.lookups import UNDECODABLE, Lost
from cotenant.model.subjects import LOG_IDENTITY
from cotenant_console.recorded import history
from tests.nats_server import NatsServer

WAIT_SECONDS = 60
VERSIONS = KEEP_PER_SUBJECT + 40


async def with_versions(server: NatsServer) -> NatsLog:
    """A log on which one subject has had VERSIONS versions, all of which HISTORY has taken over."""
    log = await connect(server.url, "test")
    await log.declare()
    for cpu in range(VERSIONS):
        data = NodeResources(node="n", batch_cpu_milli=cpu)
        event = Event(subject="node.n.resources", data=data, id=f"r/{cpu}", source="/x", time=datetime.now(UTC))
        assert isinstance(await log.append([Write(event=event)]), Stored)
        if cpu % 20 == 19:
            await until_history_has(log, cpu + 1)  # a burst on one subject would leave holes
    await until_history_has(log, VERSIONS)
    return log


async def until_history_has(log: NatsLog, count: int) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while await log.last_sequence(HISTORY) < count:  # noqa: ASYNC110 - a source says nothing when it has caught up
            await asyncio.sleep(0.05)


async def test_what_log_no_longer_holds_is_found_in_history_also_when_its_beginning_is_gone(nats_server: NatsServer) -> None:
    log = await with_versions(nats_server)
    await log.purge(HISTORY, ">", keep=VERSIONS - 10)
    oldest = 11
    assert await log.first_sequence(HISTORY) == oldest
    assert await log.get(LOG, oldest) is None
    for sequence in (oldest, VERSIONS):
        found = await log.find(f"LOG:{sequence}")
        assert isinstance(found, Event)
        assert found.ref == f"LOG:{sequence}"
    read = await read_all(log, HISTORY, (">",))
    assert [event.sequence for event in read] == list(range(oldest, VERSIONS + 1))
    await log.close()


async def test_history_holds_what_was_replaced_and_what_replaced_it(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    for cpu in (1, 2):
        data = NodeResources(node="n", batch_cpu_milli=cpu)
        event = Event(
            subject="node.n.resources", data=data, id=f"r/{cpu}", source="/x", time=datetime.now(UTC), replaces=cpu == 2
        )
        assert isinstance(await log.append([Write(event=event)]), Stored)
        await until_history_has(log, cpu)
    assert await log.get(LOG, 1) is None
    found = await read_all(log, HISTORY, (">",))
    assert [(event.sequence, event.replaces, event.tombstone) for event in found] == [(1, False, False), (2, True, False)]
    await log.close()


@pytest.mark.parametrize(
    ("ref", "reason"),
    [
        ("LOG:1", f"older than what HISTORY keeps, which begins at LOG:{VERSIONS - 9}"),
        (f"LOG:{VERSIONS + 5}", "no longer kept in LOG, and missing in HISTORY"),
        ("USAGE:3", "no longer kept in USAGE"),
        ("nonsense", "nonsense is no reference to a message"),
    ],
)
async def test_what_is_kept_nowhere_is_said_with_the_reason(nats_server: NatsServer, ref: str, reason: str) -> None:
    log = await with_versions(nats_server)
    await log.purge(HISTORY, ">", keep=10)
    assert await log.find(ref) == Lost(reason)
    await log.close()


async def test_an_empty_history_is_said_to_hold_nothing(nats_server: NatsServer) -> None:
    log = await with_versions(nats_server)
    await log.purge(HISTORY, ">")
    assert await log.find("LOG:1") == Lost("no longer kept in LOG, and HISTORY holds nothing")
    await log.close()


async def test_a_start_marker_leaves_log_and_stays_in_history(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    identity = Identity(service="scheduler", replica="host-1234")
    marker = Load(identity, ("node.>",), 1, config_text="{}").marker(datetime.now(UTC))
    assert marker.ttl_seconds == MARKER_TTL_SECONDS
    marker = msgspec.structs.replace(marker, ttl_seconds=1)
    assert isinstance(await log.append([Write(event=marker)]), Stored)
    async with asyncio.timeout(WAIT_SECONDS):
        while await log.head(identity.marker_subject) is not None:  # noqa: ASYNC110 - nothing is said when a message expires
            await asyncio.sleep(0.05)
    await until_history_has(log, 1)
    [kept] = await read_all(log, HISTORY, (">",))
    assert isinstance(kept.data, ServiceStarted)
    await log.close()


async def test_history_takes_over_all_but_the_state_of_predictions_of_which_log_holds_one(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    for number in range(3):
        state = PredictionState(node="n", trained_ms=number)
        stored = Event(
            subject="predictions.n", data=state, id=f"p/{number}", source="/x", time=datetime.now(UTC), replaces=True
        )
        metric = Event(
            subject="metrics.n", data=NodeMetricComputed(node="n"), id=f"m/{number}", source="/x", time=datetime.now(UTC)
        )
        assert isinstance(await log.append([Write(event=metric), Write(event=stored)]), Stored)
    async with asyncio.timeout(WAIT_SECONDS):
        while await log.last_sequence(HISTORY) < 3:  # noqa: ASYNC110 - a source says nothing when it has caught up
            await asyncio.sleep(0.05)
    assert [event.sequence for event in await read_all(log, HISTORY, (">",))] == [1, 3, 5]
    kept = [event for event in await read_all(log, LOG, (">",)) if event.subject == "predictions.n"]
    assert [event.sequence for event in kept] == [6]
    await log.close()


async def test_after_the_loss_of_log_its_successors_messages_are_found_and_none_of_its_own(nats_server: NatsServer) -> None:
    log = await with_versions(nats_server)
    await log.client.request(f"$JS.API.STREAM.DELETE.{LOG}", b"")
    copied = await log.last_sequence(HISTORY)
    await log.declare()
    await log.store_identity()
    await until_history_has(log, copied + 1)
    for cpu in range(VERSIONS - 10):
        data = NodeResources(node="n", batch_cpu_milli=100_000 + cpu)
        event = Event(subject="node.n.resources", data=data, id=f"again/{cpu}", source="/x", time=datetime.now(UTC))
        assert isinstance(await log.append([Write(event=event)]), Stored)
        if cpu % 20 == 19:
            await until_history_has(log, copied + cpu + 2)
    await until_history_has(log, copied + VERSIONS - 9)
    assert await log.get(LOG, 2) is None, "only HISTORY has it"
    found = await log.find("LOG:2")
    assert isinstance(found, Event)
    assert isinstance(found.data, NodeResources)
    assert found.data.batch_cpu_milli == 100_000
    assert await log.find(f"LOG:{VERSIONS - 2}") == Lost("no longer kept in LOG, and missing in HISTORY"), (
        "it is the former one's"
    )
    identity = LogDeclared(created=datetime.now(UTC).isoformat())
    declared = Event(subject=LOG_IDENTITY, data=identity, id="streams/restored", source="/x", time=datetime.now(UTC))
    assert isinstance(await log.append([Write(event=declared)]), Stored)
    await until_history_has(log, copied + VERSIONS - 8)
    assert {event.data.batch_cpu_milli for event in await history(log) if isinstance(event.data, NodeResources)} == {
        100_000 + cpu for cpu in range(VERSIONS - 10)
    }
    await log.close()


async def test_a_look_up_passes_by_messages_that_this_version_cannot_decode(nats_server: NatsServer) -> None:
    """Halving reads messages beside the wanted one: rubbish of a foreign writer, and what an older version wrote."""
    log = await connect(nats_server.url, "test")
    await log.declare()
    rubbish = (b"no event", b'{"specversion":"1.0","id":"a/1","source":"/a","type":"cotenant.bygone.v1","data":{}}')
    last = 0
    for number in range(KEEP_PER_SUBJECT + 90):
        if 10 <= number < 70:
            await log.client.request(f"node.n{number}.resources", rubbish[number % 2])
        else:
            data = NodeResources(node="n", batch_cpu_milli=number)
            event = Event(subject="node.n.resources", data=data, id=f"r/{number}", source="/x", time=datetime.now(UTC))
            assert isinstance(await log.append([Write(event=event)]), Stored)
        last += 1
        if last % 20 == 0:
            await until_history_has(log, last)
    await until_history_has(log, last)
    assert await log.get(LOG, 5) is None
    found = await log.find("LOG:5")
    assert isinstance(found, Event)
    assert found.ref == "LOG:5"
    assert await log.find("LOG:30") == UNDECODABLE
    await log.purge(HISTORY, "node.n.resources", keep=50)
    assert await log.find("LOG:5") == Lost("older than what HISTORY keeps, which begins at LOG:11")
    await log.close()

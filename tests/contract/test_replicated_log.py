"""The log on three servers: what holds while leaders, followers and consumers come and go."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from cotenant.events import Event
from cotenant.log.contract import EXECUTION, HISTORY, LOG, USAGE, NoAnswer, Refused, Stored, Write, ending
from cotenant.log.nats import confined
from cotenant.log.nats.consumer import PullConsumer
from cotenant.log.nats.jetstream import API_ERRORS, BusError
from cotenant.log.nats.log import NatsLog, connect
from cotenant.log.nats.wire import BusClient
from cotenant.log.storing import find_out, store_batch
from tests.contract.test_fenced_writes import nothing_passes_a_new_record
from tests.contract.toy import metric
from tests.nats_server import NatsCluster, NatsServer

WAIT_SECONDS = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    """One cluster for all of these tests: it takes seconds to elect its leaders."""
    servers = NatsCluster()
    servers.start()
    yield servers
    servers.close()


@pytest.fixture
async def log(cluster: NatsCluster) -> AsyncIterator[NatsLog]:
    made = await connect(cluster.url, "test")
    await made.declare(replicas=3)
    yield made
    await made.close()


async def leader_of(log: NatsLog, stream: str = LOG) -> str:
    async with asyncio.timeout(WAIT_SECONDS):
        while not (leader := (await log._api.info(stream)).cluster.leader):  # noqa: ASYNC110 - an election announces nothing
            await asyncio.sleep(0.05)
    return leader


async def led(log: NatsLog) -> None:
    """Wait until LOG is there and answers: a cluster that just started, or lost a leader, says nothing of it for seconds."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                await log.declare(replicas=3)
                await leader_of(log)
            except (BusError, *API_ERRORS):
                await asyncio.sleep(0.1)
            else:
                return


async def store(log: NatsLog, *events: Event, expected: int | None = None) -> Stored:
    first, *rest = events
    outcome = await store_batch(log, [Write(event=first, expected=expected), *(Write(event=event) for event in rest)])
    assert isinstance(outcome, Stored), outcome
    return outcome


async def test_streams_are_on_three_servers_and_keep_their_number(log: NatsLog, cluster: NatsCluster) -> None:
    async def replicas() -> list[int]:
        return [(await log._api.info(stream)).config["num_replicas"] for stream in (LOG, USAGE, EXECUTION, HISTORY)]

    assert await replicas() == [3, 3, 3, 1]
    assert await log.declare(replicas=3) == []
    assert await log.declare() == []
    lines = await log.declare(replicas=1)
    assert lines == [f"= {stream}: num_replicas stays 3, not 1" for stream in (LOG, USAGE, EXECUTION)]
    assert await replicas() == [3, 3, 3, 1]


async def test_a_client_knows_whether_its_server_is_the_only_one(log: NatsLog, nats_server: NatsServer) -> None:
    assert not log.client.on_single_server
    alone = await connect(nats_server.url, "test")
    assert alone.client.on_single_server
    await alone.close()


async def test_batches_stay_whole_and_in_order_while_their_leader_is_killed(log: NatsLog, cluster: NatsCluster) -> None:
    """Every batch of 20 is there once, whole, in the order of its acknowledgement; no write fails."""
    reader = await log.follow(LOG, ["metrics.*"], after=await log.last_sequence(LOG))
    reader.loaded()
    killed = asyncio.Event()
    stored: list[tuple[int, Stored]] = []

    async def write() -> None:
        expected = 0
        number = 0
        while not killed.is_set() or number < stored_at_kill + 20:
            events = [metric("first", number), *(metric(f"n{i:02}", number) for i in range(1, 20))]
            outcome = await store(log, *events, expected=expected)
            expected = outcome.first
            stored.append((number, outcome))
            number += 1

    stored_at_kill = 0
    writing = asyncio.ensure_future(write())
    leader = cluster.servers[await leader_of(log)]
    async with asyncio.timeout(WAIT_SECONDS):
        while len(stored) < 20:  # noqa: ASYNC110 - the writer announces nothing
            await asyncio.sleep(0.01)
        leader.kill()
        stored_at_kill = len(stored)
        killed.set()
        await writing
        leader.start()
        found: dict[int, list[int]] = {}
        while sum(len(parts) for parts in found.values()) < 20 * len(stored):
            for event in await reader.pull(1000, 1.0):
                value = event.data.node_usage.cpu_milli  # type: ignore[attr-defined]
                found.setdefault(value, []).append(event.sequence)
    assert found == {number: list(range(outcome.first, outcome.last + 1)) for number, outcome in stored}
    await reader.close()


async def test_a_paused_server_takes_nobody_along(cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of a server that says nothing go to another one; a consumer that lived there is made again."""
    monkeypatch.setattr("cotenant.log.nats.connecting.CLUSTER_PING_SECONDS", 0.5)
    log = await connect(cluster.url, "test")
    await led(log)
    reader = await log.follow(LOG, ["metrics.*"], after=await log.last_sequence(LOG))
    reader.loaded()
    connected = log.client.connected_url
    assert connected is not None
    paused = next(server for server in cluster.servers.values() if server.port == connected.port)
    os.kill(paused.pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            outcome: Stored | Refused | NoAnswer | None = None
            while not isinstance(outcome, Stored):
                outcome = await store_batch(log, [Write(event=metric("paused", 1))])
            while reader.position < outcome.last:
                await reader.pull(100, 1.0)
    finally:
        os.kill(paused.pid, signal.SIGCONT)
    await reader.close()
    await log.close()


async def test_a_consumer_on_a_replica_that_is_behind_repeats_nothing(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is to begin beyond the end of its replica begins at that end; the replica is seen as it would be."""
    log = await connect(nats_server.url, "test")
    await log.declare()
    for value in range(10):
        await store(log, metric("a", value))
    reader = await log.follow(LOG, ["metrics.*"], after=0)
    reader.loaded()
    values: list[int] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(values) < 10:  # a pull gives what is there, which need not be all
            values += [event.data.node_usage.cpu_milli for event in await reader.pull(10, 5.0)]  # type: ignore[attr-defined]
    create = PullConsumer.open

    async def behind(consumer: PullConsumer, start: int, since: str = "") -> None:
        await create(consumer, start - 4, since)

    monkeypatch.setattr(PullConsumer, "open", behind)
    await reader._reopen()
    await store(log, metric("a", 10))
    async with asyncio.timeout(WAIT_SECONDS):
        while len(values) < 11:
            values += [event.data.node_usage.cpu_milli for event in await reader.pull(10, 1.0)]  # type: ignore[attr-defined]
    assert values == list(range(11))
    await log.close()


async def test_a_leader_that_shows_less_than_was_seen_is_asked_again(log: NatsLog, monkeypatch: pytest.MonkeyPatch) -> None:
    end = (await store(log, metric("late", 1))).last
    leaders_end = confined.leaders_end
    asked = 0

    async def late(client: BusClient, subject: str) -> int:
        nonlocal asked
        asked += 1
        found = await leaders_end(client, subject)
        return end - 1 if asked < 3 else found

    monkeypatch.setattr(confined, "leaders_end", late)
    assert (await log.identity("node.a.executor", end)).last == end
    assert await log.last_sequence(LOG) == end, "nothing is stored by that"
    assert asked == 3


class StaleLeader:
    """A log whose old leader refuses what the new one has stored, and does not know of it."""

    def __init__(self, log: NatsLog, stale_answers: int) -> None:
        self.log = log
        self.stale_answers = stale_answers
        self.head, self.next_head, self.get = log.head, log.next_head, log.get

    async def append(self, writes: list[Write]) -> Stored | Refused | NoAnswer:
        if self.stale_answers:
            self.stale_answers -= 1
            return Refused("wrong last sequence", wrong_sequence=True)
        return await self.log.append(writes)


async def test_a_refusal_that_the_subject_does_not_bear_out_says_nothing(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    first = await store(log, metric("a", 1))
    writes = [Write(event=metric("a", 2), expected=first.last)]
    outcome = await find_out(StaleLeader(log, 9), writes, tries=3)  # type: ignore[arg-type]
    assert isinstance(outcome, NoAnswer), outcome
    outcome = await find_out(StaleLeader(log, 2), writes, tries=3)  # type: ignore[arg-type]
    assert isinstance(outcome, Stored), outcome
    refused = await find_out(log, [Write(event=metric("a", 3), expected=first.last)])
    assert isinstance(refused, Refused), refused
    await log.close()


async def test_a_tombstone_says_what_it_has_removed(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await store(log, metric("a", 1))
    last = await store(log, metric("a", 2))
    gone = await store(log, ending("metrics.a", metric("a", 3).data), expected=last.last)
    event = await log.get(LOG, gone.last)
    assert event is not None
    assert event.follows == last.last
    await log.close()


async def test_a_question_without_an_answer_is_no_message_that_is_missing(nats_server: NatsServer) -> None:
    """`head` and `get` say None only where the server said so."""
    log = await connect(nats_server.url, "test")
    await log.declare()
    assert await log.head("metrics.nobody") is None
    nats_server.kill()
    asking = [asyncio.ensure_future(log.head("metrics.nobody")), asyncio.ensure_future(log.get(LOG, 1))]
    for answer in await asyncio.gather(*asking, return_exceptions=True):
        assert isinstance(answer, TimeoutError), answer
    nats_server.start()
    await log.close()


async def test_nothing_passes_a_new_record(log: NatsLog) -> None:
    await led(log)
    await nothing_passes_a_new_record(log, 100)

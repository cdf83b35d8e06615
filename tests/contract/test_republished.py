"""Reading without a consumer is as exact as with one: memory and a real server, whose republished messages get lost."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.events import Event, NodeResources
from cotenant.log.contract import EXECUTION, LOG, Behind, Reader, Stored, Write, ending
from cotenant.log.memory import MemoryLog
from cotenant.log.nats import republished
from cotenant.log.nats.confined import READS_AT_ONCE, NodeReads, Page
from cotenant.log.nats.declaring import StreamsMissingError, StreamUnfitError
from cotenant.log.nats.log import NatsLog, connect
from cotenant.log.nats.reader import AWAY_SECONDS, boot_seconds
from cotenant.log.nats.republished import RepublishedReader
from cotenant.log.nats.wire import BusClient
from tests.contract.logs import AnyLog
from tests.contract.toy import metric
from tests.nats_server import NatsServer

WAIT_SECONDS = 60
NODE = "node.a.>"
NEVER = 3600.0
TURNS = 10
"""Of the event loop: enough for a reader to take what has arrived."""


@pytest.fixture
async def nats_log(nats_server: NatsServer) -> AsyncIterator[NatsLog]:
    made = await connect(nats_server.url, "writer")
    await made.declare()
    yield made
    await made.close()


@pytest.fixture
async def other(nats_log: NatsLog, nats_server: NatsServer) -> AsyncIterator[NatsLog]:
    """A connection of the reader's own: what happens to it does not touch the writer."""
    made = await connect(nats_server.url, "reader")
    yield made
    await made.close()


def fact(name: str, value: int, node: str = "a") -> Event:
    data = NodeResources(node=node, batch_cpu_milli=value)
    return Event(subject=f"node.{node}.{name}", data=data, id=f"{node}/{name}/{value}", source="/x")


async def store(log: AnyLog, *events: Event) -> Stored:
    outcome = await log.append([Write(event=event) for event in events])
    assert isinstance(outcome, Stored), outcome
    return outcome


async def read(reader: Reader, count: int) -> list[tuple[str, int]]:
    """Read exactly `count` events: name and value, -1 for a tombstone."""
    found: list[Event] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found) < count:
            found.extend(await reader.pull(100, 1.0))
    assert len(found) == count, [event.subject for event in found]
    assert [event.sequence for event in found] == sorted({event.sequence for event in found})
    return [(event.subject.split(".", 2)[2], -1 if event.tombstone else value(event)) for event in found]


async def read_on(reader: Reader) -> None:
    """Read whatever comes, until the reader gives up."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            await reader.pull(10, 1.0)


def value(event: Event) -> int:
    assert isinstance(event.data, NodeResources)
    return event.data.batch_cpu_milli


async def deaf(client: BusClient, reader: RepublishedReader, *, again: bool = False) -> None:
    """Have the server forget the reader's subscription, as a route does that breaks; with `again` it is there again."""
    subscription = reader._subscriptions[0]
    command = f"SUB {subscription.subject} {subscription._id}\r\n" if again else f"UNSUB {subscription._id}\r\n"
    await client._send_command(command.encode())
    await client.ask("$JS.API.INFO", b"", b"", seconds=WAIT_SECONDS)  # nats-py's PING can overtake what it has buffered


def cut(client: BusClient) -> None:
    """Break the connection; the client connects again."""
    client._transport._io_writer.transport.abort()  # type: ignore[union-attr]


def arrives(client: BusClient, monkeypatch: pytest.MonkeyPatch, *, in_one_piece: bool) -> None:
    """From now on the client gets each answer together with what came before it, or in a later turn of the event loop."""
    parser, held = client._parser, bytearray()
    parse, take = parser.parse, parser.take
    answer = re.compile(rb"MSG " + re.escape(client._answers) + rb"\S+ \d+ (?:\d+ )?(\d+)\r\n")

    def pieces() -> Iterator[tuple[bytes, bytes]]:
        """Yield what came before an answer, and the answer."""
        while (found := answer.search(held)) is not None and len(held) >= (end := found.end() + int(found[1]) + 2):
            start = held.rfind(b"\n", 0, found.start()) + 1
            yield bytes(held[:start]), bytes(held[start:end])
            del held[:end]

    def taken(data: bytes) -> bytes:
        held.extend(data)
        return b"".join(take(before + found) for before, found in pieces())

    async def parsed(data: bytes = b"") -> None:
        held.extend(data)
        for piece in chain.from_iterable(pieces()):
            await parse(piece)
            for _ in range(TURNS):
                await asyncio.sleep(0)

    if in_one_piece:
        monkeypatch.setattr(parser, "take", taken)
    else:
        monkeypatch.setattr(parser, "take", lambda data: data)
        monkeypatch.setattr(parser, "parse", parsed)


async def loaded(log: NatsLog, *, count: int = 1) -> RepublishedReader:
    reader = await log.follow_republished(NODE)
    assert isinstance(reader, RepublishedReader)
    await read(reader, count)
    reader.loaded()
    assert not await reader.pull(1, 0.0)
    return reader


# -- own messages -------------------------------------------------------------------------------------------------------


async def test_messages_that_the_reader_s_owner_knows_are_not_delivered(nats_log: NatsLog, other: NatsLog) -> None:
    await store(nats_log, fact("x", 1))
    reader = await loaded(other)
    asked: list[int] = []
    known: set[int] = set()

    def knows(sequence: int) -> bool:
        asked.append(sequence)
        return sequence in known

    reader.skip(knows)
    stored = await store(nats_log, fact("x", 2), fact("y", 3), fact("x", 4))
    known.update((stored.first + 1, stored.last))
    assert await read(reader, 1) == [("x", 2)]
    following = await store(nats_log, fact("y", 5))
    assert await read(reader, 1) == [("y", 5)]
    assert asked == [*range(stored.first, stored.last + 1), following.first]
    assert reader.gaps == 0


@pytest.mark.parametrize("in_one_piece", [True, False])
async def test_a_writer_that_reads_leaves_out_what_it_is_acknowledged_in_the_same_piece_and_loses_nothing_otherwise(
    nats_log: NatsLog, monkeypatch: pytest.MonkeyPatch, in_one_piece: bool
) -> None:
    """The server sends a message to its readers just before it acknowledges it: usually both are read at once."""
    monkeypatch.setattr(republished, "SETTLE_SECONDS", NEVER)
    await store(nats_log, fact("x", 0))
    reader = await loaded(nats_log)
    stored: dict[int, None] = {}
    reader.skip(lambda sequence: stored.pop(sequence, 0) is None)
    arrives(nats_log.client, monkeypatch, in_one_piece=in_one_piece)

    found: list[Event] = []

    async def follow() -> None:
        while not found or found[-1].subject != "node.a.y":
            found.extend(await reader.pull(100, NEVER))

    async with asyncio.timeout(WAIT_SECONDS):
        following = asyncio.ensure_future(follow())
        for number in range(1, 51):
            stored[(await store(nats_log, fact("x", number))).first] = None
        await store(nats_log, fact("y", 0))
        await following
    own = [value(event) for event in found if event.subject == "node.a.x"]
    assert own == ([] if in_one_piece else [*range(1, 51)])
    assert [*stored] == ([] if in_one_piece else [event.sequence for event in found[:-1]])


# -- as with a consumer ------------------------------------------------------------------------------------------------


async def test_loading_gives_the_last_message_of_each_subject_and_then_what_follows(log: AnyLog) -> None:
    for number in range(5):
        await store(log, fact("x", number))
    await store(log, fact("y", 7), fact("x", 8, node="b"), metric("a", 1))
    reader = await log.follow_republished(NODE)
    assert await read(reader, 2) == [("x", 4), ("y", 7)]
    await store(log, fact("x", 9), fact("x", 9, node="b"), fact("y", 10))
    await store(log, fact("x", 11))
    assert await read(reader, 3) == [("x", 9), ("y", 10), ("x", 11)]
    head = await log.head("node.a.x")
    assert head is not None
    assert reader.position == head.sequence
    await reader.close()


async def test_following_after_a_sequence_gives_all_that_came_after_it(log: AnyLog) -> None:
    first = await store(log, *(fact("x", number) for number in range(6)))
    reader = await log.follow_republished(NODE, after=first.first + 1)
    assert await read(reader, 4) == [("x", number) for number in (2, 3, 4, 5)]
    await store(log, fact("y", 1))
    assert await read(reader, 1) == [("y", 1)]


async def test_a_tombstone_is_delivered_and_what_follows_it(log: AnyLog) -> None:
    await store(log, fact("x", 1), fact("y", 1))
    reader = await log.follow_republished(NODE)
    await read(reader, 2)
    await store(log, ending("node.a.x", fact("x", 1).data))
    await store(log, fact("x", 2))
    assert await read(reader, 2) == [("x", -1), ("x", 2)]


async def test_a_subject_without_a_message_and_one_that_ended_are_loaded_alike(log: AnyLog) -> None:
    reader = await log.follow_republished(NODE)
    assert not await reader.pull(10, 0.0)
    await store(log, fact("x", 1))
    assert await read(reader, 1) == [("x", 1)]


async def test_what_cannot_be_decoded_goes_to_the_dead_letters_and_stops_nobody(log: AnyLog) -> None:
    reader = await log.follow_republished(NODE)
    for body in (b"this is not JSON", b'{"specversion":"1.0","id":"x","source":"/s","type":"com.example.unknown","data":{}}'):
        if isinstance(log, MemoryLog):
            await log.append_raw(LOG, "node.a.bad", body)
        else:
            await log.client.request("node.a.bad", body)
    await store(log, fact("good", 1))
    assert await read(reader, 1) == [("good", 1)]
    letters = await (await log.follow(EXECUTION, ["deadletter.>"], after=0)).pull(10, WAIT_SECONDS)
    assert [letter.data.message for letter in letters] == ["this is not JSON"]  # type: ignore[attr-defined]
    assert log.unknown_types == 1


async def test_what_changes_while_a_load_is_under_way_is_neither_lost_nor_old(log: AnyLog) -> None:
    names = [f"s{number:04}" for number in range(2500)]
    for first in range(0, len(names), 500):
        await store(log, *(fact(name, 0) for name in names[first : first + 500]))
    truth = dict.fromkeys(names, 0)
    reader = await log.follow_republished(NODE)
    state: dict[str, int] = {}
    last = 0
    for round_number in range(1, 11):
        changed = names[round_number::97]
        truth.update(dict.fromkeys(changed, round_number))
        last = (await store(log, *(fact(name, round_number) for name in changed))).last
        fold(state, await reader.pull(250, 1.0))
    async with asyncio.timeout(WAIT_SECONDS):
        while reader.position < last or len(state) < len(truth):
            fold(state, await reader.pull(1000, 1.0))
    assert state == truth


def fold(state: dict[str, int], events: Sequence[Event]) -> None:
    for event in events:
        state[event.subject.split(".", 2)[2]] = value(event)


async def test_the_server_keeps_no_consumer(nats_log: NatsLog) -> None:
    await loaded(nats_log, count=0)
    answer = await nats_log.client.request(f"$JS.API.STREAM.INFO.{LOG}", b"")
    assert msgspec.json.decode(answer.data)["state"]["consumer_count"] == 0


async def test_a_request_that_is_not_answered_is_named(nats_log: NatsLog, other: NatsLog) -> None:
    await nats_log.client.subscribe_raw("silent", lambda *_: None)
    await nats_log.last_sequence(LOG)
    with pytest.raises(TimeoutError, match=r"no answer to silent within 0\.1 s"):
        await other.client.ask("silent", b"", b"", seconds=0.1)


async def test_what_a_cluster_without_a_leader_drops_is_asked_again(nats_log: NatsLog, other: NatsLog) -> None:
    """As servers do while they elect one: whoever waited for the first answer would wait on after there is a leader."""
    questions: list[bytes] = []

    def answers_the_third(_: bytes, reply: bytes, *__: bytes) -> None:
        questions.append(reply)
        if len(questions) == 3:
            answering.append(asyncio.ensure_future(other.client.publish(reply.decode(), b"here")))

    answering: list[asyncio.Future[None]] = []
    await other.client.subscribe_raw("question", answers_the_third)
    await other.last_sequence(LOG)
    assert await nats_log.client.ask_whole("question", b"", b"", seconds=WAIT_SECONDS, again=0.01) == (b"", b"here")
    assert len(set(questions)) == 1
    await asyncio.gather(*answering)


async def test_hundreds_of_readers_that_load_at_once_share_what_they_ask_about_it(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By themselves they would ask 200 times each; how many share an answer depends on when they come."""
    await store(nats_log, *(fact("x", 1, node=f"n{number}") for number in range(200)))
    asked: list[str] = []
    ask = BusClient.ask_whole

    async def counted(client: BusClient, subject: str, *arguments: Any, **options: Any) -> tuple[bytes, bytes]:
        asked.append(subject)
        return await ask(client, subject, *arguments, **options)

    monkeypatch.setattr(BusClient, "ask_whole", counted)
    readers = await asyncio.gather(*(other.follow_republished(f"node.n{number}.>") for number in range(200)))
    assert len([subject for subject in asked if subject.endswith(f"STREAM.INFO.{LOG}")]) <= 50
    assert len([subject for subject in asked if subject.endswith(".executor")]) <= 50
    for reader in readers:
        assert await read(reader, 1) == [("x", 1)]


async def test_hundreds_of_readers_that_look_at_once_have_few_questions_at_the_server(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them look when the connection was lost: each gets its last message, and then what it has missed."""
    await store(nats_log, *(fact("x", 1, node=f"n{number}") for number in range(200)))
    readers = [await other.follow_republished(f"node.n{number}.>") for number in range(200)]
    for reader in readers:
        assert await read(reader, 1) == [("x", 1)]
    asked, most = 0, 0
    ask = BusClient.ask_whole

    async def counted(client: BusClient, subject: str, *arguments: Any, **options: Any) -> tuple[bytes, bytes]:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        try:
            return await ask(client, subject, *arguments, **options)
        finally:
            asked -= 1

    monkeypatch.setattr(BusClient, "ask_whole", counted)
    cut(other.client)
    await store(nats_log, *(fact("x", 2, node=f"n{number}") for number in range(200)))
    found = await asyncio.gather(*(read(reader, 1) for reader in readers))
    assert found == [[("x", 2)]] * 200
    assert most <= READS_AT_ONCE + 2, "LOG's identity and its end are asked for once for all of them"


async def test_a_shared_answer_was_asked_for_after_its_caller_came(other: NatsLog) -> None:
    state, reached, go_on = [0], asyncio.Event(), asyncio.Event()

    async def ask() -> int:
        found = state[0]
        reached.set()
        await go_on.wait()
        return found

    first = asyncio.ensure_future(other.client.shared("state", ask))
    await reached.wait()
    state[0] = 1
    later = [asyncio.ensure_future(other.client.shared("state", ask)) for _ in range(3)]
    await asyncio.sleep(0)
    state[0] = 2
    go_on.set()
    assert [await first, *(await asyncio.gather(*later))] == [0, 2, 2, 2]


async def test_a_failed_question_fails_for_those_that_waited_and_is_asked_again_later(other: NatsLog) -> None:
    asked: list[int] = []

    async def ask() -> int:
        asked.append(1)
        await asyncio.sleep(0)
        if len(asked) < 3:
            raise TimeoutError("no answer")
        return 7

    outcomes = await asyncio.gather(*(other.client.shared("state", ask) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(outcome, TimeoutError) or outcome == 7 for outcome in outcomes)
    assert len(asked) <= 3
    asked += [1, 1]
    assert await other.client.shared("state", ask) == 7


# -- what is lost on the way -------------------------------------------------------------------------------------------


async def test_what_was_stored_while_the_connection_was_down_comes_in_order(nats_log: NatsLog, other: NatsLog) -> None:
    await store(nats_log, fact("x", 0))
    reader = await loaded(other)
    for number in range(1, 4):
        cut(other.client)
        await store(nats_log, fact("x", number), fact(f"new{number}", number))
        await store(nats_log, ending("node.a.x", fact("x", number).data), fact("y", number))
        expected = [(f"new{number}", number), ("x", -1), ("y", number)]
        assert await read(reader, 3) == expected
        await store(nats_log, fact("x", 10 + number))
        assert await read(reader, 1) == [("x", 10 + number)]
    assert reader.gaps >= 3


async def test_a_message_whose_predecessor_was_not_republished_makes_the_reader_look(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(republished, "SETTLE_SECONDS", NEVER)
    await store(nats_log, fact("x", 0))
    reader = await loaded(other)
    await deaf(other.client, reader)
    await store(nats_log, fact("x", 1), fact("new", 1))
    await deaf(other.client, reader, again=True)
    assert not await reader.pull(10, 0.0)
    await store(nats_log, fact("x", 2))
    assert await read(reader, 3) == [("x", 1), ("new", 1), ("x", 2)]
    assert reader.gaps == 1


async def test_what_nothing_follows_is_found_when_the_reader_looks(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(republished, "SETTLE_SECONDS", 0.05)
    await store(nats_log, fact("x", 0))
    reader = await loaded(other)
    await deaf(other.client, reader)
    await store(nats_log, fact("new", 1))
    assert await read(reader, 1) == [("new", 1)]


async def test_a_reader_at_rest_looks_ever_more_rarely(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 50 ms on, twice as long each time: at most ten looks in two seconds, whether LOG went on elsewhere or not."""
    monkeypatch.setattr(republished, "SETTLE_SECONDS", 0.05)
    looks, _ = counted_looks(monkeypatch)
    await store(nats_log, fact("x", 0))
    await store(nats_log, fact("x", 1, node="another"))
    reader = await loaded(other)
    assert not await reader.pull(10, 1.0)
    await store(nats_log, fact("x", 2))
    assert await read(reader, 1) == [("x", 2)]
    assert not await reader.pull(10, 1.0)
    assert 2 <= len(looks) <= 10


async def test_a_reader_starts_over_only_once_a_log_that_was_silent_for_long_answers_again(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner works on with the state that it has: an executor goes on protecting services."""
    now = boot_seconds()
    monkeypatch.setattr(republished, "boot_seconds", lambda: now)
    reader = await loaded(other, count=0)
    last, tries = NodeReads.last, 0

    async def unanswered(_: NodeReads) -> int:
        nonlocal tries
        tries += 1
        raise TimeoutError

    monkeypatch.setattr(NodeReads, "last", unanswered)
    cut(other.client)
    now += AWAY_SECONDS + 1
    await pull_until(reader, lambda: tries >= 3)
    monkeypatch.setattr(NodeReads, "last", last)
    with pytest.raises(Behind, match="nothing was heard of LOG for 151 s"):
        await read_on(reader)


async def test_looks_in_between_read_the_log_only_if_the_last_message_did_not_arrive(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once settled, a look finds what nothing followed; in a cluster, where a route can break without the connection, what
    something followed on another subject is found after the longest interval at the latest."""
    monkeypatch.setattr(republished, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(BusClient, "on_single_server", False)
    looks, pages = counted_looks(monkeypatch)
    await store(nats_log, fact("x", 0))
    reader = await loaded(other)
    while reader._interval <= 2 * republished.SETTLE_SECONDS:
        assert not await reader.pull(10, 0.01)
    pages.clear()

    async def look() -> None:
        """Let the reader look once more."""
        seen = len(looks)
        await pull_until(reader, lambda: len(looks) > seen)

    await store(nats_log, fact("x", 1), fact("y", 1))
    await other.last_sequence(LOG)  # what was republished before has arrived
    assert await read(reader, 2) == [("x", 1), ("y", 1)]
    await look()
    assert not pages
    await deaf(other.client, reader)
    missed = await store(nats_log, fact("new", 1))
    assert await read(reader, 1) == [("new", 1)]
    assert [until for _, until in pages] == [missed.last]
    await store(nats_log, fact("z", 1))
    await deaf(other.client, reader, again=True)
    newest = await store(nats_log, fact("new", 2))
    await other.last_sequence(LOG)
    assert await read(reader, 1) == [("new", 2)]
    await look()
    assert [until for _, until in pages] == [missed.last]
    monkeypatch.setattr(republished, "LOOK_SECONDS", reader._interval)
    with pytest.raises(Behind, match=f"{LOG}:{newest.first - 1} was not republished"):
        await read_on(reader)
    assert [until for _, until in pages] == [missed.last, newest.last]


async def test_on_a_single_server_only_the_first_look_reads_what_was_delivered(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, looks, pages = await looked_once(nats_log, other, monkeypatch)
    monkeypatch.setattr(republished, "LOOK_SECONDS", reader._interval)
    stored = await store(nats_log, fact("x", 1), fact("y", 1))
    assert await read(reader, 2) == [("x", 1), ("y", 1)]
    # A look just then may have come before the messages.
    pages.clear()
    seen = len(looks)
    await pull_until(reader, lambda: len(looks) > seen)
    assert looks[-1] == stored.last
    assert not pages

    cut(other.client)
    newest = await store(nats_log, fact("z", 2))
    assert await read(reader, 1) == [("z", 2)]
    assert pages == [(stored.last, newest.last)], "what was delivered before the connection was lost is not read again"


async def test_on_a_single_server_a_later_look_finds_what_did_not_arrive(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, _, _ = await looked_once(nats_log, other, monkeypatch)
    await store(nats_log, fact("x", 1))
    assert await read(reader, 1) == [("x", 1)]
    await deaf(other.client, reader)
    await store(nats_log, fact("new", 1))
    assert await read(reader, 1) == [("new", 1)]


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], list[tuple[int, int]]]:
    """Return two lists that grow: the node's last message as each look found it; behind and up to what each page was read."""
    looks: list[int] = []
    pages: list[tuple[int, int]] = []
    last, page = NodeReads.last, NodeReads.page

    async def counted_last(reads: NodeReads) -> int:
        looks.append(await last(reads))
        return looks[-1]

    async def counted_page(reads: NodeReads, after: int, until: int, *limit: int) -> Page:
        pages.append((after, until))
        return await page(reads, after, until, *limit)

    monkeypatch.setattr(NodeReads, "last", counted_last)
    monkeypatch.setattr(NodeReads, "page", counted_page)
    return looks, pages


async def looked_once(
    log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> tuple[RepublishedReader, list[int], list[tuple[int, int]]]:
    """Return a reader that has looked once since its load, and what its looks are noted in (`counted_looks`)."""
    monkeypatch.setattr(republished, "SETTLE_SECONDS", 0.05)
    looks, pages = counted_looks(monkeypatch)
    await store(log, fact("x", 0))
    reader = await loaded(other)
    await pull_until(reader, lambda: len(looks) >= 1)
    return reader, looks, pages


async def pull_until(reader: Reader, true: Callable[[], bool]) -> None:
    """Read (bounded) while nothing comes, until something is true."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not true():
            assert not await reader.pull(10, 0.01)


async def test_more_than_can_be_remembered_beyond_what_a_replica_holds_makes_the_reader_start_over(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(republished, "MAX_DELIVERED", 3)
    reader = await loaded(other, count=0)

    async def nothing(_: NodeReads) -> int:
        return 0

    monkeypatch.setattr(NodeReads, "last", nothing)
    await store(nats_log, *(fact(f"x{number}", number) for number in range(5)))
    with pytest.raises(Behind, match="3 messages were delivered"):
        await read_on(reader)


async def test_news_of_the_stream_make_the_reader_look(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(republished, "SETTLE_SECONDS", NEVER)
    await store(nats_log, fact("x", 0))
    reader = await loaded(other)
    await deaf(other.client, reader)
    await store(nats_log, fact("x", 1))
    config = msgspec.json.decode((await nats_log.client.request(f"$JS.API.STREAM.INFO.{LOG}", b"")).data)["config"]
    await nats_log.client.request(f"$JS.API.STREAM.UPDATE.{LOG}", msgspec.json.encode(config | {"max_consumers": 24_000}))
    assert await read(reader, 1) == [("x", 1)]


async def test_what_is_older_than_something_delivered_makes_the_reader_start_over(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(republished, "SETTLE_SECONDS", 0.3)
    await store(nats_log, fact("x", 0))
    reader = await loaded(other)
    await deaf(other.client, reader)
    lost = await store(nats_log, fact("y", 1))
    await deaf(other.client, reader, again=True)
    await store(nats_log, fact("x", 1))
    with pytest.raises(Behind, match=f"{LOG}:{lost.first} was not republished"):
        await read_on(reader)


async def test_more_than_can_wait_is_read_from_the_log(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(republished, "MAX_WAITING", 10)
    monkeypatch.setattr(republished, "LOOK_MESSAGES", 7)
    reader = await loaded(other, count=0)
    await store(nats_log, *(fact("x", number) for number in range(50)))
    await other.client.flush()
    assert await read(reader, 50) == [("x", number) for number in range(50)]


async def test_a_reader_that_is_far_behind_starts_over(
    nats_log: NatsLog, other: NatsLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(republished, "SETTLE_SECONDS", 0.05)
    monkeypatch.setattr(republished, "MAX_BEHIND", 20)
    monkeypatch.setattr(republished, "LOOK_MESSAGES", 5)
    reader = await loaded(other, count=0)
    await deaf(other.client, reader)
    await store(nats_log, *(fact("x", number) for number in range(50)))
    with pytest.raises(Behind, match="more than 20 messages behind"):
        await read_on(reader)


async def test_a_reader_resumes_after_the_server_was_killed(nats_log: NatsLog, nats_server: NatsServer) -> None:
    await store(nats_log, fact("x", 0))
    reader = await loaded(nats_log)
    for number in range(1, 3):
        nats_server.kill()
        nats_server.start()
        writer = await connect(nats_server.url, "again")
        await store(writer, fact("x", number))
        await writer.close()
        assert await read(reader, 1) == [("x", number)]


async def test_a_load_during_which_the_connection_breaks_misses_nothing(nats_log: NatsLog, other: NatsLog) -> None:
    await store(nats_log, *(fact(f"s{number}", 0) for number in range(20)))
    reader = await other.follow_republished(NODE)
    state: dict[str, int] = {}
    fold(state, await reader.pull(5, 1.0))
    cut(other.client)
    last = await store(nats_log, *(fact(f"s{number}", 1) for number in range(0, 20, 2)))
    async with asyncio.timeout(WAIT_SECONDS):
        while reader.position < last.last:
            fold(state, await reader.pull(5, 1.0))
    assert state == {f"s{number}": 1 - number % 2 for number in range(20)}


# -- another LOG, replicas ---------------------------------------------------------------------------------------------


async def test_a_log_that_is_gone_makes_the_reader_start_over(nats_log: NatsLog, other: NatsLog) -> None:
    await store(nats_log, fact("x", 0))
    reader = await loaded(other)
    await nats_log.client.request(f"$JS.API.STREAM.DELETE.{LOG}", b"")
    with pytest.raises(Behind, match="stream not found"):
        await read_on(reader)


async def test_a_log_that_was_made_anew_makes_the_reader_start_over(nats_log: NatsLog, other: NatsLog) -> None:
    await store(nats_log, fact("x", 0))
    reader = await loaded(other)
    await nats_log.client.request(f"$JS.API.STREAM.DELETE.{LOG}", b"")
    await nats_log.declare()
    await store(nats_log, *(fact("x", number) for number in range(5)))
    with pytest.raises(Behind, match="LOG is another one"):
        await read_on(reader)


async def test_a_log_that_lost_its_end_makes_the_reader_start_over(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is asked while the server dies is not answered: it is asked again sooner.
    monkeypatch.setattr("cotenant.log.nats.jetstream.ANSWER_SECONDS", 1.0)
    log = await connect(nats_server.url, "test")
    await log.declare()
    await store(log, fact("x", 0))
    nats_server.stop()
    shutil.copytree(nats_server.store, tmp_path / "store")
    nats_server.start()
    await log.close()
    log = await connect(nats_server.url, "test")
    reader = await loaded(log)
    await store(log, fact("x", 1))
    await read(reader, 1)
    nats_server.kill()
    shutil.rmtree(nats_server.store)
    shutil.copytree(tmp_path / "store", nats_server.store)
    nats_server.start()
    with pytest.raises(Behind, match="LOG ends at 1, before 2"):
        await read_on(reader)
    await log.close()


def replica_of(server: NatsServer) -> NatsServer:
    """Return a second real server with what the first one holds now; both run."""
    server.stop()
    replica = NatsServer()
    shutil.copytree(server.store, replica.store)
    replica.start()
    server.start()
    return replica


async def test_a_replica_that_is_behind_hides_nothing_for_good(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica: a second real server with the same stream as it was before the last changes."""
    monkeypatch.setattr(republished, "SETTLE_SECONDS", 0.05)
    early = await connect(nats_server.url, "early")
    await early.declare()
    await store(early, fact("x", 0), fact("y", 0))
    await early.close()
    replica = replica_of(nats_server)
    nats_log, other = await connect(nats_server.url, "writer"), await connect(nats_server.url, "reader")
    lagging = await connect(replica.url, "replica")
    asked: list[int] = []

    def one_of(reads: NodeReads) -> NodeReads:
        """The first reads go to the replica, as they could in a cluster."""
        asked.append(1)
        return NodeReads(lagging.client, NODE) if len(asked) <= 3 else reads

    async def last(reads: NodeReads) -> int:
        return await ask_last(one_of(reads))

    async def page(reads: NodeReads, *arguments: int) -> Page:
        return await ask_page(one_of(reads), *arguments)

    ask_last, ask_page = NodeReads.last, NodeReads.page
    try:
        reader = await loaded(other, count=2)
        await deaf(other.client, reader)
        await store(nats_log, fact("x", 1), fact("new", 1))
        monkeypatch.setattr(NodeReads, "last", last)
        monkeypatch.setattr(NodeReads, "page", page)
        assert await read(reader, 2) == [("x", 1), ("new", 1)]
        assert len(asked) > 3
    finally:
        for log in (lagging, other, nats_log):
            await log.close()
        replica.close()


async def test_a_load_waits_for_a_replica_that_is_behind(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer on a replica that lacks the last changes does not get as far as the leader's end."""
    early = await connect(nats_server.url, "early")
    await early.declare()
    await store(early, fact("x", 0))
    await early.close()
    replica = replica_of(nats_server)
    nats_log, other = await connect(nats_server.url, "writer"), await connect(nats_server.url, "reader")
    lagging = await connect(replica.url, "replica")
    ask_page, asked = NodeReads.page, []

    async def page(reads: NodeReads, *arguments: int) -> Page:
        asked.append(1)
        late = len(asked) <= 2
        monkeypatch.setattr("cotenant.log.nats.confined.READ_SECONDS", 0.5 if late else WAIT_SECONDS)
        return await ask_page(NodeReads(lagging.client, NODE) if late else reads, *arguments)

    monkeypatch.setattr(NodeReads, "page", page)
    try:
        await store(nats_log, fact("y", 1))
        reader = await other.follow_republished(NODE)
        assert await read(reader, 2) == [("x", 0), ("y", 1)]
        assert len(asked) == 3
    finally:
        for log in (lagging, other, nats_log):
            await log.close()
        replica.close()


async def test_what_is_no_message_of_log_is_not_delivered(nats_log: NatsLog, other: NatsLog) -> None:
    """The server sends the answer to a request wherever the request says, so also to a node's own subjects."""
    await store(nats_log, fact("x", 0), fact("forged", 0, node="b"))
    reader = await loaded(other)
    for asked in ("$JS.API.DIRECT.GET.LOG.node.b.forged", "usage.b", "$JS.API.STREAM.INFO.LOG"):
        for subject in ("republished.node.a.placement.x.y", "$JS.EVENT.ADVISORY.STREAM.CREATED.LOG"):
            await nats_log.client.publish(asked, b"", reply=subject)
    await nats_log.client.flush()
    await store(nats_log, fact("x", 1))
    assert await read(reader, 1) == [("x", 1)]
    assert reader.gaps == 0


async def test_two_readers_of_a_node_read_one_after_the_other(nats_log: NatsLog, other: NatsLog) -> None:
    await store(nats_log, *(fact(f"s{number}", 0) for number in range(20)))
    readers = [await other.follow_republished(NODE) for _ in range(5)]
    found = await asyncio.gather(*(read(reader, 20) for reader in readers))
    assert all(events == found[0] for events in found)


async def test_streams_that_are_missing_are_named_with_what_makes_them(nats_log: NatsLog) -> None:
    await nats_log.check_streams()
    await nats_log.client.request(f"$JS.API.STREAM.DELETE.{LOG}", b"")
    with pytest.raises(StreamsMissingError, match="no stream LOG: `cotenant admin streams` declares them"):
        await nats_log.check_streams()
    await nats_log.declare()
    await nats_log.check_streams()
    await store(nats_log, fact("x", 1))


async def test_the_streams_are_looked_at_once_for_all_who_ask(nats_log: NatsLog) -> None:
    requests: list[bytes] = []
    client = nats_log.client
    subscription = await client.subscribe_raw("$JS.API.STREAM.>", lambda subject, *_: requests.append(subject))
    await asyncio.gather(*(nats_log.check_streams() for _ in range(100)))
    await client.flush()
    assert len(requests) <= 8, "those who asked while it was looked after share the look"
    await client.unsubscribe_raw(subscription)


async def test_a_look_that_fails_is_the_answer_of_all_who_ask(nats_log: NatsLog) -> None:
    client = nats_log.client
    await client.request(f"$JS.API.STREAM.DELETE.{LOG}", b"")
    requests: list[bytes] = []
    subscription = await client.subscribe_raw("$JS.API.STREAM.>", lambda subject, *_: requests.append(subject))
    found = await asyncio.gather(*(nats_log.check_streams() for _ in range(100)), return_exceptions=True)
    await client.flush()
    assert {type(each) for each in found} == {StreamsMissingError}
    assert len(requests) <= 8, "each of them would wait for its own answer, one after the other"
    await client.unsubscribe_raw(subscription)
    await nats_log.declare()
    await nats_log.check_streams()


async def test_a_stream_that_breaks_a_promise_is_named_with_its_cure(nats_log: NatsLog) -> None:
    config = msgspec.json.decode((await nats_log.client.request(f"$JS.API.STREAM.INFO.{LOG}", b"")).data)["config"]
    body = msgspec.json.encode(config | {"discard": "old", "allow_atomic": False})
    await nats_log.client.request(f"$JS.API.STREAM.UPDATE.{LOG}", body)
    with pytest.raises(StreamUnfitError) as refused:
        await nats_log.check_streams()
    assert "discard is 'old' and must be 'new'" in str(refused.value)
    assert str(refused.value).endswith("`cotenant admin streams` sets it")
    assert "~ LOG: discard old -> new" in await nats_log.declare()
    await nats_log.check_streams()

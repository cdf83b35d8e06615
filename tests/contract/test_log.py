"""The log's semantics: one suite against the in-memory log and against a real server."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.events import Event, NodeResources, ObjectStored
from cotenant.log.contract import (
    EXECUTION,
    LOG,
    MAX_BATCH,
    USAGE,
    LogSpace,
    LogUnavailableError,
    NoAnswer,
    Reader,
    Refused,
    Stored,
    Write,
    ending,
)
from cotenant.log.memory import MemoryLog
from cotenant.log.nats.consumer import GATHERED_EXPIRES_SECONDS, HURRIED_SECONDS
from cotenant.log.nats.declaring import FIRST_BYTES
from cotenant.log.nats.log import NatsLog, connect
from cotenant.log.nats.reader import NatsReader
from cotenant.log.nats.streams import StreamSizes, stream_configs
from cotenant.log.storing import find_out, store_batch
from tests.contract.logs import AnyLog
from tests.contract.toy import metric
from tests.full_log import fill
from tests.nats_server import NatsServer

WAIT_SECONDS = 60
"""Long enough for a crowded machine; nobody waits for it where all is well."""


def resources(node: str, cpu: int, **more: Any) -> Event:
    data = NodeResources(node=node, batch_cpu_milli=cpu)
    return Event(subject=f"node.{node}.resources", data=data, id=f"r/{node}/{cpu}", source="/x", **more)


async def store(log: AnyLog, *events: Event, expected: int | None = None) -> Stored:
    first, *rest = events
    outcome = await log.append([Write(event=first, expected=expected), *(Write(event=event) for event in rest)])
    assert isinstance(outcome, Stored), outcome
    return outcome


async def read(reader: Reader, count: int) -> list[Event]:
    """Read exactly `count` events, within a bound."""
    found: list[Event] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found) < count:
            found.extend(await reader.pull(100, 1.0))
    assert len(found) == count
    return found


async def loaded_reader(log: NatsLog) -> NatsReader:
    """A reader of metrics that has read the only one, and goes on with its consumer."""
    await log.declare()
    await store(log, metric("a", 1))
    reader = await log.follow(LOG, ["metrics.*"])
    await read(reader, 1)
    assert not await reader.pull(1, 0.01), "the load is over, the consumer stands"
    reader.loaded()
    return reader


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a condition of the server itself, which tells nobody when a TTL ends."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not await condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


async def test_a_batch_is_contiguous_and_carries_its_expectation(log: AnyLog) -> None:
    first = await store(log, metric("a", 1), metric("b", 1), expected=0)
    assert first.last == first.first + 1
    refused = await log.append([Write(event=metric("a", 2), expected=0), Write(event=metric("b", 2))])
    assert isinstance(refused, Refused)
    assert refused.wrong_sequence
    head = await log.head("metrics.b")
    assert head is not None
    assert head.sequence == first.last, "nothing of a refused batch is stored"
    again = await store(log, metric("a", 3), expected=first.first)
    assert again.first > first.last


async def test_the_largest_batch_is_stored_whole_and_a_refused_one_not_at_all(log: AnyLog) -> None:
    events = [resources(f"n{index}", index) for index in range(MAX_BATCH)]
    first = await store(log, *events)
    assert (first.first, first.last) == (1, MAX_BATCH)
    outcome = await log.append([Write(event=resources("n0", 7), expected=99), *(Write(event=event) for event in events[1:])])
    assert isinstance(outcome, Refused)
    assert (await store(log, resources("n0", 8))).first == MAX_BATCH + 1
    with pytest.raises(ValueError, match=f"1 to {MAX_BATCH}"):
        await log.append([Write(event=event) for event in [*events, *events[:1]]])


async def test_loading_gives_the_last_message_of_each_subject_and_then_what_follows(log: AnyLog) -> None:
    for value in range(5):
        await store(log, metric("a", value))
    await store(log, metric("b", 7))
    await store(log, resources("a", 1))
    reader = await log.follow(LOG, ["metrics.*"])
    loaded = await read(reader, 2)
    assert [(event.subject, event.data.node_usage.cpu_milli) for event in loaded] == [("metrics.a", 4), ("metrics.b", 7)]  # type: ignore[attr-defined]
    await store(log, metric("a", 9))
    assert (await read(reader, 1))[0].data.node_usage.cpu_milli == 9  # type: ignore[attr-defined]
    assert reader.position == (await log.head("metrics.a")).sequence  # type: ignore[union-attr]
    await reader.close()


async def test_following_after_a_sequence_gives_all_that_came_after_it(log: AnyLog) -> None:
    first = await store(log, metric("a", 0))
    for value in range(1, 6):
        await store(log, metric("a", value))
    reader = await log.follow(LOG, ["metrics.*", "node.>"], after=first.first + 1)
    assert [event.data.node_usage.cpu_milli for event in await read(reader, 4)] == [2, 3, 4, 5]  # type: ignore[attr-defined]


async def test_sixty_four_versions_of_a_subject_are_kept(log: AnyLog) -> None:
    stored = [await store(log, metric("a", value)) for value in range(70)]
    assert await log.get(LOG, stored[5].first) is None
    kept = await log.get(LOG, stored[6].first)
    assert kept is not None
    assert kept.data.node_usage.cpu_milli == 6  # type: ignore[attr-defined]


def lose_an_answer(log: AnyLog, monkeypatch: pytest.MonkeyPatch, *, of_stored: bool) -> None:
    """The next batch's answer is lost: it was stored, or it never arrived. No server can be asked to do that."""
    if isinstance(log, MemoryLog):
        log.lose_answers, log.lose_batches = int(of_stored), int(not of_stored)
        return
    send = log._send

    async def lossy(messages: Any) -> Any:
        monkeypatch.setattr(log, "_send", send)
        if of_stored:
            await send(messages)
        raise TimeoutError

    monkeypatch.setattr(log, "_send", lossy)


async def test_a_lost_answer_is_found_out_and_the_batch_stored_once(
    log: AnyLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_an_answer(log, monkeypatch, of_stored=True)
    outcome = await store_batch(log, [Write(event=metric("a", 1, event_id="mine"), expected=0), Write(event=metric("b", 1))])
    assert isinstance(outcome, Stored)
    head = await log.head("metrics.b")
    assert head is not None
    assert head.sequence == outcome.last == 2


async def test_a_server_that_is_too_slow_to_say_what_became_of_a_batch_is_asked_again(
    log: AnyLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose_an_answer(log, monkeypatch, of_stored=True)
    next_head, asked = log.next_head, []

    async def slow(subject: str, after: int) -> Any:
        asked.append(subject)
        if len(asked) == 1:
            raise LogUnavailableError("no answer")
        return await next_head(subject, after)

    monkeypatch.setattr(log, "next_head", slow)
    outcome = await store_batch(log, [Write(event=metric("a", 1, event_id="mine"), expected=0)])
    assert outcome == Stored(1, 1)
    assert asked == ["metrics.a", "metrics.a"]


async def test_reading_a_head_without_an_answer_says_that_the_log_is_unavailable(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.client.close()
    with pytest.raises(LogUnavailableError):
        await log.head("metrics.a")


async def test_a_write_without_an_answer_is_found_behind_what_others_stored_since(log: AnyLog) -> None:
    first = await store(log, metric("a", 1))
    mine = [Write(event=metric("a", 2, event_id="mine"), expected=first.last)]
    stored = await log.append(mine)
    assert isinstance(stored, Stored)
    last = await store(log, metric("a", 3, event_id="later"))
    assert await find_out(log, mine) == stored
    never = [Write(event=metric("a", 4, event_id="never"), expected=first.last)]
    assert isinstance(await find_out(log, never), Refused), "what follows on that version is somebody else's"
    # A tombstone has removed whatever was there: nobody can know any more.
    await store(log, ending("metrics.a", metric("a", 5).data), expected=last.last)
    assert isinstance(await find_out(log, mine), NoAnswer)


async def test_a_write_without_an_answer_cannot_be_found_behind_one_that_replaces(log: AnyLog) -> None:
    first = await store(log, metric("a", 1))
    mine = [Write(event=metric("a", 2, event_id="mine"), expected=first.last)]
    stored = await log.append(mine)
    assert isinstance(stored, Stored)
    await store(log, msgspec.structs.replace(metric("a", 3), replaces=True), expected=stored.last)
    assert isinstance(await find_out(log, mine), NoAnswer)


async def test_a_message_that_replaces_leaves_nothing_before_it_and_is_no_tombstone(log: AnyLog) -> None:
    reader = await log.follow(LOG, ["node.>"])
    await store(log, resources("a", 1))
    old = await store(log, resources("a", 2))
    await read(reader, 2)
    new = await store(log, resources("other", 1), resources("a", 3, replaces=True))
    assert await log.get(LOG, old.first) is None
    head = await log.head("node.a.resources")
    assert head is not None
    assert (head.sequence, head.tombstone, head.replaces) == (new.last, False, True)
    [_, seen] = await read(reader, 2)
    fresh = await log.follow(LOG, ["node.a.>"])
    [loaded] = await read(fresh, 1)
    for event in (seen, loaded):
        assert (event.sequence, event.tombstone, event.replaces, event.ttl_seconds) == (new.last, False, True, 0)
    await store(log, resources("a", 4), expected=new.last)
    assert await log.get(LOG, new.last) is not None, "what follows removes nothing"


async def test_seed_36_a_rivals_batch_with_the_same_ids_is_not_taken_for_ones_own(
    log: AnyLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas give what follows one commit the same ids; with a lost answer only the data tells whose batch is there."""
    await store(log, metric("a", 5, event_id="cell/toy/0/0/0"), expected=0)
    lose_an_answer(log, monkeypatch, of_stored=False)
    outcome = await store_batch(log, [Write(event=metric("a", 1, event_id="cell/toy/0/0/0"), expected=0)])
    assert isinstance(outcome, Refused)


async def test_a_lost_answer_of_a_batch_that_a_rival_overtook_is_a_refusal(log: AnyLog) -> None:
    await store(log, metric("a", 5, event_id="rival"), expected=0)
    outcome = await store_batch(log, [Write(event=metric("a", 1, event_id="mine"), expected=0)])
    assert isinstance(outcome, Refused)


async def test_a_tombstone_leaves_nothing_else_on_its_subject(log: AnyLog) -> None:
    await store(log, resources("a", 1))
    old = await store(log, resources("a", 2))
    gone = await store(log, metric("other", 1), resources("a", 0, tombstone=True, ttl_seconds=3600))
    assert await log.get(LOG, old.first) is None
    head = await log.head("node.a.resources")
    assert head is not None
    assert (head.sequence, head.tombstone) == (gone.last, True)
    reader = await log.follow(LOG, ["node.>"])
    loaded = await read(reader, 1)
    assert (loaded[0].tombstone, loaded[0].ttl_seconds) == (True, 3600)
    refused = await log.append([Write(event=resources("a", 3), expected=0)])
    assert isinstance(refused, Refused), "while the tombstone stands, creation must expect it"


async def test_a_tombstone_ends_with_its_ttl(log: AnyLog) -> None:
    reader = await log.follow(LOG, ["node.>"])
    await store(log, resources("a", 1))
    await read(reader, 1)
    await store(log, resources("a", 0, tombstone=True, ttl_seconds=1))

    async def is_over() -> bool:
        return await log.head("node.a.resources") is None

    await eventually(is_over)
    recreated = await store(log, resources("a", 2), expected=0)
    async with asyncio.timeout(WAIT_SECONDS):
        while reader.position < recreated.first:
            await reader.pull(100, 1.0)


async def test_recreation_over_a_tombstone_expects_the_tombstone(log: AnyLog) -> None:
    gone = await store(log, resources("a", 0, tombstone=True, ttl_seconds=3600))
    born = await store(log, resources("a", 1), expected=gone.last)
    reader = await log.follow(LOG, ["node.>"])
    assert [event.sequence for event in await read(reader, 1)] == [born.first]


async def test_a_purge_while_loading_leaves_what_stands(log: AnyLog) -> None:
    for number in range(300):
        await store(log, metric(f"n{number}", number))
    reader = await log.follow(LOG, ["metrics.*"])
    begun = list(await reader.pull(10, 1.0))
    for number in range(100, 200):
        await log.purge(LOG, f"metrics.n{number}")
    marker = await store(log, metric("marker", 1))
    async with asyncio.timeout(WAIT_SECONDS):
        while not begun or begun[-1].sequence < marker.first:
            begun.extend(await reader.pull(100, 1.0))
    seen = {event.subject for event in begun}
    assert {f"metrics.n{number}" for number in (*range(100), *range(200, 300))} <= seen


async def test_what_cannot_be_decoded_goes_to_the_dead_letters_and_stops_nobody(log: AnyLog) -> None:
    raw = [
        b"this is not JSON",
        b'{"specversion":"1.0","id":"x","source":"/s","type":"cotenant.nodemetric.v1","data":{"node":17}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ]
    unknown = b'{"specversion":"1.0","id":"x","source":"/s","type":"com.example.unknown","data":{}}'
    for body in (*raw, unknown):
        if isinstance(log, MemoryLog):
            await log.append_raw(LOG, "metrics.bad", body)
        else:
            await log.client.request("metrics.bad", body)
    good = await store(log, metric("good", 1))
    reader = await log.follow(LOG, ["metrics.*"], after=0)
    assert [event.sequence for event in await read(reader, 1)] == [good.first]
    letters = await read(await log.follow(EXECUTION, ["deadletter.>"], after=0), len(raw))
    assert all(letter.data.reason and letter.data.stream == LOG for letter in letters)  # type: ignore[attr-defined]
    assert letters[0].data.message == "this is not JSON"  # type: ignore[attr-defined]
    assert letters[3].data.truncated  # type: ignore[attr-defined]
    assert log.unknown_types == 1


async def test_a_message_with_a_known_id_is_taken_for_the_first_whatever_its_subject(log: AnyLog) -> None:
    first = await log.append([Write(event=metric("a", 1), expected=0, message_id="one")])
    assert isinstance(first, Stored)
    await store(log, metric("b", 1))
    assert await log.append([Write(event=metric("a", 2), message_id="one")]) == Stored(first.first, first.first, duplicate=True)
    assert await log.append([Write(event=metric("c", 2), message_id="one")]) == Stored(first.first, first.first, duplicate=True)
    head = await log.head("metrics.a")
    assert head is not None
    assert head.sequence == first.first
    assert await log.head("metrics.c") is None


async def test_an_expectation_is_looked_at_before_the_id_and_a_refused_message_leaves_no_id(log: AnyLog) -> None:
    await log.append([Write(event=metric("a", 1), expected=0, message_id="one")])
    again = await log.append([Write(event=metric("a", 1), expected=0, message_id="one")])
    assert isinstance(again, Refused)
    assert again.wrong_sequence
    assert isinstance(await log.append([Write(event=metric("a", 2), expected=0, message_id="two")]), Refused)
    stored = await log.append([Write(event=metric("a", 2), message_id="two")])
    assert isinstance(stored, Stored)
    assert not stored.duplicate


async def test_a_batch_with_a_known_id_or_one_id_twice_is_refused_and_its_ids_count_once_it_is_stored(log: AnyLog) -> None:
    def batch(*ids: str) -> list[Write]:
        return [Write(event=metric(f"n{index}", 1), message_id=name) for index, name in enumerate(ids)]

    stored = await log.append(batch("one", "two"))
    assert isinstance(stored, Stored)
    for ids in (("three", "one"), ("three", "three")):
        refused = await log.append(batch(*ids))
        assert isinstance(refused, Refused)
        assert not refused.wrong_sequence
    assert await log.append(batch("two")) == Stored(stored.last, stored.last, duplicate=True)
    assert await log.append(batch("three")) == Stored(stored.last + 1, stored.last + 1)


async def test_a_fact_that_is_published_again_is_stored_once_until_the_log_has_forgotten_its_id(log: AnyLog) -> None:
    if isinstance(log, MemoryLog):
        log.streams[USAGE].window = timedelta(milliseconds=500)
    else:
        usage = next(config for config in stream_configs() if config["name"] == USAGE) | {"duplicate_window": 500_000_000}
        await log.client.request(f"$JS.API.STREAM.UPDATE.{USAGE}", json.dumps(usage).encode())
    said = msgspec.structs.replace(metric("a", 1, event_id="boot/1"), subject="usage.a", stream=USAGE)
    first = await log.publish(said)
    assert first == await log.publish(said)

    async def is_stored_again() -> bool:
        return await log.publish(said) == (first or 0) + 1

    await eventually(is_stored_again)


async def test_usage_keeps_four_messages_a_subject(log: AnyLog) -> None:
    sequences = []
    for value in range(6):
        event = msgspec.structs.replace(metric("a", value), subject="usage.a", stream=USAGE)
        sequences.append(await log.publish(event))
    assert await log.get(USAGE, sequences[1] or 0) is None
    assert await log.get(USAGE, sequences[2] or 0) is not None


async def test_a_reader_resumes_after_the_server_was_killed(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    reader = await loaded_reader(log)
    nats_server.kill()
    lost = await log.append([Write(event=metric("a", 2))])
    assert isinstance(lost, NoAnswer)
    nats_server.start()
    outcome = await store_batch(log, [Write(event=metric("b", 2), expected=0)], tries=50)
    while isinstance(outcome, NoAnswer):
        outcome = await store_batch(log, [Write(event=metric("b", 2), expected=0)], tries=50)
    assert isinstance(outcome, Stored)
    seen: list[Event] = []
    async with asyncio.timeout(WAIT_SECONDS):
        while not seen or seen[-1].sequence < outcome.first:
            seen.extend(await reader.pull(100, 1.0))
    # Whether the message without an answer was stored nobody knows; it may not be lost from the order or come twice.
    subjects = [event.subject for event in seen]
    assert subjects in (["metrics.b"], ["metrics.a", "metrics.b"])
    assert reader.reopened >= 1
    await reader.close()
    await log.close()


async def test_a_reader_resumes_once_it_is_connected_again_and_waits_for_no_heartbeat(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant.log.nats.reader.SILENCE_SECONDS", 100 * WAIT_SECONDS)
    log = await connect(nats_server.url, "test")
    reader = await loaded_reader(log)
    waiting = asyncio.ensure_future(reader.pull(1, WAIT_SECONDS))
    nats_server.kill()
    nats_server.start()
    outcome: Stored | Refused | NoAnswer | None = None
    while not isinstance(outcome, Stored):
        outcome = await store_batch(log, [Write(event=metric("b", 2), expected=0)], tries=50)
    assert [event.sequence for event in await waiting] == [outcome.first]
    assert reader.reopened == 1
    await reader.close()
    assert not log.client.on_reconnect
    await log.close()


async def test_a_reader_leaves_out_what_its_owner_knows(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    reader = await log.follow(LOG, ["node.*.resources"])
    stored = await store(log, *(resources(f"n{i}", i) for i in range(6)))
    reader.skip(lambda sequence: stored.first < sequence < stored.last)
    found = await read(reader, 2)
    assert [event.sequence for event in found] == [stored.first, stored.last]
    assert reader.position == stored.last
    await reader.close()
    await log.close()


async def test_messages_that_follow_one_another_are_delivered_together_where_the_reader_gathers(
    nats_server: NatsServer,
) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    reader = await log.follow(LOG, ["metrics.*", "node.>"])
    reader.gather(2.0)
    assert list(await reader.pull(100, 0.0)) == []
    reader.loaded()
    seen: list[tuple[float, Sequence[Event]]] = []

    async def pull() -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while sum(len(events) for _, events in seen) < 1 + 2500:
                events = await reader.pull(5000, 30.0)
                if events:
                    seen.append((asyncio.get_running_loop().time(), events))

    # The pull of the load takes up to 5 s to end; messages of that time come one by one.
    async with asyncio.timeout(WAIT_SECONDS):
        while reader._consumer._wanted != 1:
            await reader.pull(100, 0.1)
    pulling = asyncio.ensure_future(pull())
    await store(log, metric("first", 0))
    began = asyncio.get_running_loop().time()
    for number in range(0, 2500, 500):
        await store(log, *(metric(f"n{number + value}", number + value) for value in range(500)))
    stored_after = asyncio.get_running_loop().time() - began
    await pulling
    assert [event.subject for event in seen[0][1]] == ["metrics.first"]
    assert seen[1][0] - seen[0][0] > min(1.9, stored_after)
    values = [event.data.node_usage.cpu_milli for _, events in seen[1:] for event in events]  # type: ignore[attr-defined]
    assert values == list(range(2500)), "more than fits one pull comes at once, in order, nothing twice"
    await reader.close()
    await log.close()


async def test_a_reader_that_gathers_delivers_at_once_what_is_written_to_hurried_subjects(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    reader = await log.follow(LOG, ["metrics.*", "node.>"])
    reader.gather(3600.0, ["metrics.*"])
    assert list(await reader.pull(100, 0.0)) == []
    reader.loaded()
    await store(log, resources("n0", 0))
    seen = list(await read(reader, 1))
    async with asyncio.timeout(WAIT_SECONDS):
        while not reader._consumer._waits():
            assert list(await reader.pull(100, 0.1)) == []
    await store(log, resources("n1", 1))
    assert list(await reader.pull(100, 0.2)) == [], "an hour is not over"
    # Several in one batch: what is published arrives before it is stored.
    await store(log, metric("a", 1), metric("b", 2), resources("n2", 2))
    async with asyncio.timeout(WAIT_SECONDS):
        while len(seen) < 5:
            seen += await reader.pull(100, WAIT_SECONDS)
    assert [event.subject for event in seen] == [
        "node.n0.resources",
        "node.n1.resources",
        "metrics.a",
        "metrics.b",
        "node.n2.resources",
    ]
    await reader.close()
    await log.close()


async def test_a_hurried_reader_keeps_one_pull_open(nats_server: NatsServer) -> None:
    log, writer = await connect(nats_server.url, "test"), await connect(nats_server.url, "writer")
    await log.declare()
    reader = await log.follow(LOG, ["metrics.*", "node.>"])
    reader.gather(3600.0, ["metrics.*"])
    reader.loaded()
    assert list(await reader.pull(100, 0.0)) == []
    loop = asyncio.get_running_loop()
    began, before, number = loop.time(), log.client.stats["out_msgs"], 0
    while loop.time() < began + 10 * GATHERED_EXPIRES_SECONDS:
        number += 1
        await store(writer, metric("a", number))
        assert [event.subject for event in await read(reader, 1)] == ["metrics.a"]
    # The one that was open before, and one for as long as messages follow: not one for each 20 ms.
    pulls = log.client.stats["out_msgs"] - before
    assert pulls <= 2 + (loop.time() - began) / HURRIED_SECONDS
    await reader.close()
    await writer.close()
    await log.close()


async def test_messages_of_all_sizes_arrive_whole_and_in_order(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    reader = await log.follow(LOG, ["node.*.resources"])
    sizes = [0, 1, 30_000, 32_760, 32_768, 65_536, 300_000, 5, 0]
    events = [
        msgspec.structs.replace(resources(f"n{i}", i), causes=("x" * size,) if size else ()) for i, size in enumerate(sizes)
    ]
    await store(log, *events)
    found = await read(reader, len(sizes))
    assert [len(event.causes[0]) if event.causes else 0 for event in found] == sizes
    await reader.close()
    await log.close()


async def test_writing_goes_on_after_each_of_several_deaths_of_the_server(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    reader = await log.follow(LOG, ["metrics.*"])
    reader.loaded()
    usage = await log.follow(USAGE, ["usage.*"])
    usage.loaded()
    for value in range(3):
        nats_server.kill()
        nats_server.start()
        outcome: Stored | Refused | NoAnswer | None = None
        async with asyncio.timeout(WAIT_SECONDS):
            while not isinstance(outcome, Stored):
                outcome = await store_batch(log, [Write(event=metric(f"n{value}", value))])
        async with asyncio.timeout(WAIT_SECONDS):
            while reader.position < outcome.first:
                await reader.pull(100, 1.0)
        said = msgspec.structs.replace(metric("a", value), subject="usage.a", stream=USAGE)
        sequence = await log.publish(said)
        assert sequence
        async with asyncio.timeout(WAIT_SECONDS):
            while usage.position < sequence:
                await usage.pull(100, 1.0)
    await log.close()


async def test_a_reader_whose_stream_lost_its_end_goes_on_where_it_ends_now(log: AnyLog) -> None:
    if isinstance(log, MemoryLog):
        pytest.skip("memory loses nothing")
    reader = await log.follow(USAGE, ["usage.*"], after=1000)
    said = msgspec.structs.replace(metric("a", 1), subject="usage.a", stream=USAGE)
    await log.publish(said)
    assert [event.subject for event in await read(reader, 1)] == ["usage.a"]


async def test_from_the_start_of_usage_all_that_it_holds_of_each_node_comes_in_order(log: AnyLog) -> None:
    for value in range(6):
        for node in "ab":
            said = msgspec.structs.replace(metric(node, value), subject=f"usage.{node}", stream=USAGE, id=f"{node}/{value}")
            assert await log.publish(said) is not None
    reader = await log.follow(USAGE, ["usage.*"], after=0)
    reader.loaded()
    held = [(event.subject, event.sequence) for event in await read(reader, 8)]
    assert held == [(f"usage.{'ab'[sequence % 2 == 0]}", sequence) for sequence in range(5, 13)]


async def test_the_time_of_the_server_is_not_taken_from_what_was_stored_before(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    for value in range(3):
        await log.publish(msgspec.structs.replace(metric("a", value), subject="usage.a", stream=USAGE, id=f"a/{value}"))
    reader = await log.follow(USAGE, ["usage.*"], after=0)
    async with asyncio.timeout(WAIT_SECONDS):
        for known in (False, False, True):
            while not await reader.pull(1, 1.0):
                continue
            assert (reader.server_time() is not None) is known
    await log.close()


async def test_a_reader_sees_what_reuses_the_sequences_of_a_lost_end(nats_server: NatsServer, tmp_path: Path) -> None:
    def usage(value: int) -> Event:
        return msgspec.structs.replace(metric("a", value), subject=f"usage.n{value}", stream=USAGE)

    early = await connect(nats_server.url, "early")
    await early.declare()
    assert await early.publish(usage(1)) == 1
    await early.close()
    nats_server.stop()
    shutil.copytree(nats_server.store, tmp_path / "store")
    nats_server.start()
    log = await connect(nats_server.url, "test")
    reader = await log.follow(USAGE, ["usage.*"], after=0)
    reader.loaded()
    for value in (2, 3):
        assert await log.publish(usage(value)) == value
    await read(reader, 3)
    nats_server.kill()
    shutil.rmtree(nats_server.store)
    shutil.copytree(tmp_path / "store", nats_server.store)
    nats_server.start()
    writer = await connect(nats_server.url, "writer")
    for value in range(4, 9):
        assert await writer.publish(usage(value)) == value - 2
    assert [event.subject for event in await read(reader, 5)] == [f"usage.n{value}" for value in range(4, 9)]
    await writer.close()
    await log.close()


async def test_many_filters_select_what_few_filters_do(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await store(log, resources("a", 1), metric("a", 5))
    many = await log.follow(LOG, ["node.*.resources", *(f"quotas.tree{i}.>" for i in range(12))])
    few = await log.follow(LOG, ["node.*.resources", "quotas.>"])
    await store(log, metric("b", 6), resources("b", 2))
    assert [event.subject for event in await read(many, 2)] == [event.subject for event in await read(few, 2)]
    await many.close()
    await few.close()
    await log.close()


async def test_more_than_a_thousand_nodes_follow_the_log(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    last = await log.follow(LOG, ["node.n1100.>"])
    for number in range(1100):
        config = {"name": f"node-n{number}", "ack_policy": "none", "deliver_policy": "new", "mem_storage": True}
        await log._api.create_consumer(LOG, config, (f"node.n{number}.>",))
    assert not await last.pull(1, 0.01)
    await store(log, resources("n1100", 1))
    assert [event.subject for event in await read(last, 1)] == ["node.n1100.resources"]
    await log.close()


async def test_a_drained_log_holds_what_others_had_sent_before(nats_server: NatsServer) -> None:
    writer, asker = await connect(nats_server.url, "writer"), await connect(nats_server.url, "asker")
    await writer.declare()
    before = await writer.last_sequence(LOG)
    writing = [asyncio.ensure_future(store(writer, metric(f"n{index}", index))) for index in range(50)]
    await writing[0]
    # The other 49 have left by the same connection, ahead of this flush's answer.
    await writer.client.flush()
    await asker.drained("metrics.asker")
    assert await asker.last_sequence(LOG) == before + 50, "and what was asked with is not stored"
    await asyncio.gather(*writing)
    await writer.close()
    await asker.close()


async def test_a_call_that_is_cancelled_as_its_answer_comes_is_cancelled(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()

    async def under_way_after(steps: int) -> bool:
        """Cancel a call after some steps of the event loop; whether it was still in progress."""
        call = asyncio.ensure_future(log._api.state(LOG))
        for _ in range(steps):
            await asyncio.sleep(0)
        if call.done():
            return False
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled(), f"the cancellation after {steps} steps was swallowed"
        return True

    # The step in which the answer comes is another one each time: one of these sweeps meets it.
    for _ in range(50):
        steps = 0
        while await under_way_after(steps):
            steps += 1
        assert steps
    await log.close()


async def test_log_is_stored_in_files_of_four_mebibytes_and_has_its_declared_bound(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    space = await log.space()
    assert (space.limit, space.enforced) == (stream_configs()[0]["max_bytes"], True)
    data = ObjectStored(object=msgspec.Raw(b'"' + b"x" * 500_000 + b'"'))
    for number in range(12):
        await store(log, Event(subject=f"objects.core.pods.default.{number}", data=data, id=f"{number}", source="/x"))
    sizes = sorted(file.stat().st_size for file in nats_server.store.rglob("streams/LOG/msgs/*.blk"))
    assert len(sizes) == 2
    assert sizes[-1] <= 4 << 20
    assert await log.declare() == []
    await log.close()


SMALL = StreamSizes(history=1 << 20, execution=1 << 20, log=1 << 20)


async def test_a_log_at_its_bound_refuses_a_batch_whole_and_drops_nothing(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare(sizes=SMALL)
    await store(log, resources("first", 1))
    await fill(log, leave=2_000)
    before = await log.space()
    outcome = await log.append([Write(event=resources(f"n{number}", 1)) for number in range(50)])
    assert isinstance(outcome, Refused)
    assert (outcome.no_space, outcome.wrong_sequence) == (True, False)
    assert await log.space() == before
    assert before.limit == SMALL.log
    stale = await log.append([Write(event=resources("first", 2), expected=77)])
    assert isinstance(stale, Refused)
    assert (stale.no_space, stale.wrong_sequence) == (False, True)
    assert await log.get(LOG, 1) is not None
    await log.close()


async def test_a_bound_that_is_not_enforced_is_remembered_and_refuses_once_it_is(nats_server: NatsServer) -> None:
    log, other = await connect(nats_server.url, "test"), await connect(nats_server.url, "test")
    await log.declare(sizes=SMALL)
    await log.enforce(False)
    assert await other.space() == LogSpace(0, SMALL.log, enforced=False)
    for number in range(12):
        await log.client.ask(f"objects.filler.{number}", b"", b"x" * 100_000, seconds=5.0)
    assert await other.declare(sizes=SMALL) == []
    before = await other.space()
    assert before.used > before.limit == SMALL.log
    await other.enforce(True)
    await other.enforce(True)
    assert await log.space() == msgspec.structs.replace(before, enforced=True)
    outcome = await log.append([Write(event=resources("late", 1)), Write(event=resources("later", 1))])
    assert isinstance(outcome, Refused)
    assert outcome.no_space
    assert await log.space() == msgspec.structs.replace(before, enforced=True)
    await log.extend(2 << 20)
    assert isinstance(await log.append([Write(event=resources("late", 1))]), Stored)
    for made in (log, other):
        await made.close()


async def test_a_larger_bound_replaces_one_that_is_not_enforced_and_a_smaller_one_does_not(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare(sizes=SMALL)
    await log.enforce(False)
    smaller = msgspec.structs.replace(SMALL, log=SMALL.log // 2)
    assert await log.declare(sizes=smaller) == ["= LOG: max_bytes stays 1 MiB, not 0.5 MiB"]
    assert not (await log.space()).enforced
    larger = msgspec.structs.replace(SMALL, log=SMALL.log * 2)
    assert await log.declare(sizes=larger) == ["~ LOG: max_bytes 1 MiB -> 2 MiB"]
    assert await log.space() == LogSpace(0, SMALL.log * 2)
    await log.close()


async def test_fewer_versions_make_room_and_keep_the_last_message_of_each_subject(nats_server: NatsServer) -> None:
    log, other = await connect(nats_server.url, "test"), await connect(nats_server.url, "test")
    await log.declare(sizes=SMALL)
    for number in range(20):
        await store(log, *(resources(f"n{node}", number) for node in range(5)))
    heads = [await log.head(f"node.n{node}.resources") for node in range(5)]
    used = (await log.space()).used
    await log.keep_versions(1)
    await log.extend(2 << 20)
    await other.declare(sizes=SMALL)
    space = await other.space()
    assert space.used < used / 10
    assert (space.limit, space.versions, space.extended) == (SMALL.log, 1, 2 << 20)
    assert [await log.head(f"node.n{node}.resources") for node in range(5)] == heads
    reader = await log.follow(LOG, ["node.*.resources"])
    assert [event.data.batch_cpu_milli for event in await read(reader, 5)] == [19] * 5  # type: ignore[attr-defined]
    await other.extend(0)
    await log.keep_versions(64)
    assert (await log.space()).extended == 0
    for made in (log, other):
        await made.close()


async def test_streams_stay_as_they_are_on_a_server_that_has_less_storage_than_before(nats_server: NatsServer) -> None:
    config = nats_server.folder / "server.conf"
    text = config.read_text()
    config.write_text(text.replace("jetstream {", "jetstream { max_file_store: 128MB,"))
    nats_server.stop()
    nats_server.start()
    log = await connect(nats_server.url, "test")
    await log.declare(sizes=StreamSizes.within(128 << 20))
    await log.declare(sizes=StreamSizes.within(128 << 20))
    await log.close()
    config.write_text(text.replace("jetstream {", "jetstream { max_file_store: 48MB,"))
    nats_server.stop()
    nats_server.start()
    log = await connect(nats_server.url, "test")
    await log.declare(sizes=StreamSizes.within(48 << 20))
    assert (await log.space()).limit == StreamSizes.within(128 << 20).log
    await store(log, resources("n", 1))
    await log.close()


async def test_log_gets_a_smaller_bound_where_there_is_no_storage_for_the_declared_one(nats_server: NatsServer) -> None:
    config = nats_server.folder / "server.conf"
    config.write_text(config.read_text().replace("jetstream {", "jetstream { max_file_store: 300MB,"))
    nats_server.stop()
    nats_server.start()
    log = await connect(nats_server.url, "test")
    await log.declare(sizes=StreamSizes(history=1 << 20, execution=1 << 20, log=1 << 30))
    assert (await log.space()).limit == 256 << 20
    await store(log, resources("n", 1))
    await log.close()


async def test_a_declaration_that_was_cut_off_after_the_creation_of_log_is_completed(nats_server: NatsServer) -> None:
    config = nats_server.folder / "server.conf"
    config.write_text(config.read_text().replace("jetstream {", "jetstream { max_file_store: 300MB,"))
    nats_server.stop()
    nats_server.start()
    log = await connect(nats_server.url, "test")
    await log.declare(sizes=StreamSizes(history=1 << 20, execution=1 << 20, log=FIRST_BYTES))
    assert (await log.space()).limit == FIRST_BYTES
    lines = await log.declare(sizes=StreamSizes(history=1 << 20, execution=1 << 20, log=1 << 30))
    assert (await log.space()).limit == 256 << 20
    assert [line for line in lines if "max_bytes" in line] == ["~ LOG: max_bytes 16 MiB -> 256 MiB"]
    await log.close()

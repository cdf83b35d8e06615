"""A message whose expectation concerns another subject: what a commit of one event is stored as, in memory and on a server."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from cotenant.events import Commit, Event
from cotenant.events.commits import record_of
from cotenant.log.contract import LOG, Refused, Stored, Write, ending
from cotenant.log.storing import find_out, store_batch
from tests.contract.logs import AnyLog
from tests.contract.test_cycle import NOW
from tests.contract.test_log import lose_an_answer, read, resources
from tests.contract.toy import metric

FENCE = "commits.toy.0"


def record(number: int) -> Event:
    """A record that is a message of its own."""
    data = Commit(prior=0, folded=0, now=NOW, count=0, replica=str(number))
    return Event(subject=FENCE, data=data, id=f"record/{number}", source="/cell/toy/0", time=NOW)


def fenced(node: str, cpu: int, fence: int) -> Write:
    commit = Commit(prior=fence, folded=0, now=NOW, count=0)
    event = resources(node, cpu, commit=commit)
    return Write(event=event, expected=fence, expected_subject=FENCE, message_id=event.id)


async def fence_of(log: AnyLog, number: int = 1, expected: int = 0) -> int:
    outcome = await log.append([Write(event=record(number), expected=expected)])
    assert isinstance(outcome, Stored), outcome
    return outcome.first


async def test_what_expects_a_record_is_stored_as_often_as_nobody_stores_another_one(log: AnyLog) -> None:
    fence = await fence_of(log)
    for cpu in (1, 2, 3):
        outcome = await log.append([fenced("a", cpu, fence)])
        assert outcome == Stored(fence + cpu, fence + cpu)
    await fence_of(log, 2, fence)
    outcome = await log.append([fenced("a", 4, fence)])
    assert isinstance(outcome, Refused)
    assert outcome.wrong_sequence
    head = await log.head("node.a.resources")
    assert head is not None
    assert head.sequence == fence + 3


async def test_the_record_of_a_commit_comes_back_with_its_event(log: AnyLog) -> None:
    fence = await fence_of(log)
    write = fenced("a", 1, fence)
    await log.append([write])
    reader = await log.follow(LOG, ["node.>"])
    (event,) = await read(reader, 1)
    assert event.commit == write.event.commit == record_of(event)
    await reader.close()


@pytest.mark.parametrize("of_stored", [True, False])
async def test_without_an_answer_it_is_sent_again_and_stored_once(
    log: AnyLog, monkeypatch: pytest.MonkeyPatch, of_stored: bool
) -> None:
    fence = await fence_of(log)
    lose_an_answer(log, monkeypatch, of_stored=of_stored)
    outcome = await store_batch(log, [fenced("a", 1, fence)])
    assert outcome == Stored(fence + 1, fence + 1, duplicate=of_stored)
    assert await log.append([fenced("a", 2, fence)]) == Stored(fence + 2, fence + 2)


async def test_without_an_answer_it_is_refused_once_another_has_taken_over(log: AnyLog) -> None:
    fence = await fence_of(log)
    stored, never = fenced("a", 1, fence), fenced("a", 2, fence)
    await log.append([stored])
    await fence_of(log, 2, fence)
    for write in (stored, never):
        outcome = await find_out(log, [write])
        assert isinstance(outcome, Refused), "whether it is there shows in what is delivered"
        assert outcome.wrong_sequence


async def test_a_tombstone_that_expects_a_record_follows_no_known_message(log: AnyLog) -> None:
    fence = await fence_of(log)
    await log.append([Write(event=metric("a", 1))])
    end = msgspec.structs.replace(ending("metrics.a", metric("a", 1).data), id="end", source="/x", time=NOW)
    outcome = await log.append([Write(event=end, expected=fence, expected_subject=FENCE)])
    assert outcome == Stored(fence + 2, fence + 2)
    stored = await log.get(LOG, fence + 2)
    assert stored is not None
    assert (stored.tombstone, stored.follows) == (True, 0), "what it expects is the sequence of another subject"


async def nothing_passes_a_new_record(log: AnyLog, times: int) -> None:
    """Of a message and a record that are sent at once and expect the same, the message is stored before the record or never. A
    replicated log may refuse the record, while it stores the message."""
    fence, moved = await fence_of(log, 0), 0
    for number in range(1, times + 1):
        writes = [fenced("a", number, fence), Write(event=record(number), expected=fence)]
        first, second = writes if number % 2 else reversed(writes)
        outcomes = await asyncio.gather(store_batch(log, [first]), store_batch(log, [second]))
        event, record_at = outcomes if number % 2 else reversed(outcomes)
        assert any(isinstance(outcome, Stored) for outcome in outcomes)
        if isinstance(record_at, Stored):
            assert not isinstance(event, Stored) or event.first < record_at.first
            fence, moved = record_at.first, moved + 1
            assert isinstance(await log.append([fenced("b", number, fence - 1)]), Refused)
    head = await log.head(FENCE)
    assert head is not None
    assert (head.sequence, moved > 0) == (fence, True)


async def test_nothing_passes_a_new_record(log: AnyLog) -> None:
    await nothing_passes_a_new_record(log, 100)

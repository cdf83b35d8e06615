"""Messages that a tombstone removed before they were read: the reader says so, a service waits for the tombstone, and where
HISTORY lacks them `replay --verify` compares what does not rest on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from cotenant.engine.replay import BEHIND, INCOMPLETE, verify
from cotenant.events import Event, NodeResources
from cotenant.events.commits import Commit, record_of
from cotenant.log.contract import LOG, TOMBSTONE_TTL_SECONDS, Behind, Lagging, NoAnswer, Reader, Refused, Stored, Write, ending
from cotenant.log.memory import MemoryLog, MemoryReader
from cotenant.log.nats.log import connect
from cotenant.log.nats.reader import boot_seconds
from cotenant.runtime.deciding import DecidingService
from cotenant.runtime.deciding_loop import BEHIND_SECONDS
from tests.contract.logs import AnyLog
from tests.contract.toy import TOY, ToyConfig, metric, toy_identity
from tests.nats_server import NatsServer

WAIT_SECONDS = 60


async def say(log: AnyLog, *events: Event) -> int:
    last = 0
    for event in events:
        outcome = await log.append([Write(event=event)])
        assert isinstance(outcome, Stored)
        last = outcome.last
    return last


def end_of(event: Event) -> Event:
    return ending(event.subject, event.data, ())


async def pull_one(reader: Reader) -> Event:
    async with asyncio.timeout(WAIT_SECONDS):
        while not (events := await reader.pull(1, 1.0)):
            pass
    (event,) = events
    return event


async def test_a_reader_is_behind_until_it_was_given_what_removed_the_missing(log: AnyLog) -> None:
    first = await say(log, metric("z", 0))
    reader = await log.follow(LOG, ["metrics.*", "node.>"], after=first)
    assert isinstance(reader, Lagging)
    await say(log, metric("a", 1), metric("b", 2), end_of(metric("a", 0)))
    assert (await pull_one(reader)).subject == "metrics.b"
    assert reader.behind, "metrics.a was there before metrics.b and will not come"
    assert (await pull_one(reader)).tombstone
    assert not reader.behind
    await reader.close()


async def test_a_reader_that_sees_every_message_of_the_log_is_not_behind_while_none_is_missing(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    first = await say(log, metric("z", 0))
    reader = await log.follow(LOG, ["metrics.*", "node.>"], after=first)
    await say(log, metric("a", 1), metric("b", 2), metric("c", 3))
    for subject in ("metrics.a", "metrics.b"):
        assert (await pull_one(reader)).subject == subject
        assert not reader.behind, "nothing was removed, so a long queue does not matter"
    await reader.close()
    await log.close()


@pytest.mark.parametrize("scaled", [0, 60])
async def test_a_reader_that_is_never_away_and_yet_late_starts_over_before_a_tombstone_expires_unread(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch, scaled: int
) -> None:
    """A slow service: it hears from the server all the time, and what it is given is older each time."""
    now = boot_seconds()
    monkeypatch.setattr("cotenant.log.nats.reader.boot_seconds", lambda: now)
    log = await connect(nats_server.url, "test")
    await log.declare()
    log.longest_ttl_seconds = scaled
    lifetime = scaled or TOMBSTONE_TTL_SECONDS
    first = await say(log, metric("z", 0))
    reader = await log.follow(LOG, ["metrics.*"], after=first)
    reader.loaded()
    await say(log, metric("a", 1))
    assert (await pull_one(reader)).subject == "metrics.a"
    pause = lifetime / 5
    await say(log, *(metric(f"n{number}", 1) for number in range(6)))
    read = 0

    async def read_slowly() -> None:
        nonlocal now, read
        for _ in range(6):
            now += pause
            await pull_one(reader)
            read += 1

    with pytest.raises(Behind, match=r"LOG is read \d+ s late"):
        await read_slowly()
    assert 0 < read * pause <= lifetime / 2
    await reader.close()
    await log.close()


class OneByOne(MemoryReader):
    """A reader that is given one message each time it is allowed to go on."""

    allowed: asyncio.Semaphore

    async def pull(self, limit: int, wait_seconds: float) -> Sequence[Event]:
        del limit, wait_seconds
        await self.allowed.acquire()
        return await super().pull(1, 0.0)


class Remembering(MemoryLog):
    """Remembers every message of LOG, as HISTORY does."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Event] = []
        self.allowed = asyncio.Semaphore(0)

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        outcome = await super().append(writes)
        if isinstance(outcome, Stored):
            self.history += [event for event in self.log.events(outcome) if event is not None]
        return outcome

    async def follow(self, stream: str, filters: Sequence[str], *, after: int | None = None) -> MemoryReader:
        reader = OneByOne(self, self.streams[stream], filters, after)
        reader.allowed = self.allowed
        return reader

    async def go_on(self) -> None:
        """Let the reader read one message, and the service fold it."""
        self.allowed.release()
        for _ in range(30):  # more steps than that takes
            await asyncio.sleep(0)

    def answer(self, node: str, value: int) -> Commit | None:
        """The commit of an answer, None while there is none."""
        commit: Commit | None = None
        for event in self.history:
            commit = record_of(event) or commit
            if isinstance(event.data, NodeResources) and (event.data.node, event.data.batch_cpu_milli) == (node, value):
                return commit
        return None

    async def answered(self, node: str, value: int, *, reading: bool = True) -> Commit:
        """Wait for an answer; return its commit."""
        async with asyncio.timeout(WAIT_SECONDS):
            while (commit := self.answer(node, value)) is None:
                await (self.go_on() if reading else asyncio.sleep(0))
        return commit


def started(log: Remembering) -> tuple[DecidingService, asyncio.Task[None]]:
    service = DecidingService(TOY, ToyConfig(), toy_identity("a"), log, None)
    return service, asyncio.ensure_future(service.run())


async def running(log: Remembering) -> tuple[DecidingService, asyncio.Task[None], int]:
    """A service that has answered and is given nothing more yet, and the sequence of metrics.b, before which metrics.a was
    removed unread."""
    await say(log, metric("a", 1), metric("b", 2))
    service, task = started(log)
    await log.answered("b", 4)
    last = await say(log, metric("a", 10), metric("b", 20), end_of(metric("a", 0)))
    return service, task, last - 1


async def stopped(log: Remembering, service: DecidingService, task: asyncio.Task[None]) -> None:
    service.stopping.set()
    async with asyncio.timeout(WAIT_SECONDS):
        while not task.done():
            await log.go_on()
    await task


async def test_a_service_decides_on_what_was_there_at_one_position_of_the_log() -> None:
    log = Remembering()
    service, task, _ = await running(log)
    assert not (await log.answered("b", 40)).behind
    await stopped(log, service, task)
    report = verify(log.history, {"toy": TOY})
    assert report.ok, report
    assert report.verified == report.commits


async def test_a_service_that_cannot_catch_up_decides_all_the_same_and_says_so() -> None:
    log = Remembering()
    service, task, removed_before = await running(log)
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(WAIT_SECONDS):
        while service.cycle is None or service.cycle.folded < removed_before:
            await log.go_on()
    assert (await log.answered("b", 40, reading=False)).behind
    assert asyncio.get_running_loop().time() - began >= BEHIND_SECONDS
    await stopped(log, service, task)
    report = verify(log.history, {"toy": TOY})
    assert report.not_comparable == {BEHIND: 1}
    assert report.differing == 0


async def history_of(*metrics: tuple[str, int]) -> list[Event]:
    """What LOG was given while a service answered these, one after the other."""
    log = Remembering()
    service, task = started(log)
    for node, value in metrics:
        await say(log, metric(node, value))
        await log.answered(node, 2 * value)
    await stopped(log, service, task)
    return log.history


def without(history: list[Event], is_missing: Callable[[Event], bool]) -> list[Event]:
    """HISTORY follows LOG a moment later, and lacks what had been removed by then."""
    left = [event for event in history if not is_missing(event)]
    assert len(left) == len(history) - 1
    return left


async def test_what_history_lacks_makes_only_those_decisions_incomparable_that_rest_on_it() -> None:
    history = await history_of(("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5))
    metric_of_a = metric("a", 2).data
    report = verify(without(history, lambda event: event.data == metric_of_a), {"toy": TOY})
    assert report.not_comparable == {INCOMPLETE: 2}, "those after a = 2 and b = 3; what follows a = 4 is known again"
    assert (report.verified, report.differing, report.holes) == (3, 0, 1)


async def test_a_commit_whose_messages_history_lacks_is_not_compared() -> None:
    history = await history_of(("a", 1), ("a", 2), ("b", 3), ("a", 4), ("b", 5))
    report = verify(
        without(history, lambda event: isinstance(event.data, NodeResources) and event.data.batch_cpu_milli == 6), {"toy": TOY}
    )
    assert report.not_comparable[INCOMPLETE] >= 1
    assert report.verified + report.not_comparable[INCOMPLETE] == report.commits == 4, "it was a commit itself"
    assert (report.verified, report.differing) == (3, 0), "the answer 6 was not there when the last one was decided"


async def test_a_wrong_decision_before_a_hole_is_found() -> None:
    history = await history_of(("a", 1), ("a", 2), ("b", 3))
    wrong = [
        replace(event, data=replace(event.data, batch_cpu_milli=77))
        if isinstance(event.data, NodeResources) and event.data.batch_cpu_milli == 4
        else event
        for event in history
    ]
    metric_of_b = metric("b", 3).data
    report = verify(without(wrong, lambda event: event.data == metric_of_b), {"toy": TOY})
    assert report.differing == 1
    assert report.first_difference is not None
    assert '"batchCpuMilli":77' in report.first_difference.recorded

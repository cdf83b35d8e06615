"""The asyncio shell with the toy service on a real server: load, decide, fence, survive, and verify afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import cast

import pytest
from msgspec.structs import replace

from cotenant.engine.definition import ServiceDefinition
from cotenant.engine.replay import verify
from cotenant.events import CommitRefused, Event, NodeMetricComputed, NodeResources
from cotenant.log.contract import EXECUTION, HISTORY, LOG, NoAnswer, Refused, Stored, Write
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.log.nats.reader import AWAY_SECONDS, boot_seconds
from cotenant.log.nats.streams import StreamSizes
from cotenant.runtime.deciding import DecidingService
from cotenant.runtime.follower import utc_now
from tests.contract.toy import ASSUMING_TOY, TOY, AssumingToyCore, ToyConfig, ToyCore, metric, toy_identity
from tests.full_log import fill, unfill
from tests.nats_server import NatsServer

WAIT_SECONDS = 60
LEAST_OF_A_PAUSE = 0.5
"""A follower shortens its pauses by chance, by half at most."""


async def say(log: NatsLog, *events: Event) -> int:
    outcome = await log.append([Write(event=event) for event in events])
    assert isinstance(outcome, Stored)
    return outcome.last


async def answers(log: NatsLog, wanted: dict[str, int]) -> None:
    """Wait (bounded) until the last answers on the log are as wanted."""
    seen: dict[str, int] = {}
    reader = await log.follow(LOG, ["node.*.resources"])
    reader.loaded()
    reader.max_behind = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while seen != wanted:
            for event in await reader.pull(100, 1.0):
                assert isinstance(event.data, NodeResources)
                seen[event.data.node] = event.data.batch_cpu_milli
                if event.tombstone:
                    del seen[event.data.node]
    await reader.close()


class Running:
    """A toy service in a task."""

    def __init__(
        self, log: NatsLog, replica: str, definition: ServiceDefinition = TOY, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.service = DecidingService(definition, ToyConfig(), toy_identity(replica), log, None, clock)
        self.task = asyncio.ensure_future(self.service.run())

    async def ready(self) -> Running:
        async with asyncio.timeout(WAIT_SECONDS):
            await self.service.ready.wait()
        return self

    async def stop(self) -> None:
        self.service.stopping.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await self.task


async def connected(server: NatsServer, sizes: StreamSizes | None = None) -> NatsLog:
    log = await connect(server.url, "test")
    await log.declare(sizes=sizes)
    return log


async def history(log: NatsLog, until: Callable[[list[Event]], bool]) -> list[Event]:
    """Read HISTORY until it has caught up (it follows asynchronously), bounded."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            events = await read_all(log, HISTORY, [">"])
            if until(events):
                return events


class Full:
    """A log that has no room for the first few start markers."""

    def __init__(self, log: NatsLog, times: int) -> None:
        self._log = log
        self._times = times
        self.refused_at: list[float] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        if len(self.refused_at) < self._times:
            self.refused_at.append(asyncio.get_running_loop().time())
            return Refused("insufficient resources", wrong_sequence=False)
        return await self._log.append(writes)


async def test_a_log_without_room_is_not_loaded_again_and_again(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 1, 10 min: two schedulers loaded 1,892 times within a stall of five seconds."""
    monkeypatch.setattr("cotenant.engine.load.RELOAD_PAUSE", timedelta(seconds=0.2))
    log = await connected(nats_server)
    full = Full(log, 3)
    service = await Running(cast(NatsLog, full), "a").ready()
    first, second, third = full.refused_at
    assert min(second - first, third - second) >= 0.2 * LEAST_OF_A_PAUSE
    assert service.service.incarnations == 4
    await service.stop()
    await log.close()


class Silent:
    """A log that stores the first few start markers, and answers none of them."""

    def __init__(self, log: NatsLog, times: int) -> None:
        self._log = log
        self._times = times
        self.sent_at: list[float] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        outcome = await self._log.append(writes)
        if len(self.sent_at) < self._times:
            self.sent_at.append(asyncio.get_running_loop().time())
            return NoAnswer("lost")
        return outcome


async def test_an_unanswered_start_marker_is_sent_again_ever_more_rarely_by_the_same_load(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    silent = Silent(log, 3)
    service = await Running(cast(NatsLog, silent), "a").ready()
    async with asyncio.timeout(WAIT_SECONDS):
        while len(silent.sent_at) < 3:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    first, second, third = silent.sent_at
    assert second - first >= 0.25
    assert third - second >= 0.75
    assert service.service.incarnations == 1
    await service.stop()
    await log.close()


class Refusing:
    """A log that takes start markers and no decision."""

    def __init__(self, log: NatsLog) -> None:
        self._log = log
        self.refused = 0
        self.markers: list[float] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        if writes[0].event.subject.startswith("commits."):
            self.refused += 1
            return Refused("insufficient resources", wrong_sequence=False)
        self.markers.append(asyncio.get_running_loop().time())
        return await self._log.append(writes)


async def test_a_service_whose_decisions_are_refused_backs_off(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    await say(log, metric("a", 1))
    refusing = Refusing(log)
    service = Running(cast(NatsLog, refusing), "a")
    async with asyncio.timeout(WAIT_SECONDS):
        while len(refusing.markers) < 4:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    pauses = [later - earlier for earlier, later in pairwise(refusing.markers)]
    assert pauses[1] >= 1.0 * LEAST_OF_A_PAUSE
    assert pauses[2] >= 2.0 * LEAST_OF_A_PAUSE
    await service.stop()
    await log.close()


class Counting:
    """A log that notes when decisions found no room."""

    def __init__(self, log: NatsLog) -> None:
        self._log = log
        self.refused_at: list[float] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        outcome = await self._log.append(writes)
        if isinstance(outcome, Refused) and outcome.no_space:
            self.refused_at.append(asyncio.get_running_loop().time())
        return outcome


async def test_a_service_whose_decisions_find_no_room_folds_on_and_decides_once_there_is_some(nats_server: NatsServer) -> None:
    log, other = [await connected(nats_server, StreamSizes(log=1 << 20)) for _ in range(2)]
    counting = Counting(log)
    names = [f"n{number}" for number in range(40)]
    empty = (await other.space()).used
    await say(other, *(metric(name, 11) for name in names))
    of_facts = (await other.space()).used - empty
    service = await Running(cast(NatsLog, counting), "a").ready()
    await answers(other, dict.fromkeys(names, 22))
    of_decisions = (await other.space()).used - empty - of_facts

    await fill(other, leave=of_facts + of_decisions // 3)
    last = await say(other, *(metric(name, 12) for name in names))
    async with asyncio.timeout(WAIT_SECONDS):
        while len(counting.refused_at) < 2:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
    first, second = counting.refused_at
    assert second - first >= 1.0
    assert service.service.cycle is not None
    assert service.service.cycle.folded >= last
    await unfill(other)
    await answers(other, dict.fromkeys(names, 24))
    assert service.service.incarnations == 1
    await service.stop()
    for made in (log, other):
        await made.close()


class PoisonedToyCore(ToyCore):
    """A toy with rules that some figures break."""

    def apply(self, event: Event) -> None:
        if isinstance(event.data, NodeMetricComputed) and event.data.node_usage.cpu_milli == 666:
            raise OverflowError("no room for 666")
        super().apply(event)

    def decide(self, now: datetime) -> Sequence[Event]:
        if any(metric.data.node_usage.cpu_milli == 667 for metric in self.metrics.values()):  # type: ignore[attr-defined]
            raise ZeroDivisionError("no rule for 667")
        return super().decide(now)


async def test_messages_that_break_a_rule_are_set_aside_and_the_service_goes_on(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    log = await connected(nats_server)
    await say(log, metric("loaded", 667), metric("fine", 1))
    service = await Running(log, "a", replace(TOY, make_core=PoisonedToyCore)).ready()
    await answers(log, {"fine": 2})
    await say(log, metric("folded", 666), metric("decided", 667), metric("late", 3))
    await answers(log, {"fine": 2, "late": 6})
    letters = {letter.data.subject: letter.data.reason for letter in await read_all(log, EXECUTION, ["deadletter.>"])}  # type: ignore[attr-defined]
    assert letters == {
        "metrics.loaded": "ZeroDivisionError: no rule for 667",
        "metrics.folded": "OverflowError: no room for 666",
        "metrics.decided": "ZeroDivisionError: no rule for 667",
    }
    lines = [record for record in caplog.records if "quarantined" in record.getMessage()]
    assert {(record.args[2], record.exc_info) for record in lines} == {(subject, None) for subject in letters}  # type: ignore[index]
    assert len(lines) == len(letters), "one line each, without a traceback"
    await say(log, metric("decided", 4), metric("folded", 5))
    await answers(log, {"fine": 2, "late": 6, "decided": 8, "folded": 10})
    assert set(service.service.quarantine.held) == {"metrics.loaded"}
    await service.stop()
    end = await log.last_sequence(LOG)
    events = await history(log, lambda events: bool(events) and events[-1].sequence >= end)
    report = verify(events, {"toy": replace(TOY, make_core=PoisonedToyCore)})
    assert report.ok, report.first_difference
    assert report.verified == report.commits >= 2, "each commit is compared, without what the service had quarantined then"
    await log.close()


async def test_a_service_whose_commits_were_purged_expects_what_stands(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    service = await Running(log, "a").ready()
    await say(log, metric("a", 1))
    await answers(log, {"a": 2})
    await log.purge(LOG, "commits.>")
    await say(log, metric("a", 2))
    await answers(log, {"a": 4})
    assert service.service.incarnations == 2
    await service.stop()
    await log.close()


async def test_a_clock_that_jumped_ahead_stops_its_own_service_and_nobody_else(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    wrong_by = timedelta(hours=1)
    skewed = Running(log, "skewed", clock=lambda: utc_now() + wrong_by)
    await skewed.ready()
    await say(log, metric("a", 1))
    right = await Running(log, "right").ready()
    await answers(log, {"a": 2})
    commits = await read_all(log, LOG, ["commits.>"])
    assert [event.data.replica for event in commits] == ["right"]  # type: ignore[attr-defined]
    assert skewed.service.cycle is not None
    assert skewed.service.cycle.loaded, "it goes on folding"
    await right.stop()
    wrong_by = timedelta(0)
    await say(log, metric("b", 3))
    await answers(log, {"a": 2, "b": 6})
    await skewed.stop()
    await log.close()


async def test_facts_become_decisions_that_can_be_recomputed(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    await say(log, metric("a", 1), metric("b", 2))
    toy = await Running(log, "a").ready()
    await answers(log, {"a": 2, "b": 4})
    last = 0
    for value in range(10, 40):
        last = await say(log, metric("a", value))
    await answers(log, {"a": 78, "b": 4})
    await toy.stop()
    end = await log.last_sequence(LOG)
    report = verify(await history(log, lambda events: bool(events) and events[-1].sequence >= end), {"toy": TOY})
    assert report.ok, report
    assert report.commits == report.verified >= 2
    assert report.holes == 0
    assert last < end


async def test_verification_notices_a_decision_that_does_not_follow(nats_server: NatsServer) -> None:
    log = await connected(nats_server)

    class Wrong(ToyCore):
        def decide(self, now: object) -> list[Event]:
            return [
                Event(subject=event.subject, data=NodeResources(node=event.data.node, batch_cpu_milli=77), causes=event.causes)  # type: ignore[attr-defined]
                for event in super().decide(now)  # type: ignore[arg-type]
                if event.data.node not in self.answers  # type: ignore[attr-defined]
            ]

    wrong = type(TOY)(
        name="toy", core_version="1", filters=TOY.filters, config_type=ToyConfig, make_core=lambda config: Wrong(config)
    )
    await say(log, metric("a", 1))
    service = DecidingService(wrong, ToyConfig(), toy_identity("a"), log, None)
    task = asyncio.ensure_future(service.run())
    await answers(log, {"a": 77})
    service.stopping.set()
    await task
    end = await log.last_sequence(LOG)
    report = verify(await history(log, lambda events: bool(events) and events[-1].sequence >= end), {"toy": TOY})
    assert not report.ok
    assert report.first_difference is not None
    assert report.first_difference.field == "data"
    assert '"batchCpuMilli":77' in report.first_difference.recorded
    assert '"batchCpuMilli":2' in report.first_difference.recomputed


async def test_two_replicas_harm_nobody_and_the_loser_says_so(nats_server: NatsServer) -> None:
    log, other = await connected(nats_server), await connected(nats_server)
    first, second = await Running(log, "a").ready(), await Running(other, "b").ready()
    wanted: dict[str, int] = {}
    for value in range(60):
        wanted[f"n{value % 7}"] = 2 * value
        await say(log, metric(f"n{value % 7}", value))
    await answers(log, wanted)
    await asyncio.gather(first.stop(), second.stop())
    end = await log.last_sequence(LOG)
    events = await history(log, lambda events: bool(events) and events[-1].sequence >= end)
    report = verify(events, {"toy": TOY})
    assert report.ok, report.first_difference
    refusals = await read_all(log, EXECUTION, ["execution._.commits"])
    assert first.service.cycle is not None
    assert second.service.cycle is not None
    assert bool(refusals) == bool(first.service.cycle.conflicts + second.service.cycle.conflicts)
    assert all(isinstance(event.data, CommitRefused) and event.data.service == "toy" for event in refusals)


async def test_a_service_survives_the_death_of_its_server(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    toy = await Running(log, "a").ready()
    await say(log, metric("a", 1))
    await answers(log, {"a": 2})
    nats_server.kill()
    nats_server.start()
    other = await connected(nats_server)
    await say(other, metric("a", 5), metric("b", 5))
    await answers(other, {"a": 10, "b": 10})
    await toy.stop()


async def test_a_restarted_service_goes_on_where_it_was_and_deletes_what_has_ended(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    toy = await Running(log, "a").ready()
    await say(log, metric("a", 1), metric("b", 1))
    await answers(log, {"a": 2, "b": 2})
    await toy.stop()
    gone = metric("a", 0)
    await say(log, type(gone)(subject=gone.subject, data=gone.data, id="gone", source="/x", tombstone=True, ttl_seconds=600))
    before = await log.last_sequence(LOG)
    again = await Running(log, "a2").ready()
    await answers(log, {"b": 2})
    await again.stop()
    written = [event for event in await read_all(log, LOG, [">"], after=before) if event.subject.startswith("node.")]
    assert [(event.subject, event.tombstone) for event in written] == [("node.a.resources", True)]


async def test_a_service_that_is_far_behind_starts_over(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.log.nats.reader.MAX_BEHIND_UNFILTERED", 50)
    monkeypatch.setattr("cotenant.log.nats.consumer.PULL_BATCH", 10)
    log, other = await connected(nats_server), await connected(nats_server)
    toy = await Running(log, "a").ready()
    apply = ToyCore.apply
    held = asyncio.Event()

    def slow(self: ToyCore, event: Event) -> None:
        held.set()
        apply(self, event)

    monkeypatch.setattr(ToyCore, "apply", slow)
    # One burst of four hundred on one connection, read ten at a time: the reader finds itself behind and starts over.
    await asyncio.gather(*(say(other, *(metric(f"n{part}-{index}", 1) for index in range(100))) for part in range(4)))
    await answers(other, {f"n{part}-{index}": 2 for part in range(4) for index in range(100)})
    assert held.is_set()
    assert toy.service.incarnations >= 2
    await toy.stop()


async def test_a_service_that_was_away_for_half_of_a_tombstones_time_starts_over(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = await connected(nats_server), await connected(nats_server)
    toy = await Running(log, "a").ready()
    await say(other, metric("n", 1))
    await answers(log, {"n": 2})
    assert toy.service.incarnations == 1
    later = boot_seconds() + AWAY_SECONDS + 1
    monkeypatch.setattr("cotenant.log.nats.reader.boot_seconds", lambda: later)
    await say(other, metric("n", 2))
    await answers(other, {"n": 4})
    assert toy.service.incarnations == 2
    await toy.stop()


async def test_under_load_the_next_batch_is_decided_while_the_last_one_is_stored(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = await connected(nats_server), await connected(nats_server)
    assumed: list[int] = []
    assume = AssumingToyCore.assume

    def noted(self: AssumingToyCore, events: Sequence[Event]) -> None:
        assumed.append(len(events))
        assume(self, events)

    monkeypatch.setattr(AssumingToyCore, "assume", noted)
    toy = Running(log, "a", ASSUMING_TOY)
    await toy.ready()
    for value in range(1, 6):
        await asyncio.gather(*(say(other, *(metric(f"n{part}-{index}", value) for index in range(400))) for part in range(3)))
    await answers(log, {f"n{part}-{index}": 10 for part in range(3) for index in range(400)})
    await toy.stop()
    assert assumed
    end = await log.last_sequence(LOG)
    report = verify(await history(log, lambda events: bool(events) and events[-1].sequence >= end), {"toy": ASSUMING_TOY})
    assert report.ok, report.first_difference
    assert report.commits == report.verified


class Counted:
    """A log that counts how often the end of what reached it was waited for, and can hold back the answers to batches."""

    def __init__(self, log: NatsLog) -> None:
        self._log = log
        self.drains = 0
        self.stored = asyncio.Event()
        self.passes = asyncio.Event()
        self.passes.set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        outcome = await self._log.append(writes)
        self.stored.set()
        await self.passes.wait()
        return outcome

    async def drained(self, subject: str) -> None:
        self.drains += 1
        await self._log.drained(subject)


async def test_the_log_is_waited_for_only_behind_a_batch_during_which_something_arrived(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant.runtime.deciding_loop.DRAIN_SECONDS", float("inf"))
    log = await connected(nats_server)
    counted = Counted(log)
    running = await Running(cast(NatsLog, counted), "a").ready()
    for figure in range(1, 4):
        await say(log, metric("a", figure))
        await answers(log, {"a": 2 * figure})
    assert counted.drains == 0
    counted.passes.clear()
    counted.stored.clear()
    await say(log, metric("a", 4))
    async with asyncio.timeout(WAIT_SECONDS):
        await counted.stored.wait()
        last = await say(log, metric("a", 5))
        cycle = running.service.cycle
        assert cycle is not None
        while cycle.folded < last:  # noqa: ASYNC110 - bounded
            await asyncio.sleep(0.01)
    counted.passes.set()
    await answers(log, {"a": 10})
    assert counted.drains == 1
    await running.stop()
    await log.close()

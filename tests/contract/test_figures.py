"""The figures that alerts are about, as a service on a real log tells them: lag, undecided facts, refused writes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from cotenant.engine.quarantine import Quarantine
from cotenant.log.contract import LOG, Refused, Write
from cotenant.log.nats.log import connect, read_all
from cotenant.log.nats.streams import StreamSizes
from cotenant.model.trace_context import trace_of
from cotenant.runtime.deciding_loop import DecidingLoop
from cotenant.runtime.figures import LOOKS, Figures
from cotenant.runtime.follower import utc_now
from tests.contract.test_service import Running, answers, connected, say
from tests.contract.toy import metric
from tests.full_log import fill
from tests.nats_server import NatsServer

WAIT_SECONDS = 90
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def until(true: Callable[[], bool]) -> None:
    """Wait (bounded) for what nobody tells of."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not true():  # noqa: ASYNC110 - figures are only read
            await asyncio.sleep(0.01)


def lag(figures: Figures) -> tuple[int | None, float | None]:
    return figures.behind_messages, figures.behind_seconds


def figures_of(running: Running) -> Figures:
    return running.service._around.figures


async def test_a_service_tells_how_far_it_is_and_how_long_it_has_been_behind(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant.runtime.follower.LOOK_SECONDS", 0.02)
    log = await connected(nats_server)
    service = await Running(log, "a").ready()
    figures = figures_of(service)
    assert figures.loads == 1
    assert figures.load_seconds is not None
    await say(log, metric("n", 1))
    await answers(log, {"n": 2})
    last = await log.last_sequence(LOG)
    await until(lambda: figures.position() == last and figures.behind_messages == 0)
    assert figures.behind_seconds == 0.0

    with monkeypatch.context() as stalled:
        stalled.setattr(DecidingLoop, "_fold_waiting", lambda *_: 0)
        await say(log, metric("m", 1))
        await say(log, metric("m", 2))
        await until(lambda: (figures.behind_messages or 0) >= 2 and (figures.behind_seconds or 0) > 0.05)
    await until(lambda: figures.behind_messages == 0 and figures.behind_seconds == 0.0)
    await service.stop()
    await log.close()


async def test_facts_that_cannot_be_decided_on_have_an_age_until_they_are(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    wrong = timedelta(0)

    def clock() -> datetime:
        return utc_now() + wrong

    service = await Running(log, "a", clock=clock).ready()
    figures = figures_of(service)
    await say(log, metric("n", 1))
    await answers(log, {"n": 2})
    await until(lambda: figures.undecided_seconds == 0.0)
    wrong = timedelta(seconds=60)
    await say(log, metric("n", 2))
    await until(lambda: figures.undecided_seconds > 0.05)
    wrong = timedelta(0)
    await answers(log, {"n": 4})
    await until(lambda: figures.undecided_seconds == 0.0)
    await service.stop()
    await log.close()


async def test_a_replica_that_only_watches_has_nothing_undecided(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    one, other = await Running(log, "a").ready(), await Running(log, "b").ready()
    for number in range(1, 6):
        await say(log, metric("n", number))
        await answers(log, {"n": 2 * number})
    for each in (one, other):
        await until(lambda each=each: figures_of(each).undecided_seconds == 0.0)  # type: ignore[misc]
        await each.stop()
    await log.close()


async def test_a_clock_ahead_of_the_logs_is_shown_by_how_far(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.runtime.follower.LOOK_SECONDS", 0.02)
    log = await connected(nats_server)
    wrong_by = timedelta(hours=1)
    skewed = await Running(log, "skewed", clock=lambda: utc_now() + wrong_by).ready()
    await until(lambda: figures_of(skewed).clock_ahead_seconds >= 3600)
    wrong_by = timedelta(hours=-1)
    await until(lambda: figures_of(skewed).clock_ahead_seconds == 0)
    await skewed.stop()
    await log.close()


async def test_writes_that_are_refused_are_counted_by_reason(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare(sizes=StreamSizes(log=1 << 20))
    assert set(log.refused.values()) == {0}
    assert isinstance(await log.append([Write(event=metric("n", 1), expected=77)]), Refused)
    huge = replace(metric("n", 1), actor="x" * (2 << 20))
    assert isinstance(await log.append([Write(event=huge)]), Refused)
    await fill(log)
    full = await log.append([Write(event=replace(metric("n", 1), actor="x" * 100_000))])
    assert isinstance(full, Refused)
    assert full.no_space
    assert log.refused["sequence"] == log.refused["too_large"] == 1
    assert log.refused["no_space"] >= 1
    await log.close()


async def test_a_decision_has_the_trace_of_what_it_follows_from(nats_server: NatsServer) -> None:
    log = await connected(nats_server)
    await say(log, replace(metric("a", 1), traceparent=f"00-{TRACE}-00f067aa0ba902b7-00"), metric("b", 1))
    service = await Running(log, "a").ready()
    await answers(log, {"a": 2, "b": 2})
    await say(log, replace(metric("a", 2), id="later", traceparent=f"00-{TRACE}-00f067aa0ba902b7-01"))
    await answers(log, {"a": 4, "b": 2})
    stored = await read_all(log, LOG, ["metrics.*", "node.*.resources"])
    decided = [event for event in stored if event.subject == "node.a.resources"]
    assert [event.traceparent[-2:] for event in decided] == ["00", "01"]
    assert {trace_of(event.traceparent) for event in decided} == {TRACE}
    assert len({event.traceparent[36:52] for event in decided}) == 2
    own = {event.subject: trace_of(event.traceparent) for event in stored}
    assert own["node.b.resources"] == own["metrics.b"] != TRACE
    await service.stop()
    await log.close()


def test_the_time_of_lag_begins_when_logs_end_was_first_seen_beyond_what_is_folded() -> None:
    now, position = 100.0, 10
    figures = Figures(lambda: now)
    figures.position = lambda: position
    assert lag(figures) == (None, None)
    figures.saw_end(10)
    assert lag(figures) == (0, 0.0)
    figures.saw_end(12)
    now = 105.0
    figures.saw_end(15)
    now = 110.0
    assert lag(figures) == (5, 10.0)
    position = 12
    assert lag(figures) == (3, 5.0)
    position = 16
    assert lag(figures) == (0, 0.0)
    figures.saw_end(3)
    assert figures.behind_messages == 0, "another LOG"


def test_what_lag_is_measured_by_is_bounded() -> None:
    figures = Figures(float)
    for end in range(1, 3 * LOOKS):
        figures.saw_end(end)
    assert len(figures._ends) == LOOKS
    assert figures._ends[0][0] == 1, "the oldest is what the time of lag is about"


def test_subjects_that_are_set_aside_are_counted() -> None:
    figures, quarantine = Figures(), Quarantine()
    figures.quarantines.append(quarantine)
    assert figures.quarantined == 0
    quarantine.set_aside(metric("n", 1), OverflowError("too many"))
    assert figures.quarantined == 1

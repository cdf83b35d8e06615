"""A load is exact whatever expires, is replaced, ends or lags meanwhile."""

from __future__ import annotations

import asyncio
import gc
import shutil
import weakref
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from cotenant.engine.commit import Identity
from cotenant.engine.load import Load
from cotenant.events import Event
from cotenant.events.commits import ServiceStarted
from cotenant.events.envelope import encode_payload
from cotenant.events.node.sized_usage import UsageView
from cotenant.events.node.usage import Series, UsageSample
from cotenant.log.contract import LOG, MAX_BATCH, USAGE, Behind, NoAnswer, Refused, Stored, Write, ending
from cotenant.log.memory import MemoryLog
from cotenant.log.nats import snapshot as snapshots
from cotenant.log.nats.jetstream import Subjects
from cotenant.log.nats.log import connect
from cotenant.log.nats.snapshot import StreamSnapshot
from cotenant.runtime.follower import Follower
from cotenant.runtime.incarnations import LoadingIncarnation
from cotenant.runtime.reading import Reading
from tests.contract.logs import AnyLog
from tests.contract.toy import metric
from tests.nats_server import NatsServer

SUBJECTS = 6000
WAIT_SECONDS = 120


async def store(log: AnyLog, events: Sequence[Event]) -> int:
    """Store events in batches; return the last sequence."""
    last = 0
    for first in range(0, len(events), MAX_BATCH):
        outcome = await log.append([Write(event=event) for event in events[first : first + MAX_BATCH]])
        assert isinstance(outcome, Stored), outcome
        last = outcome.last
    return last


def fold(state: dict[str, tuple[int, int]], events: Sequence[Event]) -> None:
    """Keep of each subject the last value with its sequence; an ended subject is no longer there."""
    for event in events:
        if event.sequence <= state.get(event.subject, (0, 0))[0]:
            continue
        value = -1 if event.tombstone else event.data.node_usage.cpu_milli  # type: ignore[attr-defined]
        state[event.subject] = (event.sequence, value)


@pytest.mark.parametrize("seed", range(3))
async def test_what_changes_while_a_load_is_under_way_is_neither_lost_nor_old(
    log: AnyLog, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pulls that expire at once: with a consumer by last message per subject each of them could lose one.
    monkeypatch.setattr("cotenant.log.nats.consumer.PULL_EXPIRES_SECONDS", 0.01)
    monkeypatch.setattr("cotenant.log.nats.consumer.HEARTBEAT_SECONDS", 0.004)
    truth: dict[str, int] = {f"metrics.n{number:05}": 0 for number in range(SUBJECTS)}
    await store(log, [metric(f"n{number:05}", 0) for number in range(SUBJECTS)])
    reader = await log.follow(LOG, ["metrics.*"])
    state: dict[str, tuple[int, int]] = {}
    sequences: list[int] = []

    def take(events: Sequence[Event]) -> None:
        sequences.extend(event.sequence for event in events)
        fold(state, events)

    last = 0
    for round_number in range(1, 21):
        changed: list[Event] = []
        for number in range(seed + round_number, SUBJECTS, 97):
            subject = f"metrics.n{number:05}"
            if (number + round_number) % 5 == 0:
                changed.append(ending(subject, metric(f"n{number:05}", 0).data))
                truth[subject] = -1
            else:
                changed.append(metric(f"n{number:05}", round_number))
                truth[subject] = round_number
        last = await store(log, changed)
        take(await reader.pull(250, 1.0))
    async with asyncio.timeout(WAIT_SECONDS):
        while reader.position < last or len(state) < SUBJECTS:
            take(await reader.pull(1000, 1.0))
    assert {subject: value for subject, (_, value) in state.items()} == truth
    assert len(sequences) == len(set(sequences)), "nothing is delivered twice"
    await reader.close()


async def test_a_load_survives_the_death_of_its_server(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await store(log, [metric(f"n{number:05}", number) for number in range(SUBJECTS)])
    reader = await log.follow(LOG, ["metrics.*"])
    state: dict[str, tuple[int, int]] = {}
    fold(state, await reader.pull(100, 1.0))
    nats_server.kill()
    nats_server.start()
    async with asyncio.timeout(WAIT_SECONDS):
        while len(state) < SUBJECTS:
            fold(state, await reader.pull(1000, 1.0))
    assert sorted(value for _, value in state.values()) == list(range(SUBJECTS))
    await log.close()


async def test_a_replica_that_is_behind_is_asked_again(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica: a second real server that has the same stream as it was before the last changes."""
    log = await connect(nats_server.url, "test")
    await log.declare()
    await store(log, [metric(f"n{number:03}", 0) for number in range(100)])
    nats_server.kill()
    replica = NatsServer()
    shutil.copytree(nats_server.folder / "store", replica.folder / "store")
    replica.start()
    nats_server.start()
    behind = await connect(replica.url, "replica")
    try:
        await log._until_connected()
        await store(log, [metric(f"n{number:03}", 1) for number in range(0, 100, 2)])
        await store(log, [metric(f"m{number:03}", 1) for number in range(100)])
        asked: list[str] = []

        async def relay(snapshot: StreamSnapshot, subjects: list[str], client: object = log.client) -> object:
            """The first gets go to the replica, as they could in a cluster."""
            asked.append(subjects[0])
            monkeypatch.setattr(snapshot, "_client", behind.client if len(asked) <= 3 else client)
            return await ask(snapshot, subjects)

        ask = StreamSnapshot._ask
        monkeypatch.setattr(StreamSnapshot, "_ask", relay)
        reader = await log.follow(LOG, ["metrics.*"])
        state: dict[str, tuple[int, int]] = {}
        async with asyncio.timeout(WAIT_SECONDS):
            while len(state) < 200:
                fold(state, await reader.pull(1000, 1.0))
        assert len(asked) > 3
        assert state["metrics.n002"][1] == 1
        assert sum(value for _, value in state.values()) == 150
        await reader.close()
    finally:
        await log.close()
        await behind.close()
        replica.close()


async def test_a_replica_that_stays_behind_ends_the_load_with_a_reason(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await store(log, [metric("a", 1)])
    monkeypatch.setattr(snapshots, "TRIES", 3)
    reader = await log.follow(LOG, ["metrics.*"])
    assert reader._snapshot is not None
    reader._snapshot.through += 1  # as if the leader had stored one more than this server ever shows
    with pytest.raises(Behind, match="a replica is at 1, the load at 2"):
        await reader.pull(10, 1.0)
    await log.close()


async def test_large_messages_come_in_several_answers(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MAX_GET_BYTES", 2000)
    log = await connect(nats_server.url, "test")
    await log.declare()
    await store(log, [metric(f"n{number:03}", number) for number in range(100)])
    reader = await log.follow(LOG, ["metrics.*"])
    state: dict[str, tuple[int, int]] = {}
    async with asyncio.timeout(WAIT_SECONDS):
        while len(state) < 100:
            fold(state, await reader.pull(1000, 1.0))
    assert [state[f"metrics.n{number:03}"][1] for number in range(100)] == list(range(100))
    await log.close()


class PagedSubjects:
    """STREAM.INFO's answer by pages of 10, while subjects end."""

    def __init__(self, ends: Sequence[Sequence[str]]) -> None:
        self.subjects_held = [f"s{number:02}" for number in range(40)]
        self._ends = list(ends)

    async def subjects(self, stream: str, selected: str, offset: int = 0) -> Subjects:
        del stream, selected
        page = Subjects(tuple(self.subjects_held[offset : offset + 10]), len(self.subjects_held))
        gone = self._ends.pop(0) if self._ends else ()
        self.subjects_held = [subject for subject in self.subjects_held if subject not in gone]
        return page


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((), id="nothing ends"),
        pytest.param((["s00", "s03"], ["s11"]), id="few end before the next page"),
        pytest.param(([f"s{number:02}" for number in range(8)], [], ["s12"]), id="more end than pages overlap"),
        pytest.param(([f"s{number:02}" for number in range(5, 40)],), id="nearly all end"),
        pytest.param(([], [], ["s20", "s21", "s22", "s23"]), id="those on the edge end"),
    ],
)
async def test_no_subject_that_stays_is_missed_between_pages(
    ends: Sequence[Sequence[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "PAGE_OVERLAP", 3)
    pages = PagedSubjects(ends)
    snapshot = StreamSnapshot(None, LOG, (">",))  # type: ignore[arg-type]
    snapshot._api = pages  # type: ignore[assignment]
    listed = await snapshot._list(">")
    assert set(listed) >= set(pages.subjects_held)
    assert listed == sorted(set(listed))


class _Looking(LoadingIncarnation):
    """Remembers which subjects it knew when its load was over."""

    def __init__(self, stopping: asyncio.Event) -> None:
        super().__init__(Load(Identity(service="test", replica="r"), (">",), 1))
        self._stopping = stopping
        self.known: dict[str, bool] = {}

    async def run(self, reading: Reading) -> None:
        while not self._stopping.is_set():
            await reading.wait(1.0)
            while not self._stopping.is_set() and (events := reading.take()) is not None:
                for event in events:
                    if self.load.ends_with(event):
                        self._stopping.set()
                        break
                    self.known[event.subject] = not event.tombstone


async def test_a_load_is_over_at_a_sequence_where_its_state_is_whole(log: AnyLog, monkeypatch: pytest.MonkeyPatch) -> None:
    # The start marker's delivery ends the load. What is replaced behind the marker must have been read before it.
    await store(log, [metric(f"n{number}", number) for number in range(10)])
    append = log.append

    async def replacing_behind_it(writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        outcome = await append(writes)
        if isinstance(writes[0].event.data, ServiceStarted):
            await store_all([metric("n3", 33), ending("metrics.n4", metric("n4", 0).data)])
        return outcome

    async def store_all(events: Sequence[Event]) -> None:
        assert isinstance(await append([Write(event=event) for event in events]), Stored)

    monkeypatch.setattr(log, "append", replacing_behind_it)
    stopping = asyncio.Event()
    seen = _Looking(stopping)
    async with asyncio.timeout(WAIT_SECONDS):
        await Follower(log, (">",), stopping, service="test").run(lambda _: seen)
    assert {f"metrics.n{number}" for number in range(10)} <= {subject for subject, exists in seen.known.items() if exists}


class _Usage(_Looking):
    """Takes usage messages until there is one."""

    async def run(self, reading: Reading) -> None:
        self.samples: list[object] = []
        while not self.samples:
            await reading.wait(1.0)
            while (events := reading.take()) is not None:
                self.samples += [event.data for event in events if event.stream == USAGE]
        self._stopping.set()


async def test_usage_messages_are_read_in_the_views_of_their_reader(log: AnyLog) -> None:
    sample = UsageSample(node="n1", offsets_ms=(0,), node_usage=Series(cpu_milli=(7,), memory_bytes=(8,)))
    event = Event(subject="usage.n1", data=sample, time=datetime.now(UTC), id="u/1", source="/test", stream=USAGE)
    assert await log.publish(event) is not None
    stopping = asyncio.Event()
    seen = _Usage(stopping)
    async with asyncio.timeout(WAIT_SECONDS):
        follower = Follower(log, (">",), stopping, service="test", usage_filters=("usage.*",), views=(UsageView,))
        await follower.run(lambda _: seen)
    (found,) = seen.samples
    assert isinstance(found, UsageSample)
    assert encode_payload(found) == encode_payload(sample)
    assert (type(found) is UsageSample) == isinstance(log, MemoryLog), "on a server it is decoded by the number of its samples"


class _Unanswered(LoadingIncarnation):
    """Loads, or gives up without; the third one ends the follower."""

    def __init__(self, number: int, stopping: asyncio.Event, *, loads: bool) -> None:
        super().__init__(Load(Identity(service="test", replica="r"), (">",), number))
        self._number = number
        self._stopping = stopping
        self._loads = loads

    @property
    def pause(self) -> timedelta:
        return timedelta(0)

    async def run(self, reading: Reading) -> None:
        if self._loads:
            reading.loaded()
        if self._number == 3:
            self._stopping.set()
        raise TimeoutError


@pytest.mark.parametrize(("loads", "pauses"), [(True, ["0.0", "0.0", "0.0"]), (False, ["0.0", "0.2", "0.2"])])
async def test_only_an_incarnation_that_had_loaded_is_followed_by_one_without_a_pause(
    loads: bool, pauses: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cotenant.runtime.follower.GOOD_SECONDS", -1.0)
    stopping = asyncio.Event()
    follower = Follower(MemoryLog(), (">",), stopping, service="test", max_pause_seconds=0.2, chance=lambda: 0.0)
    async with asyncio.timeout(WAIT_SECONDS):
        await follower.run(lambda number: _Unanswered(number, stopping, loads=loads))
    assert _told_pauses(caplog) == pauses


@pytest.mark.parametrize(
    ("chance", "republished", "pauses"),
    [
        (0.0, False, ["0.0", "0.2", "0.2"]),
        (1.0, False, ["0.0", "0.1", "0.1"]),
        (1.0, True, ["0.0", "0.1", "0.1"]),
        (0.7, True, ["0.3", "0.1", "0.1"]),
    ],
)
async def test_pauses_are_shortened_by_chance_and_thousands_of_executors_do_not_begin_at_once(
    chance: float, republished: bool, pauses: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A pause of 0.2 s is one of 0.1 to 0.2 s; where services begin at once, executors begin within a second."""
    stopping = asyncio.Event()
    follower = Follower(
        MemoryLog(),
        ("node.a.>",),
        stopping,
        service="test",
        republished=republished,
        max_pause_seconds=0.2,
        chance=lambda: chance,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        await follower.run(lambda number: _Unanswered(number, stopping, loads=False))
    assert _told_pauses(caplog) == pauses


def _told_pauses(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records if "loading the log again" in record.getMessage()]
    return [line.rsplit(" ", 2)[1] for line in told]


class _Cyclic(LoadingIncarnation):
    """A state with a reference cycle, frozen as those of deciding services are. The first one breaks off once it has loaded;
    the second one runs until the first is gone."""

    def __init__(self, number: int, gone: asyncio.Event) -> None:
        super().__init__(Load(Identity(service="test", replica="r"), (">",), number))
        self.itself = self
        self._first = number == 1
        self._gone = gone
        if self._first:
            weakref.finalize(self, gone.set)

    @property
    def pause(self) -> timedelta:
        return timedelta(0)

    async def run(self, reading: Reading) -> None:
        reading.loaded()
        gc.freeze()
        if self._first:
            raise TimeoutError
        await self._gone.wait()
        raise RuntimeError("the first state is gone")


async def test_a_state_that_a_load_replaced_is_freed_although_it_is_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant.runtime.freed_memory.GIVEN_BACK_AFTER_SECONDS", 0.01)
    monkeypatch.setattr("cotenant.runtime.follower.GOOD_SECONDS", -1.0)
    gone = asyncio.Event()
    follower = Follower(MemoryLog(), (">",), asyncio.Event(), service="test")
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(RuntimeError, match="the first state is gone"):
                await follower.run(lambda number: _Cyclic(number, gone))
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


class _Crowd:
    """Loads of many followers: how many are in progress, and how many were at most."""

    def __init__(self, members: int) -> None:
        self.loading = self.most = self.loaded = 0
        self.stopping = asyncio.Event()
        self.members = members


class _Crowded(LoadingIncarnation):
    """The first load of each follower breaks off; the second one succeeds, and goes on until all have loaded."""

    def __init__(self, number: int, crowd: _Crowd) -> None:
        super().__init__(Load(Identity(service="test", replica="r"), (">",), number))
        self._number = number
        self._crowd = crowd

    @property
    def pause(self) -> timedelta:
        return timedelta(0)

    async def run(self, reading: Reading) -> None:
        crowd = self._crowd
        crowd.loading += 1
        crowd.most = max(crowd.most, crowd.loading)
        for _ in range(20):
            await asyncio.sleep(0)
        crowd.loading -= 1
        if self._number == 1:
            raise TimeoutError
        reading.loaded()
        crowd.loaded += 1
        if crowd.loaded == crowd.members:
            crowd.stopping.set()
        await crowd.stopping.wait()


async def test_the_loads_of_a_process_in_progress_are_bounded_and_one_that_breaks_off_makes_room() -> None:
    crowd, loads, log = _Crowd(20), asyncio.Semaphore(3), MemoryLog()
    followers = [Follower(log, (">",), crowd.stopping, service="test", loads=loads) for _ in range(20)]
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*(follower.run(lambda number: _Crowded(number, crowd)) for follower in followers))
    assert crowd.most == 3
    assert [follower.incarnations for follower in followers] == [2] * 20


async def test_who_waits_for_its_load_when_the_process_stops_does_not_begin_it() -> None:
    stopping, loads = asyncio.Event(), asyncio.Semaphore(0)
    follower = Follower(MemoryLog(), (">",), stopping, service="test", loads=loads)
    running = asyncio.ensure_future(follower.run(lambda number: _Unanswered(number, stopping, loads=False)))
    async with asyncio.timeout(WAIT_SECONDS):
        while not follower.incarnations:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
    stopping.set()
    loads.release()
    async with asyncio.timeout(WAIT_SECONDS):
        await running
    assert follower.incarnations == 1
    assert not loads.locked(), "what it did not need is left to others"

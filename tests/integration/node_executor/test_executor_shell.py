"""The shell against a log that misbehaves: lost answers, foreign writes, a server that says nothing for a while."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest

from cotenant.events.envelope import Event, Payload
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.log.contract import EXECUTION, LOG, WORTH_A_BATCH, Log, NoAnswer, Refused, Stored, Write, ending
from cotenant.log.memory import MemoryLog
from cotenant.log.nats.log import connect
from cotenant.log.nats.streams import StreamSizes
from cotenant.model.subjects import condition_subject, executor_subject, placement_subject, run_subject
from cotenant_node_executor.core.node import ExecutorNode, Periods
from cotenant_node_executor.joint_stops import JointStops
from cotenant_node_executor.shell import ExecutorShell
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from tests.builders import encoded, pod_document
from tests.full_log import fill
from tests.nats_server import NatsServer

NODE = "sim-1"
PERIOD = 0.05
WAIT_SECONDS = 60


class SilentLog(MemoryLog):
    """Says nothing while `answering` is off."""

    def __init__(self) -> None:
        super().__init__()
        self.answering = asyncio.Event()
        self.answering.set()

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        await self.answering.wait()
        return await super().append(writes)

    async def publish(self, event: Event) -> int | None:
        await self.answering.wait()
        return await super().publish(event)


def new_node(boot: str = "boot") -> ExecutorNode:
    return simulated_node(NODE, NodeSize(), boot=boot, periods=Periods(sample_seconds=PERIOD, report_seconds=PERIOD))


@asynccontextmanager
async def living(
    log: Log, node: ExecutorNode | None = None, period_seconds: float = PERIOD, stops: JointStops | None = None
) -> AsyncIterator[ExecutorShell]:
    """A shell that has loaded."""
    stopping, ready = asyncio.Event(), asyncio.Event()
    shell = ExecutorShell(
        log,
        node or new_node(),
        cell="cell",
        period_seconds=period_seconds,
        stopping=stopping,
        on_ready=ready.set,
        stops=stops,
    )
    running = asyncio.ensure_future(shell.run())
    async with asyncio.timeout(WAIT_SECONDS):
        await ready.wait()
    try:
        yield shell
    finally:
        stopping.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await running


def has_ended(node: ExecutorNode, uid: str) -> bool:
    """Whether every container of a pod has exited on its machine."""
    states = node.machine.runtime.poll(datetime.now(UTC)).get(uid, {})
    return bool(states) and all(state.exited for state in states.values())


async def store(log: Log, subject: str, data: Payload) -> None:
    event = Event(subject=subject, data=data, time=datetime.now(UTC), id=f"test/{subject}", source="/test")
    assert isinstance(await log.append([Write(event=event)]), Stored)


async def place(log: Log, name: str, duration: str = "1h", phase: PlacementPhase = PlacementPhase.BOUND) -> None:
    annotations = {"cotenant.io/simulated-duration": duration}
    document = pod_document(name, annotations=annotations, restartPolicy="Never")
    placement = Placement(
        node=NODE, namespace="default", name=name, uid=f"uid-{name}", phase=phase, pod=encoded(document)
    )
    await store(log, placement_subject(NODE, "default", name), placement)


async def reported(log: Log, name: str, phase: RunPhase) -> RunStatus:
    """Wait until the last report of a pod has this phase, within a bound."""
    reader = await log.follow(LOG, [run_subject(NODE, "default", name)])
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            for event in await reader.pull(10, 1.0):
                if isinstance(event.data, RunStatus) and event.data.phase is phase:
                    return event.data


async def test_a_pod_is_reported_from_pending_to_succeeded() -> None:
    log = MemoryLog()
    async with living(log):
        await place(log, "job", "200ms")
        run = await reported(log, "job", RunPhase.SUCCEEDED)
        assert run.containers[0].exit_code == 0


async def test_reports_whose_answer_was_lost_are_neither_lost_nor_stuck() -> None:
    log = MemoryLog()
    async with living(log):
        await place(log, "job", "200ms")
        log.lose_answers, log.lose_batches = 2, 1
        await reported(log, "job", RunPhase.SUCCEEDED)
    assert (log.lose_answers, log.lose_batches) == (0, 0)


class UnansweredLog(MemoryLog):
    """Stores what is published on EXECUTION, and answers only the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: Counter[str] = Counter()
        self.answered = asyncio.Event()

    async def publish(self, event: Event) -> int | None:
        sequence = await super().publish(event)
        if event.stream == EXECUTION:
            self.tried[event.id] += 1
            if self.tried[event.id] == 1:
                return None
            self.answered.set()
        return sequence


async def test_what_was_done_is_told_once_though_no_answer_came_the_first_time() -> None:
    log = UnansweredLog()
    async with living(log):
        await place(log, "job")
        async with asyncio.timeout(WAIT_SECONDS):
            await log.answered.wait()
    events = await (await log.follow(EXECUTION, ["execution.>"], after=0)).pull(100, 1.0)
    ids = [event.id for event in events]
    assert set(ids) == set(log.tried)
    assert len(set(ids)) == len(ids)


async def test_a_foreign_report_on_the_own_subject_is_overwritten_with_what_is_true() -> None:
    log = MemoryLog()
    async with living(log):
        await place(log, "job")
        await reported(log, "job", RunPhase.RUNNING)
        wrong = RunStatus(node=NODE, namespace="default", name="job", uid="uid-other", phase=RunPhase.FAILED)
        await store(log, run_subject(NODE, "default", "job"), wrong)
        run = await reported(log, "job", RunPhase.RUNNING)
        assert run.uid == "uid-job"


async def test_the_node_goes_on_while_the_server_says_nothing_and_tells_afterwards() -> None:
    log = SilentLog()
    async with living(log) as shell:
        await place(log, "job", "300ms")
        log.answering.clear()

        async with asyncio.timeout(WAIT_SECONDS):
            while not has_ended(shell.node, "uid-job"):  # noqa: ASYNC110 - nothing is said meanwhile, that is the point
                await asyncio.sleep(PERIOD)
        log.answering.set()
        await reported(log, "job", RunPhase.SUCCEEDED)


class FullLog(MemoryLog):
    """Has no room for reports while `full` is set, and counts what it has refused."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False
        self.refused = 0

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        if self.full:
            self.refused += 1
            return Refused("maximum bytes exceeded", wrong_sequence=False, no_space=True)
        return await super().append(writes)


async def test_the_node_goes_on_while_its_reports_find_no_room_and_tells_once_there_is_some() -> None:
    log = FullLog()
    async with living(log) as shell:
        await place(log, "job", "1500ms")
        log.full = True
        async with asyncio.timeout(WAIT_SECONDS):
            while not (has_ended(shell.node, "uid-job") and log.refused):  # noqa: ASYNC110 - nothing is said meanwhile
                await asyncio.sleep(PERIOD)
        # 30 cycles long; the first reports that find no room may be in progress together.
        assert log.refused <= 10
        log.full = False
        await reported(log, "job", RunPhase.SUCCEEDED)


class HoldingLog(MemoryLog):
    """Holds reports of pods back while `open` is not set, and notes how many came together."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.sizes: list[int] = []
        self.refusing = 0

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        if not isinstance(writes[0].event.data, RunStatus):
            return await super().append(writes)
        self.sizes.append(len(writes))
        await self.open.wait()
        if len(writes) > 1 and self.refusing:
            self.refusing -= 1
            return Refused("wrong last sequence")
        return await super().append(writes)


@pytest.mark.parametrize("refusing", [0, 1])
async def test_reports_that_come_while_others_are_under_way_go_together(refusing: int) -> None:
    log = HoldingLog()
    log.refusing = refusing
    async with living(log):
        await place(log, "first")
        async with asyncio.timeout(WAIT_SECONDS):
            while not log.sizes:  # noqa: ASYNC110 - nothing is said meanwhile
                await asyncio.sleep(PERIOD)
        for number in range(20):
            await place(log, f"job-{number}")
        await asyncio.sleep(0)
        assert log.sizes == [1]
        log.open.set()
        for number in range(20):
            await reported(log, f"job-{number}", RunPhase.RUNNING)
        assert max(log.sizes) >= WORTH_A_BATCH
        # Those of a refused batch go one by one.
        assert (log.sizes.count(1) > WORTH_A_BATCH) is bool(refusing)


async def end_placement(log: Log, name: str) -> None:
    subject = placement_subject(NODE, "default", name)
    gone = Placement(node=NODE, namespace="default", name=name, uid=f"uid-{name}", phase=PlacementPhase.GONE)
    tombstone = msgspec.structs.replace(ending(subject, gone), id=f"test/end/{name}", source="/test", time=datetime.now(UTC))
    assert isinstance(await log.append([Write(event=tombstone)]), Stored)


class EndingsLog(MemoryLog):
    """Notes which reports the node ends."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[str] = []

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        self.ended += [w.event.subject for w in writes if w.event.tombstone and isinstance(w.event.data, RunStatus)]
        return await super().append(writes)


async def test_the_end_of_a_report_is_left_to_a_gateway() -> None:
    log = EndingsLog()
    async with living(log):
        await place(log, "old", "50ms")
        run = await reported(log, "old", RunPhase.SUCCEEDED)
        await end_placement(log, "old")
        await place(log, "new")
        await reported(log, "new", RunPhase.RUNNING)
        assert log.ended == []
        subject = run_subject(NODE, "default", "old")
        by_gateway = msgspec.structs.replace(ending(subject, run), id="g/1", source="/gateway", time=datetime.now(UTC))
        assert isinstance(await MemoryLog.append(log, [Write(event=by_gateway)]), Stored)
        await place(log, "newer")
        await reported(log, "newer", RunPhase.RUNNING)
    assert log.ended == []


async def test_without_a_gateway_a_node_ends_its_reports_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_node_executor.reports.END_AFTER_SECONDS", 0.3)
    log = EndingsLog()
    async with living(log):
        await place(log, "old", "50ms")
        await reported(log, "old", RunPhase.SUCCEEDED)
        await end_placement(log, "old")
        async with asyncio.timeout(WAIT_SECONDS):
            while not log.ended:  # noqa: ASYNC110 - nothing is said meanwhile
                await asyncio.sleep(PERIOD)
    assert set(log.ended) == {run_subject(NODE, "default", "old")}


class OutboxLog(MemoryLog):
    """Holds what was executed back while `open` is not set, and notes how much is in progress at once."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.under_way = 0

    async def publish(self, event: Event) -> int | None:
        if event.stream == EXECUTION:
            self.under_way += 1
            await self.open.wait()
            self.under_way -= 1
        return await super().publish(event)


async def test_what_was_executed_is_published_together() -> None:
    log = OutboxLog()
    for number in range(3):
        await place(log, f"job-{number}")
    async with living(log):
        async with asyncio.timeout(WAIT_SECONDS):
            while log.under_way < 3:  # noqa: ASYNC110 - nothing is said meanwhile
                await asyncio.sleep(PERIOD)
        log.open.set()


async def test_the_end_of_a_stopped_pod_is_reported_before_the_next_sample() -> None:
    log = MemoryLog()
    async with living(log, period_seconds=3600.0):
        await place(log, "job")
        await reported(log, "job", RunPhase.RUNNING)
        await place(log, "job", phase=PlacementPhase.TERMINATING)
        await reported(log, "job", RunPhase.STOPPED)


async def test_only_that_pods_were_stopped_waits_for_reports_of_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_node_executor.joint_stops.ENOUGH", 0)
    log = MemoryLog()
    stops = JointStops(log)
    together: list[str] = []
    append = stops.append

    async def seen(writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        together.extend(write.event.subject for write in writes)
        return await append(writes)

    monkeypatch.setattr(stops, "append", seen)
    async with living(log, stops=stops):
        for name in ("job", "other"):
            await place(log, name)
            await reported(log, name, RunPhase.RUNNING)
        await place(log, "job", phase=PlacementPhase.TERMINATING)
        await reported(log, "job", RunPhase.STOPPED)
    assert set(together) == {run_subject(NODE, "default", "job")}


async def test_a_delivery_that_changes_nothing_causes_no_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    log, node = MemoryLog(), new_node()
    seen: list[str] = []
    changed = asyncio.Event()
    step, apply = node.step, node.apply

    def stepped(now: datetime, *, sample: bool = True) -> list[Event]:
        seen.append("cycle")
        found = step(now, sample=sample)
        changed.set()
        return found

    def applied(event: Event) -> None:
        apply(event)
        seen.append(event.subject)
        changed.set()

    async def until(true: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not true():
                changed.clear()
                await changed.wait()

    monkeypatch.setattr(node, "step", stepped)
    monkeypatch.setattr(node, "apply", applied)
    async with living(log, node, period_seconds=3600.0):
        await place(log, "job")
        await reported(log, "job", RunPhase.RUNNING)
        subject = condition_subject(NODE)
        await until(lambda: not node.due(datetime.now(UTC)))
        await store(log, subject, NodeCondition(node=NODE, status="True"))
        await until(lambda: subject in seen)
        for _ in range(20):
            await asyncio.sleep(0)
        assert seen[-1] == subject
        await place(log, "other")
        await reported(log, "other", RunPhase.RUNNING)


async def test_a_stopped_pod_leaves_one_message_of_its_run_which_expires() -> None:
    log = MemoryLog()
    async with living(log):
        await place(log, "job")
        await reported(log, "job", RunPhase.RUNNING)
        await place(log, "job", phase=PlacementPhase.TERMINATING)
        await reported(log, "job", RunPhase.STOPPED)
        head = await log.head(run_subject(NODE, "default", "job"))
        assert head is not None
        assert head.tombstone
        await end_placement(log, "job")
        await place(log, "next")
        await reported(log, "next", RunPhase.RUNNING)
        assert await log.head(run_subject(NODE, "default", "job")) == head


async def test_a_node_s_own_reports_are_not_read_again_unless_it_loads() -> None:
    log, subject = MemoryLog(), run_subject(NODE, "default", "job")
    async with living(log) as shell:
        await place(log, "job")
        await reported(log, "job", RunPhase.RUNNING)
        running = await log.head(subject)
        await place(log, "job", phase=PlacementPhase.TERMINATING)
        await reported(log, "job", RunPhase.STOPPED)
        stopped = await log.head(subject)
        # By then the reports before it are folded.
        await place(log, "next")
        await reported(log, "next", RunPhase.RUNNING)
        assert running is not None
        assert stopped is not None
        assert shell.node.core.last_sequence(subject) == stopped.sequence
        assert shell.reports.knows(stopped.sequence)
        assert not shell.reports.knows(stopped.sequence), "each is asked for once"
        shell.reports.begin(shell.node)
        assert not shell.reports.knows(running.sequence), "a node that loads reads everything"


async def test_an_executor_that_starts_on_a_full_log_runs_its_pods_and_stores_its_marker_when_there_is_room(
    nats_server: NatsServer,
) -> None:
    others, log = await connect(nats_server.url, "others"), await connect(nats_server.url, "executor")
    await others.declare(sizes=StreamSizes(log=1 << 20))
    await place(others, "job", "1500ms")
    await fill(others)
    report = Event(subject=run_subject(NODE, "default", "pod-0"), data=wrong_status(0), id="f", source="/test")
    filled = await others.append([Write(event=report)])
    assert isinstance(filled, Refused)
    assert filled.no_space
    async with living(log) as shell:
        assert await log.head(executor_subject(NODE)) is None
        async with asyncio.timeout(WAIT_SECONDS):
            while not has_ended(shell.node, "uid-job"):  # noqa: ASYNC110 - nothing is said meanwhile
                await asyncio.sleep(PERIOD)
        assert not shell.node.core.marked
        await others.extend(1 << 20)
        await reported(others, "job", RunPhase.SUCCEEDED)
        async with asyncio.timeout(WAIT_SECONDS):
            while not shell.node.core.marked:  # noqa: ASYNC110 - the node says nothing of it
                await asyncio.sleep(PERIOD)
        assert await log.head(executor_subject(NODE)) is not None
    await log.close()
    await others.close()


async def test_what_waits_for_the_server_is_bounded_and_the_oldest_is_dropped() -> None:
    log = SilentLog()
    async with living(log) as shell:
        log.answering.clear()
        for number in range(1100):
            shell.outbox.post([Event(subject=f"execution.{NODE}.runtime", data=wrong_status(number), stream="EXECUTION")], 0)
        assert shell.outbox.waiting <= 1000
        assert shell.outbox.dropped >= 99
        log.answering.set()


def wrong_status(number: int) -> RunStatus:
    return RunStatus(node=NODE, namespace="default", name=f"pod-{number}", uid="u", phase=RunPhase.RUNNING)


async def test_a_second_life_takes_over_what_the_first_one_left() -> None:
    log = MemoryLog()
    async with living(log):
        await place(log, "job", "1500ms")
        before = await reported(log, "job", RunPhase.RUNNING)
    async with living(log, new_node("second")):
        run = await reported(log, "job", RunPhase.SUCCEEDED)
        assert run.started_at == before.started_at
        assert run.containers[0].restarts == 0


async def test_an_executor_keeps_no_consumer_and_gets_what_was_placed_while_it_was_cut_off(nats_server: NatsServer) -> None:
    others, log = await connect(nats_server.url, "others"), await connect(nats_server.url, "executor")
    await others.declare()
    async with living(log):
        answer = await others.client.request(f"$JS.API.STREAM.INFO.{LOG}", b"")
        assert json.loads(answer.data)["state"]["consumer_count"] == 0
        for name in ("one", "two"):
            log.client._transport._io_writer.transport.abort()  # type: ignore[union-attr]
            await place(others, name)
            await reported(others, name, RunPhase.RUNNING)
    await log.close()
    await others.close()

"""Reports that pods were stopped, of several nodes of one process: where many come, they share a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.log.contract import NoAnswer, Refused, Stored, Write, ending
from cotenant.log.memory.log import MemoryLog
from cotenant.model.subjects import run_subject
from cotenant_node_executor.joint_stops import ENOUGH, GATHER_SECONDS, PAUSES, JointStops

WAIT_SECONDS = 60


class RecordingLog(MemoryLog):
    """Remembers how many messages each batch had; some batches are not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.silent_from = 1 << 30
        """Batches of so many messages get no answer."""

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        self.sizes.append(len(writes))
        if len(writes) >= self.silent_from:
            return NoAnswer("silent")
        return await super().append(writes)


def stop(number: int, expected: int | None = None) -> list[Write]:
    """The report of a node of its own."""
    node = f"n{number}"
    status = RunStatus(node=node, namespace="default", name="p", uid="u", phase=RunPhase.STOPPED)
    return [Write(event=ending(run_subject(node, "default", "p"), status), expected=expected)]


async def busy(log: MemoryLog) -> JointStops:
    """A process whose nodes have just reported enough stopped pods."""
    stops = JointStops(log, lambda: 0.0)
    for number in range(ENOUGH):
        assert isinstance(await stops.append(stop(1000 + number)), Stored)
    return stops


async def test_where_few_pods_are_stopped_no_report_waits() -> None:
    log = RecordingLog()
    stops = JointStops(log, lambda: 0.0)
    outcomes = [await stops.append(stop(number)) for number in range(ENOUGH)]
    assert [outcome.first for outcome in outcomes if isinstance(outcome, Stored)] == list(range(1, ENOUGH + 1))
    assert log.sizes == [1] * ENOUGH


async def test_where_many_are_stopped_the_next_ones_share_a_batch_and_each_learns_its_own_sequence() -> None:
    log = RecordingLog()
    stops = await busy(log)
    async with asyncio.timeout(WAIT_SECONDS):
        outcomes = await asyncio.gather(*(stops.append(stop(number)) for number in range(30)))
    assert log.sizes[ENOUGH:] == [30]
    for number, outcome in enumerate(outcomes):
        assert isinstance(outcome, Stored)
        head = await log.head(run_subject(f"n{number}", "default", "p"))
        assert head is not None
        assert head.sequence == outcome.first == outcome.last


async def test_reports_that_come_apart_do_not_wait() -> None:
    log, at = RecordingLog(), [0.0]
    stops = JointStops(log, lambda: at[0])
    for number in range(4 * ENOUGH):
        at[0] += 2 * GATHER_SECONDS / ENOUGH
        assert isinstance(await stops.append(stop(number)), Stored)
    assert log.sizes == [1] * (4 * ENOUGH)


async def test_a_busy_process_that_pauses_goes_on_gathering() -> None:
    log, at = RecordingLog(), [0.0]
    stops = JointStops(log, lambda: at[0])
    for number in range(ENOUGH):
        await stops.append(stop(1000 + number))
    at[0] += PAUSES * GATHER_SECONDS
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*(stops.append(stop(number)) for number in range(20)))
    assert log.sizes[ENOUGH:] == [20]


async def test_a_report_that_is_refused_does_not_affect_those_of_other_nodes() -> None:
    log = RecordingLog()
    stops = await busy(log)
    async with asyncio.timeout(WAIT_SECONDS):
        outcomes = await asyncio.gather(*(stops.append(stop(number, 999 if number == 7 else 0)) for number in range(20)))
    assert [number for number, outcome in enumerate(outcomes) if isinstance(outcome, Refused)] == [7]
    assert sum(isinstance(outcome, Stored) for outcome in outcomes) == 19


async def test_a_batch_without_an_answer_is_one_for_each_node() -> None:
    log = RecordingLog()
    stops = await busy(log)
    log.silent_from = 20
    async with asyncio.timeout(WAIT_SECONDS):
        outcomes = await asyncio.gather(*(stops.append(stop(number)) for number in range(20)))
    assert all(isinstance(outcome, NoAnswer) for outcome in outcomes)
    assert log.sizes[ENOUGH:] == [20]


async def test_the_report_of_a_node_that_ended_meanwhile_is_not_stored() -> None:
    log = RecordingLog()
    stops = await busy(log)
    waiting = [asyncio.ensure_future(stops.append(stop(number))) for number in range(20)]
    await asyncio.sleep(0)
    waiting[3].cancel()
    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*waiting, return_exceptions=True)
    assert log.sizes[ENOUGH:] == [19]
    assert await log.head(run_subject("n3", "default", "p")) is None

"""Writes of one flow do not wait behind those of another: positions in batches, not milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from cotenant.api.snapshots import Address
from cotenant.events import NodeResources
from cotenant.kinds.config_maps import CONFIG_MAPS
from cotenant.log.contract import NoAnswer, Refused, Stored, Write
from cotenant.log.memory.log import MemoryLog
from cotenant.log.plan_writer import PlanWriter
from cotenant.log.plans import Outcome, Plan, Written, object_write
from cotenant.log.write_queue import BATCH_MESSAGES, LIGHT_WRITES, MAX_OF_FLOW, FlowFull
from cotenant.runtime.follower import utc_now

WAIT_SECONDS = 60
DELETIONS = "deleter delete pods"
OTHERS = "writer patch configmaps"


class HeldLog(MemoryLog):
    """A log whose batches are answered when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[str]] = []
        """The names in each append, in order."""
        self.arrived = asyncio.Condition()
        self._held: list[asyncio.Event] = []

    async def append(self, writes: Sequence[Write]) -> Stored | Refused | NoAnswer:
        answer = asyncio.Event()
        self.sent.append([write.event.subject.rpartition(".")[2] for write in writes])
        self._held.append(answer)
        async with self.arrived:
            self.arrived.notify_all()
        await answer.wait()
        return await super().append(writes)

    async def until(self, appends: int) -> None:
        """Wait until so many were sent."""
        async with asyncio.timeout(WAIT_SECONDS), self.arrived:
            await self.arrived.wait_for(lambda: len(self.sent) >= appends)

    def answer(self, number: int) -> None:
        """Answer an append, counted from 0."""
        self._held[number].set()

    def answer_all(self) -> None:
        """Answer what was sent up to now."""
        for held in self._held:
            held.set()


def plan(name: str, expected: int | None = None) -> Plan:
    return Plan((object_write(Address(CONFIG_MAPS, "default", name), NodeResources(node=name), expected or 0),))


async def at_once(_: int) -> bool:
    return True


@asynccontextmanager
async def writing(log: HeldLog) -> AsyncIterator[PlanWriter]:
    writer = PlanWriter(log, "/test", "1", utc_now, at_once)
    running = asyncio.ensure_future(writer.run())
    try:
        yield writer
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def submitted(writer: PlanWriter, flow: str, names: Sequence[str]) -> list[asyncio.Future[Outcome]]:
    return [asyncio.ensure_future(writer.submit(plan(name), "user", flow)) for name in names]


async def settled(log: HeldLog, answers: Sequence[asyncio.Future[Outcome]]) -> None:
    """Answer every append until all plans have an outcome."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not all(answer.done() for answer in answers):
            log.answer_all()
            await asyncio.sleep(0)
    assert all(isinstance(answer.result(), Written) for answer in answers)


async def test_a_writer_is_not_held_up_by_a_batch_of_deletions_that_is_being_stored() -> None:
    log = HeldLog()
    async with writing(log) as writer:
        deletions = submitted(writer, DELETIONS, [f"d{number}" for number in range(LIGHT_WRITES)])
        await log.until(1)
        assert len(log.sent[0]) == LIGHT_WRITES
        more = submitted(writer, DELETIONS, [f"e{number}" for number in range(64)])
        for number in (1, 2):
            other = submitted(writer, OTHERS, [f"other{number}"])
            await log.until(1 + number)
            assert log.sent[1:] == [["other1"], ["other2"]][:number]
            log.answer(number)
            async with asyncio.timeout(WAIT_SECONDS):
                await other[0]
        assert not any(each.done() for each in [*deletions, *more])
        await settled(log, [*deletions, *more])
    assert [len(sent) for sent in log.sent] == [LIGHT_WRITES, 1, 1, 64]


async def test_a_write_of_a_light_flow_is_not_made_part_of_a_batch() -> None:
    log = HeldLog()
    async with writing(log) as writer:
        deletions = submitted(writer, DELETIONS, [f"d{number}" for number in range(LIGHT_WRITES)])
        other = submitted(writer, OTHERS, ["other"])
        await log.until(2)
        assert log.sent[0] == ["other"]
        assert len(log.sent[1]) == LIGHT_WRITES
        await settled(log, [*deletions, *other])


async def test_a_writer_does_not_wait_for_deletions_that_came_before_it() -> None:
    log = HeldLog()
    async with writing(log) as writer:
        first = submitted(writer, DELETIONS, [f"d{number}" for number in range(LIGHT_WRITES)])
        await log.until(1)
        deletions = submitted(writer, DELETIONS, [f"e{number}" for number in range(3 * BATCH_MESSAGES)])
        # Two writers that are not light: none of their writes is stored beside a batch.
        names = [[f"{writer_name}{number}" for number in range(LIGHT_WRITES)] for writer_name in "ab"]
        others = [answer for index in (0, 1) for answer in submitted(writer, f"{OTHERS} {index}", names[index])]
        await asyncio.sleep(0)
        log.answer(0)
        await log.until(2)
        assert len(log.sent[1]) == BATCH_MESSAGES
        assert set(names[0]) | set(names[1]) <= set(log.sent[1])
        await settled(log, [*first, *deletions, *others])


async def test_of_many_deleters_and_one_writer_each_write_waits_for_one_batch_at_most() -> None:
    log = HeldLog()
    waits: list[int] = []
    async with writing(log) as writer:

        async def delete(client: int) -> None:
            for number in range(20):
                assert isinstance(await writer.submit(plan(f"d{client}-{number}"), "user", DELETIONS), Written)

        async def write() -> None:
            for number in range(20):
                before = len(log.sent)
                storing = asyncio.ensure_future(writer.submit(plan(f"other-{number}"), "user", OTHERS))
                await storing
                position = next(i for i, names in enumerate(log.sent) if f"other-{number}" in names)
                waits.append(sum(len(names) for names in log.sent[before:position]))

        clients = [asyncio.ensure_future(delete(client)) for client in range(64)]
        other = asyncio.ensure_future(write())
        async with asyncio.timeout(WAIT_SECONDS):
            while not all(task.done() for task in [*clients, other]):
                log.answer_all()
                await asyncio.sleep(0)
        await asyncio.gather(*clients, other)
    assert max(waits) <= 64
    assert sum(map(len, log.sent)) == 64 * 20 + 20


async def test_a_write_to_an_object_that_is_being_stored_waits_for_it() -> None:
    log = HeldLog()
    async with writing(log) as writer:
        first = submitted(writer, DELETIONS, [f"d{number}" for number in range(LIGHT_WRITES)])
        await log.until(1)
        second = asyncio.ensure_future(writer.submit(plan("d0", 1), "user", OTHERS))
        other = submitted(writer, f"{OTHERS} 2", ["other"])
        await log.until(2)
        assert log.sent[1:] == [["other"]]
        await settled(log, [*first, *other, second])
    assert ["d0"] in log.sent[2:]


async def test_a_flow_is_bounded_and_others_are_not_affected() -> None:
    log = HeldLog()
    async with writing(log) as writer:
        first = submitted(writer, DELETIONS, [f"d{number}" for number in range(LIGHT_WRITES)])
        await log.until(1)
        waiting = submitted(writer, DELETIONS, [f"e{number}" for number in range(MAX_OF_FLOW)])
        await asyncio.sleep(0)
        with pytest.raises(FlowFull):
            await writer.submit(plan("too-many"), "user", DELETIONS)
        assert writer.queue.refused_of_flows == 1
        other = submitted(writer, OTHERS, ["other"])
        own = submitted(writer, "", [f"own{number}" for number in range(MAX_OF_FLOW + 1)])
        await settled(log, [*first, *waiting, *other, *own])

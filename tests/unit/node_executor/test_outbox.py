"""Execution events on their way to the server: which of those gathered become one."""

from __future__ import annotations

import asyncio

from cotenant.events.envelope import Event
from cotenant.events.node.execution import Change, Execution
from cotenant.log.contract import EXECUTION
from cotenant.log.memory import MemoryLog
from cotenant_node_executor.core.executions import DRY_RUN, MAX_CHANGES
from cotenant_node_executor.outbox import MAX_OUTBOX, MAX_OUTBOX_BYTES, Outbox
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node

NODE = "sim"
WAIT_SECONDS = 60


def told(topic: str, number: int, summary: str = "", *, pod: str = "", changes: int = 1) -> Event:
    """An execution event with its own cause."""
    change = Change(target=f"burstable/pod{number}/cpu.shares", old=str(number), new=str(number + 1))
    summary = summary or f"change {number}"
    data = Execution(node=NODE, topic=topic, summary=summary, changes=(change,) * changes, pod=pod)
    return Event(subject=f"execution.{NODE}.{topic}", data=data, causes=(f"LOG:{number}",), stream=EXECUTION)


async def stored(*events: Event) -> list[tuple[Execution, tuple[str, ...]]]:
    """What is stored of events that are made within the time for which they are gathered, with its causes."""
    log, node = MemoryLog(), simulated_node(NODE, NodeSize())
    outbox = Outbox(log, "cell", lambda: node, None)
    outbox.post(events, 0)
    sending = asyncio.ensure_future(outbox.send())
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while outbox.waiting:  # noqa: ASYNC110 - bounded by the timeout above
                await asyncio.sleep(0.01)
    finally:
        sending.cancel()
    reader = await log.follow(EXECUTION, (">",), after=0)
    return [(event.data, event.causes) for event in await reader.pull(100, 1.0) if isinstance(event.data, Execution)]


async def test_values_that_follow_from_the_pods_are_one_event_a_topic_with_all_their_changes() -> None:
    events = await stored(
        told("identity", 1), told("suppress", 4), told("identity", 2), told("suppress", 5), told("identity", 3)
    )
    assert [data.topic for data, _ in events] == ["suppress", "suppress", "identity"]
    joined, causes = events[-1]
    assert [(change.old, change.new) for change in joined.changes] == [("1", "2"), ("2", "3"), ("3", "4")]
    assert joined.summary == "change 3; 2 more just before"
    assert causes == ("LOG:1", "LOG:2", "LOG:3")


async def test_events_of_pods_and_of_dry_runs_are_never_joined() -> None:
    events = [told("identity", 1, pod="job"), told("identity", 2, f"{DRY_RUN} of idle")]
    assert [data.summary for data, _ in await stored(*events, *events)] == ["change 1", "dry run of idle"] * 2


async def test_an_event_holds_no_more_changes_than_its_bound() -> None:
    events = await stored(*(told("identity", number, changes=MAX_CHANGES // 2) for number in range(1, 4)))
    assert [len(data.changes) for data, _ in events] == [MAX_CHANGES, MAX_CHANGES // 2]
    assert [data.summary for data, _ in events] == [f"change 2; {MAX_CHANGES // 2} more just before", "change 3"]


async def test_what_waits_for_a_server_that_is_away_is_bounded_in_bytes_and_the_oldest_goes() -> None:
    node = simulated_node(NODE, NodeSize())
    outbox = Outbox(MemoryLog(), "cell", lambda: node, None)
    large = 100_000
    count = 2 * MAX_OUTBOX_BYTES // large
    assert count < MAX_OUTBOX
    for number in range(count):
        outbox.post([told("identity", number, f"{number} " + "x" * large)], 0)
    waiting = [event.data.summary for event, _, _ in outbox._events if isinstance(event.data, Execution)]
    assert MAX_OUTBOX_BYTES // 2 < sum(map(len, waiting)) <= MAX_OUTBOX_BYTES
    assert waiting[-1].startswith(f"{count - 1} ")
    assert outbox.dropped_of[EXECUTION] == count - len(waiting)
    for _ in waiting:
        outbox._take()
    assert outbox._bytes == 0

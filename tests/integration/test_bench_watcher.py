"""The benchmark's watcher ends only when it has read what LOG holds, however late it or the server is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from cotenant.events.envelope import Event, Payload
from cotenant.events.placements import Placement
from cotenant.log.contract import Stored, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant.model.subjects import placement_subject
from cotenant_verification.bench import watcher
from cotenant_verification.bench.schedule import _not_watched
from cotenant_verification.bench.watcher import WatchTarget
from cotenant_verification.bench.workload import NAMESPACE, pod_name
from tests.nats_server import NatsServer

WAIT_SECONDS = 60


async def say(log: NatsLog, subject: str, data: Payload) -> None:
    event = Event(subject=subject, data=data, id=f"test/{subject}", source="/test", time=datetime.now(UTC))
    assert isinstance(await log.append([Write(event=event)]), Stored)


async def place(log: NatsLog, number: int) -> None:
    name = pod_name(number)
    placed = Placement(node="n", namespace=NAMESPACE, name=name, uid=name, bound_at=datetime.now(UTC))
    await say(log, placement_subject("n", NAMESPACE, name), placed)


async def watched(server: NatsServer, pods: int) -> list[bool]:
    """By pod, whether its placement arrived."""
    async with asyncio.timeout(WAIT_SECONDS):
        seen = await watcher._watch(WatchTarget(server.url, pods, ""), lambda: None)
    return [bool(clock) for clock in seen.placed]


async def test_a_watcher_that_was_late_itself_reads_what_log_holds_before_it_ends(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    count = 20
    for number in range(count):
        await place(log, number)
    # As after a pause of the watcher: it is always too long since the last arrival, and most is still to be read.
    monkeypatch.setattr(watcher, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(watcher, "PULL_LIMIT", 1)
    assert await watched(nats_server, count + 1) == [*[True] * count, False]
    await log.close()


def test_placements_that_the_watcher_missed_are_a_finding() -> None:
    assert list(_not_watched(3, 3)) == []
    assert list(_not_watched(3, 2)) == ["LOG holds placements of 3 pods, and the watcher received those of 2"]
    assert list(_not_watched(0, 0)) == ["no pod was placed"]

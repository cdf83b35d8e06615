"""The scheduler as a process on a real server: pods placed, killed in the middle, nothing lost or doubled, all recomputable."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import msgspec

from cotenant.engine.replay import verify
from cotenant.events import Event, ObjectStored, Placement
from cotenant.log.contract import HISTORY, LOG, Stored, Write
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.model.subjects import node_subject, pod_subject
from cotenant_scheduler.definition import DEFINITION
from tests.nats_server import NatsServer
from tests.unit.scheduler.builders_scheduler import NOW, node, pod

PODS = 3000
WAIT_SECONDS = 180


def scheduler(server: NatsServer, replica: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "cotenant_scheduler", "--nats", server.url, "--replica", replica, "--http-port", "-1"]
    )


def stored(subject: str, document: dict[str, object]) -> Write:
    data = ObjectStored(object=msgspec.Raw(msgspec.json.encode(document)))
    return Write(event=Event(subject=subject, data=data, time=NOW, id=f"test/{subject}", source="/test"))


async def say(log: NatsLog, writes: list[Write]) -> None:
    for start in range(0, len(writes), 500):
        outcome = await log.append(writes[start : start + 500])
        assert isinstance(outcome, Stored)


async def placements(log: NatsLog, at_least: int) -> list[Event]:
    """Wait (bounded) until that many placements are on the log."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            found = await read_all(log, LOG, ["node.*.placement.>"])
            if len(found) >= at_least:
                return found


async def test_the_process_places_pods_and_survives_kill_nine(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await say(log, [stored(node_subject(f"n{i}"), node(f"n{i}", cpu="200", memory="1Ti", pods="1000")) for i in range(20)])
    process = scheduler(nats_server, "first")
    try:
        pods = [stored(pod_subject("default", f"p{i}"), pod(f"p{i}", cpu="500m", memory="64Mi")) for i in range(PODS)]
        await say(log, pods[: PODS // 2])
        await placements(log, 1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        await say(log, pods[PODS // 2 :])
        process = scheduler(nats_server, "second")
        found = await placements(log, PODS)
    finally:
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    names = [event.data.name for event in found if isinstance(event.data, Placement)]
    assert sorted(names) == sorted(f"p{i}" for i in range(PODS))
    by_node: dict[str, int] = {}
    for event in found:
        assert isinstance(event.data, Placement)
        by_node[event.data.node] = by_node.get(event.data.node, 0) + event.data.requests["cpu"]
    assert max(by_node.values()) <= 200_000
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            history = await read_all(log, HISTORY, [">"])
            if history and history[-1].sequence >= found[-1].sequence:
                break
    report = verify(history, {"scheduler": DEFINITION})
    assert report.ok, report.first_difference
    await log.close()

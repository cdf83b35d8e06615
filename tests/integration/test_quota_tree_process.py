"""quota-tree as a process on a real server: runtimes follow requests, survive kill -9, and every commit can be
recomputed.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from cotenant.bus import NatsLog, connect, read_all
from cotenant.events import Event, ObjectStored, QuotaRuntime
from cotenant.log import HISTORY, LOG, Stored, Write
from cotenant.replay import verify
from cotenant.subjects import node_subject, object_subject, pod_subject
from cotenant_quota_tree.definition import DEFINITION
from tests.nats_server import NatsServer
from tests.unit.quota_tree.builders_quota_tree import PREFIX, START, quota_document


def quota_tree(server: NatsServer, replica: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "cotenant_quota_tree", "--nats", server.url, "--replica", replica, "--http-port", "-1"]
    )


async def say(log: NatsLog, subject: str, document: object) -> None:
    data = ObjectStored(object=msgspec.Raw(msgspec.json.encode(document)))
    event = Event(subject=subject, data=data, time=START, id=f"test/{subject}", source="/test")
    assert isinstance(await log.append([Write(event=event)]), Stored)


async def quota_object(log: NatsLog, name: str, minimum: str) -> None:
    document = quota_document(name, minimum={"cpu": minimum}, maximum={"cpu": "10"})
    await say(log, object_subject("scheduling.sigs.k8s.io", "elasticquotas", "default", name), document)


async def pending_pod(log: NatsLog, name: str, quota: str, cpu: str) -> None:
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name, "labels": {PREFIX + "name": quota}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
    }
    await say(log, pod_subject("default", name), document)


async def runtimes(log: NatsLog, expected: Callable[[dict[str, int]], bool]) -> dict[str, int]:
    """Wait (bounded) until the published cpu runtimes are as expected."""
    async with asyncio.timeout(30):
        while True:
            found = {
                event.data.quota: event.data.runtime.get("cpu", 0)
                for event in await read_all(log, LOG, ["quotas.>"])
                if isinstance(event.data, QuotaRuntime)
            }
            if expected(found):
                return found


@pytest.mark.timeout(120)
async def test_the_process_shares_survives_kill_nine_and_can_be_recomputed(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await say(log, node_subject("n1"), {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "10"}}})
    await quota_object(log, "a", "2")
    await quota_object(log, "b", "4")
    process = quota_tree(nats_server, "first")
    try:
        await pending_pod(log, "p", "a", "9")
        await runtimes(log, lambda found: found.get("a") == 9000 and found.get("b") == 0)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        await pending_pod(log, "q", "b", "6")
        process = quota_tree(nats_server, "second")
        found = await runtimes(log, lambda found: found.get("b", 0) > 0)
    finally:
        process.terminate()
        assert process.wait(20) == 0
    # Of what lies above the mins, four cores, each gets its half, as their weights are the same.
    assert (found["a"], found["b"]) == (4000, 6000)
    last = max(event.sequence for event in await read_all(log, LOG, ["quotas.>"]))
    async with asyncio.timeout(30):
        while True:
            history = await read_all(log, HISTORY, [">"])
            if history and history[-1].sequence >= last:
                break
    report = verify(history, {"quota-tree": DEFINITION})
    assert report.ok, report.first_difference
    await log.close()

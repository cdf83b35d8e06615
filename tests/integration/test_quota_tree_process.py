"""quota-tree as a process on a real server: runtimes follow requests, survive kill -9, and every commit can be
recomputed.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import msgspec

from cotenant.engine.replay import verify
from cotenant.events import Event, ObjectStored, QuotaRuntime
from cotenant.log.contract import HISTORY, LOG, Stored, Write
from cotenant.log.nats.log import NatsLog, connect, read_all
from cotenant.model.subjects import node_subject, object_subject, pod_subject
from cotenant_quota_tree.definition import DEFINITION
from tests.builders import node_document, pod_document
from tests.nats_server import NatsServer
from tests.unit.quota_tree.builders_quota_tree import PREFIX, START, quota_document

WAIT_SECONDS = 90


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
    document = pod_document(name, uid=name, labels={PREFIX + "name": quota}, requests={"cpu": cpu})
    await say(log, pod_subject("default", name), document)


async def runtimes(log: NatsLog, expected: dict[str, int]) -> None:
    """Wait (bounded) until the published cpu runtimes of these quotas are as expected."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            found = {
                event.data.quota: event.data.runtime.get("cpu", 0)
                for event in await read_all(log, LOG, ["quotas.>"])
                if isinstance(event.data, QuotaRuntime)
            }
            if expected.items() <= found.items():
                return


async def test_the_process_shares_survives_kill_nine_and_can_be_recomputed(nats_server: NatsServer) -> None:
    log = await connect(nats_server.url, "test")
    await log.declare()
    await say(log, node_subject("n1"), node_document("n1", allocatable={"cpu": "10"}))
    await quota_object(log, "a", "2")
    await quota_object(log, "b", "4")
    process = quota_tree(nats_server, "first")
    try:
        await pending_pod(log, "p", "a", "9")
        await runtimes(log, {"a": 9000, "b": 0})
        process.send_signal(signal.SIGKILL)
        process.wait()
        await pending_pod(log, "q", "b", "6")
        process = quota_tree(nats_server, "second")
        # Of what lies above the mins, four cores, each gets its half, as their weights are the same.
        await runtimes(log, {"a": 4000, "b": 6000})
    finally:
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    last = max(event.sequence for event in await read_all(log, LOG, ["quotas.>"]))
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            history = await read_all(log, HISTORY, [">"])
            if history and history[-1].sequence >= last:
                break
    report = verify(history, {"quota-tree": DEFINITION})
    assert report.ok, report.first_difference
    await log.close()

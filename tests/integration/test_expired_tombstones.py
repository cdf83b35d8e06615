"""Names that come again after the tombstone of their former bearer has expired: every writer copes, on a real server.

Messages stay a second here instead of five. A writer that remembers the tombstone expects a sequence that its subject
no longer has; the server says so, and the writer asks how the subject stands.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from cotenant.api.kinds import Kind
from cotenant.engine.commit import Identity
from cotenant.events.envelope import Event, Payload
from cotenant.events.node.metrics import Usage
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.node.yarn import YarnNode
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.kinds.nodes import NODES
from cotenant.kinds.pods import PODS
from cotenant.log.contract import LOG, Stored, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant.model.subjects import (
    executor_subject,
    node_subject,
    placement_subject,
    pod_subject,
    resources_subject,
    run_subject,
    yarn_subject,
)
from cotenant_gateway.planning.deletions import DeletionRequest
from cotenant_gateway.shell.gateway import Gateway
from cotenant_node_executor.core.node import Periods
from cotenant_node_executor.shell import ExecutorShell
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_verification.harness.yarn import PORT, ResourceManager
from cotenant_yarn_copilot.capacity import YarnResource
from cotenant_yarn_copilot.cluster_clients import ClusterClients
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.node_id import DEFAULT_CLUSTER
from cotenant_yarn_copilot.syncing import Syncing
from tests.builders import encoded, node_document, pod_document, stored
from tests.nats_server import NatsServer
from tests.unit.gateway.builders_gateway import as_json, manifest

T = TypeVar("T")
WAIT_SECONDS = 60
NODE = "n1"


@pytest.fixture
async def log(nats_server: NatsServer) -> AsyncIterator[NatsLog]:
    """A log on which tombstones stay a second."""
    made = await connect(nats_server.url, "test")
    await made.declare()
    made.longest_ttl_seconds = 1
    yield made
    await made.close()


async def until(ask: Callable[[], Awaitable[T | None]]) -> T:
    """Ask until there is an answer, within a bound."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (found := await ask()) is None:  # noqa: ASYNC110 - the server says nothing when a message expires
            await asyncio.sleep(0.05)
    return found


async def expired(log: NatsLog, subject: str) -> None:
    """Wait until a subject has held a tombstone, and holds nothing any more."""

    async def ended() -> bool | None:
        head = await log.head(subject)
        return True if head is None or head.tombstone else None

    async def empty() -> bool | None:
        return True if await log.head(subject) is None else None

    await until(ended)
    await until(empty)


async def say(log: NatsLog, subject: str, data: Payload, *, tombstone: bool = False) -> None:
    event = Event(subject=subject, data=data, id=f"test/{subject}", source="/test", tombstone=tombstone, time=datetime.now(UTC))
    assert isinstance(await log.append([Write(event=event)]), Stored)


@contextlib.asynccontextmanager
async def gateway_on(log: NatsLog) -> AsyncIterator[Gateway]:
    gateway = Gateway(log, Identity(service="gateway", replica="g"))
    running = asyncio.ensure_future(gateway.run())
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await gateway.ready.wait()
        yield gateway
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def delete(gateway: Gateway, kind: Kind, namespace: str, name: str) -> None:
    await gateway.delete(kind, namespace, name, DeletionRequest(), "test")


async def test_a_pod_is_created_again_under_a_name_whose_tombstone_has_expired(log: NatsLog) -> None:
    async with gateway_on(log) as gateway:
        await gateway.create(PODS, "default", as_json(manifest("web")), "test")
        await delete(gateway, PODS, "default", "web")
        assert gateway.core.own_sequence(PODS, "default", "web") > 0
        await expired(log, pod_subject("default", "web"))
        shown = await gateway.create(PODS, "default", as_json(manifest("web")), "test")
        assert b'"name":"web"' in shown.document


async def test_a_node_is_registered_again_after_its_tombstone_has_expired(log: NatsLog) -> None:
    async with gateway_on(log) as gateway:
        async def registered() -> bool | None:
            return True if gateway.core.get(NODES, "", NODE) is not None else None

        await say(log, executor_subject(NODE), ExecutorStatus(node=NODE, boot="one"))
        await until(registered)
        await delete(gateway, NODES, "", NODE)
        await expired(log, node_subject(NODE))
        await say(log, executor_subject(NODE), ExecutorStatus(node=NODE, boot="two"))
        await until(registered)


async def test_an_executor_reports_a_pod_of_a_name_whose_last_report_has_expired(log: NatsLog) -> None:
    stopping, ready = asyncio.Event(), asyncio.Event()
    node = simulated_node(NODE, NodeSize(), boot="boot", periods=Periods(sample_seconds=0.05, report_seconds=1))
    shell = ExecutorShell(log, node, cell="cell", period_seconds=0.05, stopping=stopping, on_ready=ready.set)
    running = asyncio.ensure_future(shell.run())
    placement, report = placement_subject(NODE, "default", "web"), run_subject(NODE, "default", "web")

    async def runs(uid: str) -> None:
        async def asked() -> bool | None:
            head = await log.head(report)
            event = await log.get(LOG, head.sequence) if head is not None else None
            data = event.data if event is not None else None
            return True if isinstance(data, RunStatus) and (data.uid, data.phase) == (uid, RunPhase.RUNNING) else None

        await until(asked)

    def placed(uid: str, phase: PlacementPhase = PlacementPhase.BOUND) -> Placement:
        document = encoded(pod_document("web", uid=uid, annotations={"cotenant.io/simulated-duration": "1h"}))
        return Placement(node=NODE, namespace="default", name="web", uid=uid, pod=document, phase=phase)

    try:
        async with asyncio.timeout(WAIT_SECONDS):
            await ready.wait()
        await say(log, placement, placed("one"))
        await runs("one")
        await say(log, placement, placed("one", PlacementPhase.GONE), tombstone=True)
        await expired(log, report)
        await say(log, placement, placed("two"))
        await runs("two")
    finally:
        stopping.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await running


async def test_a_node_manager_that_is_back_after_its_tombstone_has_expired_is_told_again(log: NatsLog) -> None:
    cluster = ResourceManager()
    syncing = Syncing(log, ClusterClients({DEFAULT_CLUSTER: cluster}), CopilotConfig(), now=lambda: datetime.now(UTC))

    async def fold(subject: str, data: Payload) -> None:
        await say(log, subject, data)
        head = await log.head(subject)
        assert head is not None
        event = await log.get(LOG, head.sequence)
        assert event is not None
        syncing.fold(event)

    async def told() -> bool | None:
        await syncing.sync()
        head = await log.head(yarn_subject(f"stranger:{PORT}"))
        event = await log.get(LOG, head.sequence) if head is not None else None
        return True if event is not None and isinstance(event.data, YarnNode) and not event.tombstone else None

    await fold(node_subject(NODE), stored(node_document(NODE)))
    await fold(resources_subject(NODE), NodeResources(node=NODE, origin=Usage(cpu_milli=4000, memory_bytes=8 << 30)))
    cluster.register("stranger", YarnResource(4096, 4))
    await until(told)
    del cluster.managers[f"stranger:{PORT}"]
    await syncing.sync()
    await expired(log, yarn_subject(f"stranger:{PORT}"))
    cluster.register("stranger", YarnResource(4096, 4))
    await until(told)

"""The way of a node's batch capacity to a real YARN, and of YARN's use back.

A real Hadoop, a real nats-server, the services' own loops.

`make test-yarn`. Where Java or Maven are missing the tests are skipped and say what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import aiohttp
import msgspec
import nats
import nats.errors
import pytest

from cotenant.engine.commit import Identity
from cotenant.events import Event, NodeMetricComputed, NodeResources, ObjectStored, YarnNode
from cotenant.events.envelope import Payload
from cotenant.events.node.metrics import Usage
from cotenant.log.contract import Stored, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant.model.subjects import metrics_subject, node_subject, object_subject, resources_subject, yarn_subject
from cotenant.runtime.deciding import DecidingService
from cotenant_batch_resource_calculator.core import CalculatorConfig
from cotenant_batch_resource_calculator.definition import DEFINITION
from cotenant_yarn_copilot.capacity import MIB, YarnResource
from cotenant_yarn_copilot.cluster_clients import ClusterClients
from cotenant_yarn_copilot.config import CopilotConfig
from cotenant_yarn_copilot.node_id import ANNOTATION_NODE_ID, DEFAULT_CLUSTER
from cotenant_yarn_copilot.rm_client import ResourceManagerClient, ResourceManagerError
from cotenant_yarn_copilot.syncing import Syncing
from tests.nats_server import NatsServer
from tests.streams import declare_streams
from tests.yarn.hadoop_cluster import (
    ANNOUNCED_MB,
    ANNOUNCED_VCORES,
    WAIT_SECONDS,
    HadoopCluster,
    HadoopMissingError,
    hadoop_jars,
)

pytestmark = [pytest.mark.yarn, pytest.mark.timeout(1200)]

NODE = "worker-1"
GIB = 1 << 30
CONFIG = '{"enable": true, "cpuReclaimThresholdPercent": 100, "memoryReclaimThresholdPercent": 100}'
PayloadT = TypeVar("PayloadT", bound=Payload)


@pytest.fixture(scope="module")
def hadoop() -> Iterator[HadoopCluster]:
    try:
        jars = hadoop_jars()
    except HadoopMissingError as missing:
        pytest.skip(str(missing))
    cluster = HadoopCluster(jars)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


class Bench:
    """The log with both services on it; the test plays gateway and metrics-ingest."""

    def __init__(self, log: NatsLog) -> None:
        self.log = log

    async def store(self, subject: str, data: Payload) -> None:
        now = datetime.now(UTC)
        event = Event(subject=subject, data=data, time=now, id=f"test/{subject}/{now.timestamp()}", source="/test")
        assert isinstance(await self.log.append([Write(event=event)]), Stored)

    async def object(self, subject: str, document: dict[str, object]) -> None:
        await self.store(subject, ObjectStored(object=msgspec.Raw(msgspec.json.encode(document))))

    async def declare_node(self, node_id: str) -> None:
        capacity = {"cpu": "16", "memory": "32Gi"}
        await self.object(
            node_subject(NODE),
            {
                "metadata": {"name": NODE, "annotations": {ANNOTATION_NODE_ID: node_id}},
                "status": {"capacity": capacity, "allocatable": capacity},
            },
        )

    async def measure(self, cpu_milli: int, memory_bytes: int) -> None:
        """Say what the node's services use: batch is the rest."""
        used = Usage(cpu_milli=cpu_milli, memory_bytes=memory_bytes)
        now = datetime.now(UTC)
        await self.store(
            metrics_subject(NODE), NodeMetricComputed(node=NODE, update_time=now, node_usage=used, system_usage=used)
        )

    async def expect(
        self, subject: str, kind: type[PayloadT], holds: Callable[[PayloadT], bool], what: str
    ) -> PayloadT:
        """Return the subject's last event once it says what is expected."""
        found: Payload | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    head = await self.log.head(subject)
                    event = await self.log.get("LOG", head.sequence) if head is not None else None
                    found = event.data if event is not None else None
                    if isinstance(found, kind) and holds(found):
                        return found
                    await asyncio.sleep(0.1)
        raise AssertionError(f"not within {WAIT_SECONDS} s: {what}; the last event says {found}")


@pytest.fixture
async def bench(hadoop: HadoopCluster, nats_server: NatsServer) -> AsyncIterator[Bench]:
    log = await connect(nats_server.url, "test")
    await log.declare()
    calculator_log = await connect(nats_server.url, DEFINITION.name)
    identity = Identity(service=DEFINITION.name)
    calculator = DecidingService(DEFINITION, CalculatorConfig(), identity, calculator_log, None)
    copilot_log = await connect(nats_server.url, "yarn-copilot")
    stopping = asyncio.Event()
    async with aiohttp.ClientSession() as session:
        clients = ClusterClients({DEFAULT_CLUSTER: ResourceManagerClient(session, [hadoop.url])})
        syncing = Syncing(copilot_log, clients, CopilotConfig(sync_seconds=1.0), now=lambda: datetime.now(UTC))
        tasks = [
            asyncio.ensure_future(calculator.run()),
            asyncio.ensure_future(syncing.run(stopping, lambda report: None)),
        ]
        bench = Bench(log)
        config_map: dict[str, object] = {"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": CONFIG}}
        await bench.object(object_subject("", "configmaps", "koordinator-system", "slo-controller-config"), config_map)
        yield bench
        stopping.set()
        calculator.stopping.set()
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*tasks)
    for open_log in (calculator_log, copilot_log, log):
        assert isinstance(open_log, NatsLog)
        await open_log.close()


async def _until(hadoop: HadoopCluster, holds: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(hadoop.wait_for, holds, what)


async def test_yarn_follows_the_nodes_batch_capacity_and_its_use_is_taken_off_batch(
    bench: Bench, hadoop: HadoopCluster
) -> None:
    await bench.declare_node(hadoop.node_id)
    await bench.measure(4000, 8 * GIB)
    await _until(hadoop, lambda: hadoop.total() == (12, 24 * 1024), "YARN has what the services leave: 12 vcores, 24 GiB")
    given = await bench.expect(yarn_subject(NODE), YarnNode, lambda node: node.confirmed, "the total was read back")
    assert given.node_id == hadoop.node_id
    assert given.given == given.wanted == Usage(cpu_milli=12_000, memory_bytes=24 * GIB)

    application = await asyncio.to_thread(hadoop.submit, 1024, 2)
    used = Usage(cpu_milli=2000, memory_bytes=GIB)
    await bench.expect(yarn_subject(NODE), YarnNode, lambda node: node.used == used, "YARN's use is an event")
    shared = await bench.expect(
        resources_subject(NODE), NodeResources, lambda found: found.third_party == used, "batch excludes YARN's use"
    )
    assert shared.origin == Usage(cpu_milli=12_000, memory_bytes=24 * GIB)
    assert (shared.batch_cpu_milli, shared.batch_memory_bytes) == (10_000, 23 * GIB)
    assert hadoop.total() == (12, 24 * 1024)

    await bench.measure(10_000, 20 * GIB)
    await _until(hadoop, lambda: hadoop.total() == (6, 12 * 1024), "YARN's total shrinks when the services need more")

    await asyncio.to_thread(hadoop.kill, application)
    await bench.expect(
        yarn_subject(NODE), YarnNode, lambda node: node.used == Usage(), "YARN's use ends with the application"
    )
    await bench.expect(
        resources_subject(NODE), NodeResources, lambda found: found.batch_cpu_milli == 6000, "batch is whole again"
    )


async def test_shrinking_below_what_runs_kills_nothing(bench: Bench, hadoop: HadoopCluster) -> None:
    await bench.declare_node(hadoop.node_id)
    await bench.measure(8000, 16 * GIB)
    await _until(hadoop, lambda: hadoop.total() == (8, 16 * 1024), "YARN has 8 vcores, 16 GiB")
    application = await asyncio.to_thread(hadoop.submit, 2048, 4)
    try:
        used = Usage(cpu_milli=4000, memory_bytes=2 * GIB)
        await bench.expect(yarn_subject(NODE), YarnNode, lambda node: node.used == used, "the container runs")
        await bench.measure(15_000, 31 * GIB)
        await _until(hadoop, lambda: hadoop.total() == (1, 1024), "the total is below what runs")
        await _until(hadoop, lambda: hadoop.node()["availMemoryMB"] == -1024, "the node is over-committed")
        # A ResourceManager that kills does so at the NodeManager's next heartbeat: see two go by.
        for memory_mb in (512, 256):
            await bench.measure(15_000, 32 * GIB - memory_mb * MIB)
            await _until(
                hadoop,
                lambda wanted=memory_mb: hadoop.node_manager()["totalPmemAllocatedContainersMB"] == wanted,  # type: ignore[misc]
                "a heartbeat brought the NodeManager its total",
            )
        assert hadoop.node()["numContainers"] == 1
    finally:
        await asyncio.to_thread(hadoop.kill, application)
        await _until(hadoop, lambda: hadoop.node()["numContainers"] == 0, "the application has ended")


async def test_a_node_manager_that_registers_again_gets_its_total_back(bench: Bench, hadoop: HadoopCluster) -> None:
    await bench.declare_node(hadoop.node_id)
    await bench.measure(6000, 12 * GIB)
    await _until(hadoop, lambda: hadoop.total() == (10, 20 * 1024), "YARN has 10 vcores, 20 GiB")
    dead = await asyncio.to_thread(hadoop.restart_node_manager)

    def back() -> bool:
        manager = hadoop.node_manager()
        return bool(manager["nmStartupTime"] >= dead and manager["totalPmemAllocatedContainersMB"] == 20 * 1024)

    registered = f"the total is set again after a registration with {ANNOUNCED_VCORES} vcores and {ANNOUNCED_MB} MB"
    await _until(hadoop, back, registered)
    await bench.expect(yarn_subject(NODE), YarnNode, lambda node: node.confirmed and node.state == "RUNNING", "confirmed")


async def test_a_node_manager_that_is_nobodys_is_told(bench: Bench, hadoop: HadoopCluster) -> None:
    stranger = await bench.expect(
        yarn_subject(hadoop.node_id), YarnNode, lambda node: True, "the unmatched NodeManager is an event"
    )
    assert stranger.node == ""
    assert "belongs to no node" in stranger.reason
    await bench.declare_node(f"elsewhere:{hadoop.node_id.rpartition(':')[2]}")
    ours = await bench.expect(yarn_subject(NODE), YarnNode, lambda node: bool(node.reason), "the wrong id is published")
    assert hadoop.node_id in ours.reason


async def test_the_client_says_what_the_resource_manager_refuses(hadoop: HadoopCluster) -> None:
    async with aiohttp.ClientSession() as session:
        client = ResourceManagerClient(session, ["http://127.0.0.1:9", hadoop.url])
        assert await client.find_active() == hadoop.url
        with pytest.raises(ResourceManagerError, match="404"):
            await client.set_total("localhost:1", YarnResource(1, 1024))
        before = (await client.node(hadoop.node_id)).total
        await client.set_total(hadoop.node_id, YarnResource(before.vcores + 1, before.memory_mb + 1))
        confirmed = await client.confirm(hadoop.node_id, YarnResource(before.vcores + 1, before.memory_mb + 1))
        assert confirmed.total.memory_mb * MIB == (before.memory_mb + 1) * MIB
        nobody = ResourceManagerClient(session, ["http://127.0.0.1:9"])
        with pytest.raises(ResourceManagerError, match="no ResourceManager is ACTIVE"):
            await nobody.nodes()


async def test_the_process_tells_what_its_passes_come_to(hadoop: HadoopCluster, nats_server: NatsServer) -> None:
    arguments = (
        "-m",
        "cotenant_yarn_copilot",
        "--nats",
        nats_server.url,
        "--http-port",
        "-1",
        "--resource-manager",
        hadoop.url,
    )
    declare_streams(nats_server.url)
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    client = await nats.connect(nats_server.url)
    detail = ""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while "unmatched" not in detail:
                with contextlib.suppress(nats.errors.NoRespondersError):
                    answer = await client.request("cotenant.yarn-copilot.status", b"", timeout=WAIT_SECONDS)
                    detail = msgspec.json.decode(answer.data)["detail"]
                await asyncio.sleep(0.2)
    finally:
        await client.close()
        process.terminate()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await process.wait() == 0
    assert detail == "1 NodeManagers, 0 of them ours, 1 unmatched"

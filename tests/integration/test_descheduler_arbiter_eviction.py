"""Evictions by the real processes: descheduler-arbiter asks, the gateway judges the budget, the scheduler ends the placement. A
hot node is relieved; pods of lower priority make room.

The test plays the executors: it reports runs and metrics, and the end of a pod that shall end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cotenant.engine.replay import verify
from cotenant.events.envelope import Event, Payload
from cotenant.events.migrations import Migration
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.metrics import NodeMetricComputed, PodMetric, Usage
from cotenant.events.node.runs import ContainerRun, ExecutorStatus, RunPhase, RunStatus
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.log.contract import LOG, Stored, Write
from cotenant.log.nats.log import NatsLog, connect
from cotenant.log.nats.reader import NatsReader
from cotenant.model.subjects import executor_subject, metrics_subject, run_subject
from cotenant_descheduler_arbiter.definition import DEFINITION
from cotenant_scheduler.definition import DEFINITION as SCHEDULER
from cotenant_verification.http_sessions import http_session
from tests.builders import node_document, pod_document
from tests.integration.gateway.gateway_process import shared_identity
from tests.nats_server import NatsServer, free_port

WAIT_SECONDS = 90
PODS = 8
POLICY = """
deschedulingInterval: 1s
nodeLifecycle: {nodeEvictionRate: 0.001}
profiles:
- plugins: {balance: {enabled: [{name: LowNodeLoad}]}}
  pluginConfig:
  - name: LowNodeLoad
    args:
      lowThresholds: {cpu: 40}
      highThresholds: {cpu: 70}
      anomalyCondition: {consecutiveAbnormalities: 1}
  - name: MigrationController
    args: {maxMigratingPerNode: 1}
"""


class World:
    """The log as a test sees it, and the API."""

    def __init__(self, log: NatsLog, reader: NatsReader, api: str, arbiter: str, http: aiohttp.ClientSession) -> None:
        self.log = log
        self.reader = reader
        self.api = api
        self.arbiter = arbiter
        """Where the arbiter shows its status."""
        self.http = http
        self.heard: list[Event] = []
        self.last: dict[str, Event] = {}

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Read on until the condition holds, at most WAIT_SECONDS."""
        deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
        while not holds():
            left = deadline - asyncio.get_running_loop().time()
            assert left > 0, f"waited {WAIT_SECONDS} s for: {what}"
            for event in await self.reader.pull(500, min(left, 1.0)):
                self.heard.append(event)
                if event.tombstone:
                    self.last.pop(event.subject, None)
                else:
                    self.last[event.subject] = event

    async def until_ready(self) -> None:
        """Wait until the gateway listens and has loaded; before that it refuses what it is asked."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                with contextlib.suppress(aiohttp.ClientConnectorError):
                    async with self.http.get(f"{self.api}/readyz") as response:
                        if response.status == 200:
                            return
                await asyncio.sleep(0.05)

    async def report(self, subject: str, data: Payload) -> None:
        """Store a fact as an executor or metrics-ingest would."""
        now = datetime.now(UTC)
        event = Event(subject=subject, data=data, id=f"test/{subject}/{now.timestamp()}", source="/test", time=now)
        assert isinstance(await self.log.append([Write(event=event)]), Stored)

    async def create(self, path: str, document: object) -> None:
        async with self.http.post(f"{self.api}{path}", json=document) as response:
            assert response.status in (200, 201), await response.text()

    async def patch(self, path: str, document: object) -> None:
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self.http.patch(f"{self.api}{path}", json=document, headers=headers) as response:
            assert response.status == 200, await response.text()

    async def delete(self, path: str) -> None:
        async with self.http.delete(f"{self.api}{path}") as response:
            assert response.status in (200, 202), await response.text()

    async def shown_job(self, phase: str) -> dict[str, Any]:
        """The only migration job as the API shows it, once it is in this phase: the gateway reads the log in its own time."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                async with self.http.get(f"{self.api}/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs") as response:
                    (shown,) = json.loads(await response.text())["items"]
                if shown["status"]["phase"] == phase:
                    job: dict[str, Any] = shown
                    return job

    async def shown(self, path: str) -> dict[str, Any]:
        """An object as the API shows it."""
        async with self.http.get(f"{self.api}{path}") as response:
            assert response.status == 200, await response.text()
            document: dict[str, Any] = json.loads(await response.text())
            return document

    def placements(self) -> list[Placement]:
        return [event.data for event in self.last.values() if isinstance(event.data, Placement)]

    def migrations(self) -> list[Migration]:
        return [event.data for event in self.last.values() if isinstance(event.data, Migration)]

    async def run(self, placement: Placement, phase: RunPhase) -> None:
        await self.report(
            run_subject(placement.node, placement.namespace, placement.name),
            RunStatus(
                node=placement.node,
                namespace=placement.namespace,
                name=placement.name,
                uid=placement.uid,
                phase=phase,
                containers=(ContainerRun(name="main", state="running", ready=phase is RunPhase.RUNNING),),
            ),
        )

    async def add_node(self, name: str) -> None:
        await self.create("/api/v1/nodes", _node(name))
        allocatable = {"cpu": 10_000, "memory": 64 << 30, "pods": 50}
        await self.report(
            executor_subject(name), ExecutorStatus(node=name, boot="1", capacity=allocatable, allocatable=allocatable)
        )

    async def measure(self, node: str, pod_milli: int) -> None:
        pods = tuple(
            PodMetric(namespace=each.namespace, name=each.name, uid=each.uid, usage=Usage(cpu_milli=pod_milli))
            for each in self.placements()
            if each.node == node
        )
        metric = NodeMetricComputed(node=node, update_time=datetime.now(UTC) + timedelta(seconds=1), pods=pods)
        await self.report(metrics_subject(node), metric)


def _node(name: str) -> dict[str, object]:
    allocatable = {"cpu": "10", "memory": "64Gi", "pods": "50"}
    return node_document(name, allocatable=allocatable, capacity=allocatable)


def _pod(name: str, cpu: str = "100m", **spec: Any) -> dict[str, object]:
    return pod_document(name, uid="", labels={"app": "web"}, owner="web", **{"image": "web", "requests": {"cpu": cpu}, **spec})


@pytest.fixture
async def world(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[World]:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    port, status_port = free_port(), free_port()
    commands = {
        "gateway": ["--http-port", str(port), *shared_identity().gateway_flags()],
        "scheduler": [],
        "descheduler-arbiter": ["--config", str(policy), "--http-port", str(status_port)],
    }
    log = await connect(nats_server.url, "test")
    await log.declare()
    reader = await log.follow(LOG, [">"], after=0)
    processes = []
    try:
        for name, arguments in commands.items():
            program = Path(sys.executable).parent / f"cotenant-{name}"
            with (tmp_path / f"{name}.log").open("wb") as output:
                line = [str(program), "--nats", nats_server.url, "--replica", "0", *arguments]
                processes.append(await asyncio.create_subprocess_exec(*line, stdout=output, stderr=output))
        identity = shared_identity()
        async with http_session(identity.credentials) as http:
            made = World(log, reader, f"https://127.0.0.1:{port}", f"http://127.0.0.1:{status_port}", http)
            started = {f"services.{name}.0" for name in commands}
            await made.until(lambda: started <= made.last.keys(), "all services to have started")
            await made.until_ready()
            yield made
    finally:
        await reader.close()
        for process in processes:
            if process.returncode is None:
                process.terminate()
        async with asyncio.timeout(WAIT_SECONDS):
            for process in processes:
                await process.wait()
        await log.close()


async def test_a_hot_node_is_relieved_as_soon_as_the_budget_allows(world: World) -> None:
    await world.add_node("hot")
    for index in range(PODS):
        await world.create("/api/v1/namespaces/default/pods", _pod(f"web-{index}"))
    await world.until(lambda: len(world.placements()) == PODS, "the pods to be placed")
    for placement in world.placements():
        await world.run(placement, RunPhase.RUNNING)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": PODS, "selector": {"matchLabels": {"app": "web"}}},
    }
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await world.create(budgets, budget)
    await world.add_node("cold")
    await world.until(lambda: "node.cold.executor" in world.last, "the second node")

    await world.measure("cold", 0)
    await world.measure("hot", 1000)
    await world.until(lambda: any(job.reason == "EvictionRefused" for job in world.migrations()), "the budget's refusal")
    (job,) = world.migrations()
    assert (job.trigger, job.node, job.target, job.phase) == ("LowNodeLoad", "hot", "cold", "Running")
    assert "web" in job.message
    assert job.evict_reason == "node is overutilized, node cpu usage(80.00%)>threshold(70.00%)"

    await world.delete(f"{budgets}/web")
    await world.until(lambda: any(each.phase is PlacementPhase.TERMINATING for each in world.placements()), "the ending")
    ending = next(each for each in world.placements() if each.phase is PlacementPhase.TERMINATING)
    assert ending.name == job.pod
    await world.run(ending, RunPhase.STOPPED)
    await world.until(lambda: all(each.phase == "Succeeded" for each in world.migrations()), "the job's success")
    assert f"objects.core.pods.default.{job.pod}" not in world.last
    assert len(world.migrations()) == 1
    recomputed = verify(world.heard, {DEFINITION.name: DEFINITION})
    assert recomputed.holes == 0
    assert recomputed.first_difference is None
    assert recomputed.verified >= 6, "judged, let through, ordered, refused, granted, done"

    shown = await world.shown_job("Succeeded")
    assert shown["spec"]["podRef"]["name"] == job.pod


async def test_the_pod_of_lowest_priority_makes_room_that_is_held_for_the_one_it_left_for(world: World) -> None:
    await world.add_node("full")
    pods = "/api/v1/namespaces/default/pods"
    for name, priority in (("cheap", 10), ("dear", 500)):
        await world.create(pods, _pod(name, "5", priority=priority))
    await world.until(lambda: len(world.placements()) == 2, "the pods to be placed")
    for placement in world.placements():
        await world.run(placement, RunPhase.RUNNING)
    await world.until(lambda: sum(subject.startswith("node.full.run.") for subject in world.last) == 2, "the runs")

    await world.create(pods, _pod("high", "4", priority=1000))
    await world.until(lambda: bool(world.migrations()), "a migration job")
    (job,) = world.migrations()
    assert (job.trigger, job.pod, job.node) == ("Preemption", "cheap", "full")
    said = world.last["waiting.default.high"].data
    assert isinstance(said, Waiting)
    assert said.nomination is not None
    assert [victim.name for victim in said.nomination.victims] == ["cheap"]
    await world.until(lambda: any(each.phase is PlacementPhase.TERMINATING for each in world.placements()), "the ending")
    assert (await world.shown(f"{pods}/high"))["status"]["nominatedNodeName"] == "full"

    # Room becomes free, but it is held: a pod of a lower priority does not get it.
    await world.create(pods, _pod("late", "3", priority=20))
    await world.until(lambda: "waiting.default.late" in world.last, "the late pod to wait")
    (ending,) = [each for each in world.placements() if each.phase is PlacementPhase.TERMINATING]
    await world.run(ending, RunPhase.STOPPED)
    await world.until(lambda: "node.full.placement.default.high" in world.last, "the pod to land")
    await world.until(lambda: all(each.phase == "Succeeded" for each in world.migrations()), "the job's success")
    assert "waiting.default.high" not in world.last
    assert sorted(each.name for each in world.placements()) == ["dear", "high"]
    assert len(world.migrations()) == 1
    recomputed = verify(world.heard, {each.name: each for each in (DEFINITION, SCHEDULER)})
    assert recomputed.first_difference is None
    assert recomputed.verified >= 6


async def test_a_users_taint_evicts_at_once_and_of_lost_nodes_one_after_the_other(world: World) -> None:
    """Two nodes are lost beside a ready one; their pods tolerate that for no time. One node is back before its turn."""
    for name in ("well", "first", "second"):
        await world.add_node(name)
        await world.measure(name, 10)
    tolerations = [
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}
    ]
    for name, node in (("a", "well"), ("b", "first"), ("c", "second")):
        pod = _pod(name, tolerations=tolerations, nodeName=node)
        await world.create("/api/v1/namespaces/default/pods", pod)
    await world.until(lambda: len(world.placements()) == 3, "all pods to be placed")
    for placement in world.placements():
        await world.run(placement, RunPhase.RUNNING)

    await world.patch("/api/v1/nodes/well", {"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}})
    await world.until(lambda: _gone(world) == {"a"}, "its eviction")
    (job,) = world.migrations()
    assert (job.trigger, job.taint) == ("TaintEviction", "maintenance")
    await world.until(lambda: _ends(world, "a"), "the pod to be ending")

    now = datetime.now(UTC)
    for name in ("first", "second"):
        lost = NodeMetricComputed(node=name, update_time=now - timedelta(minutes=1), unknown_since=now)
        await world.report(metrics_subject(name), lost)
    await world.until(lambda: _evicting(world) == {"first"}, "one node to be tainted")
    await world.until(lambda: _gone(world) == {"a", "b"}, "its pod to go")
    async with world.http.get(f"{world.arbiter}/metrics") as response:
        shown = await response.text()
    assert re.search(r'cotenant_zone_lost_nodes\{[^}]*zone="\(no zone\)"\} 2', shown)
    assert re.search(r'cotenant_zone_nodes\{[^}]*zone="\(no zone\)"\} 3', shown)
    assert re.search(r'cotenant_zone_eviction_nodes_per_second\{[^}]*zone="\(no zone\)"\} 0.001', shown)
    await world.measure("second", 10)
    await world.until(lambda: _status(world, "second") == "True", "the second node to be ready")
    assert not any(job.pod == "c" for job in world.migrations()), "the next node would be tainted after 1,000 s"


def _ends(world: World, name: str) -> bool:
    return any(each.name == name and each.phase is PlacementPhase.TERMINATING for each in world.placements())


def _gone(world: World) -> set[str]:
    """The pods whose eviction was granted."""
    return {job.pod for job in world.migrations() if job.phase == "Succeeded"}


def _conditions(world: World) -> dict[str, NodeCondition]:
    return {event.data.node: event.data for event in world.last.values() if isinstance(event.data, NodeCondition)}


def _evicting(world: World) -> set[str]:
    return {node for node, condition in _conditions(world).items() if condition.evicts}


def _status(world: World, node: str) -> str:
    return _conditions(world)[node].status

"""What an executor did is found where a person looks: an eviction, by kubectl, by the events of the node, by its causes."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.gateway_process import PODS, WAIT_SECONDS, GatewayProcess, sentences, with_kubectl
from tests.integration.node_executor.executor_harness import NODE, Harness
from tests.integration.node_executor.test_enforcement import batch_pod
from tests.nats_server import NatsServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real control groups")

GATES = "--feature-gates=BEMemoryEvict=true"
EVICT = {"enable": True, "memoryEvictThresholdPercent": 1, "memoryEvictLowerPercent": 0}
RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "process"}, "handler": "process",
}  # fmt: skip
SLEEP = "import signal; signal.pause()"


async def create(gateway: GatewayProcess, path: str, document: dict[str, Any]) -> dict[str, Any]:
    async with gateway.session() as session, session.post(path, json=document) as created:
        stored: dict[str, Any] = await created.json()
        assert created.status == 201, stored["message"]
        return stored


async def answer(gateway: GatewayProcess, path: str) -> str:
    async with gateway.session() as session, session.get(path) as found:
        assert found.status == 200, await found.text()
        return await found.text()


@with_kubectl
async def test_an_eviction_is_in_the_nodes_events_and_its_causes_go_back_to_the_samples(
    harness: Harness, nats_server: NatsServer, tmp_path: Path
) -> None:
    gateway = GatewayProcess(nats_server.url)
    try:
        await gateway.ready()
        await create(gateway, "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)
        pod: dict[str, Any] = batch_pod("job", SLEEP)
        pod["spec"]["priorityClassName"] = "koord-batch"
        stored = await create(gateway, PODS, pod)
        # The server keeps four messages of usage: none of the sample's followers may displace it before it is looked up.
        harness.start(GATES, "--report-period", "15")
        await harness.place(stored, stored["metadata"]["uid"])
        await harness.running("job")
        await harness.wait("usage was reported", lambda: [e for e in harness.facts if e.subject.startswith("usage.")])
        await harness.node_slo({"resourceUsedThresholdWithBE": EVICT})
        await harness.ended("job")
        await harness.wait("the eviction is told", lambda: harness.summary("memory-evict", "evicted by memory-evict"))
        harness.kill()

        described = await gateway.kubectl(tmp_path, "describe", "node", NODE)
        conditions, _, events = described.partition("Events:")
        assert "MemoryPressure" in conditions
        assert "no further best-effort pods" in conditions
        assert "default/job: evicted by memory-evict: trigger by koordlet feature BEMemoryEvict" in events
        assert "MemoryEvict" in events
        assert "node-executor" in events

        lines = (await answer(gateway, f"/apis/cotenant.io/v1/events?for=node/{NODE}")).splitlines()
        assert [line for line in lines if "evicted by memory-evict" in line], lines[-5:]

        explained = await gateway.explained("pod/default/job")
        assert "trigger by koordlet feature BEMemoryEvict: node memory" in explained["summary"]
        assert sentences(explained, "cotenant.usage."), "the sample that it was decided from"
    finally:
        gateway.close()


async def test_what_a_strategy_does_is_printed_as_it_happens_with_its_figures_and_as_it_is_put_back(
    harness: Harness, nats_server: NatsServer
) -> None:
    gateway = GatewayProcess(nats_server.url)
    following: asyncio.subprocess.Process | None = None
    try:
        await gateway.ready()
        harness.start()
        await harness.place(batch_pod("job", SLEEP))
        await harness.running("job")
        command = ("events", "--for", f"node/{NODE}", "-f")
        following = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cotenant_console", *command, "--kubeconfig", str(gateway.kubeconfig)),
            stdout=subprocess.PIPE,
        )
        output = following.stdout
        assert output is not None

        async def printed(*words: str) -> str:
            async with asyncio.timeout(WAIT_SECONDS):
                async for line in output:
                    if all(word in line.decode() for word in words):
                        return line.decode()
            raise AssertionError(f"the command ended without {words}")

        await printed("default/job", "running")
        quota = {"enable": True, "cpu_suppress_policy": "cfsQuota", "cpu_suppress_threshold_percent": 50}
        await harness.node_slo(**quota, reserved_cpu_milli=1000 * (os.cpu_count() or 1))
        await printed("EXECUTION:", ": besteffort cpu.cfs_quota_us: -1 -> ", "best-effort may use")
        await harness.node_slo(enable=False)
        await printed("EXECUTION:", ": besteffort cpu.cfs_quota_us: ", " -> -1")
    finally:
        if following is not None and following.returncode is None:
            following.kill()
            await following.wait()
        gateway.close()

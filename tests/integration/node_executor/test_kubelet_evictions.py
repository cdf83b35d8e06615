"""An eviction on a node whose pods kubelet runs: the executor asks a real gateway, and ends no process itself."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from cotenant.domain.qos import KubeQoS
from cotenant.events.migrations import node_evict_subject
from cotenant.events.node.runs import RunPhase
from cotenant_node_executor.targets.cgroup.paths import KubeletCgroupDriver
from tests.builders import container, pod_document
from tests.integration.gateway.gateway_process import PODS, GatewayProcess, sentences
from tests.integration.kubelet_tree import BURN, KubeletTree
from tests.integration.node_executor.executor_harness import NAMESPACE, NODE, WAIT_SECONDS, Harness
from tests.nats_server import NatsServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real control groups")

BATCH = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "64Mi"}
STARVED = {"enable": True, "cpuEvictBESatisfactionLowerPercent": 30, "cpuEvictBESatisfactionUpperPercent": 40}


async def refused(harness: Harness, node: str, **wanted: object) -> str:
    """What the gateway says to a node's request that it refuses."""
    body = msgspec.json.encode({"namespace": NAMESPACE, **wanted})
    reply = await harness.log.client.request(node_evict_subject(node), body, timeout=WAIT_SECONDS)
    return (reply.headers or {}).get("Nats-Service-Error", "")


async def test_an_evicted_pod_is_deleted_by_the_gateway_and_ended_by_kubelet(
    harness: Harness, nats_server: NatsServer, tmp_path: Path
) -> None:
    gateway = GatewayProcess(nats_server.url)
    tree = KubeletTree(harness.base, KubeletCgroupDriver.SYSTEMD, "containerd", tmp_path / "containers")
    try:
        await gateway.ready()
        document = pod_document(
            "batch",
            namespace=NAMESPACE,
            uid="",
            labels={"koordinator.sh/qosClass": "BE"},
            terminationGracePeriodSeconds=1,
            priorityClassName="koord-batch",
            containers=[container("job", image="busybox", resources={"requests": BATCH, "limits": BATCH})],
        )
        async with gateway.session() as session, session.post(PODS, json=document) as answer:
            stored = await answer.json()
            assert answer.status == 201, stored["message"]
        uid = stored["metadata"]["uid"]
        pod = tree.pod(uid, KubeQoS.BEST_EFFORT)
        _, job = tree.container(pod, "job", BURN)
        # The server keeps four messages of usage: the sample's followers must not displace it before it is looked up.
        flags = ("--kubelet-cgroup-root", harness.base, "--container-logs", str(tree.logs), "--report-period", "15")
        harness.start("--pods", "kubelet", *flags)
        await harness.node_slo(
            {"resourceUsedThresholdWithBE": STARVED},
            enable=True,
            cpu_suppress_policy="cfsQuota",
            cpu_suppress_threshold_percent=0,
        )
        await harness.place(stored, uid)
        await harness.running("batch")

        # Others' pods, and more than evictions within budgets, are refused.
        assert "not placed there" in await refused(harness, "other", name="batch", uid=uid)
        assert "within budgets" in await refused(harness, NODE, name="batch", uid=uid, ignoreBudgets=True)
        assert "within budgets" in await refused(harness, NODE, name="batch", uid="")

        async with asyncio.timeout(WAIT_SECONDS), gateway.session() as session:
            while True:
                async with session.get(f"{PODS}/batch") as answer:
                    metadata = (await answer.json())["metadata"]
                if "deletionTimestamp" in metadata:
                    break
                await asyncio.sleep(0.2)
        await harness.wait("the eviction is published", lambda: harness.executions("cpu-evict"))
        assert await harness.wait("the report says so", lambda: harness.runs["batch"].eviction)
        found = await gateway.explained(f"pod/{NAMESPACE}/batch")
        assert "evicted: BECPUEvict: best-effort uses" in str(found)
        assert sentences(found, "cotenant.usage."), "the sample that it was decided from"
        assert tree.alive(), "the executor ends no process of kubelet's"

        # kubelet sees the deletion; the scheduler marks the placement.
        tree.end(job)
        tree.remove(pod)
        await harness.end("batch")
        await harness.wait("it is stopped", lambda: harness.runs["batch"].phase is RunPhase.STOPPED)
        links = (await gateway.explained(f"pod/{NAMESPACE}/batch"))["links"]
        assert [each for each in links if each["ref"].startswith("USAGE:")], "the sample is named though it may be gone"
    finally:
        if harness._process is not None and harness._process.poll() is None:
            harness.kill()
        tree.close()
        gateway.close()



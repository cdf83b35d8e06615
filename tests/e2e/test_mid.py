"""A mid pod as a person runs it: a profile makes it one, its control group has its mid resources, and it is evicted when the
node offers less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cotenant.model.quantities import format_decimal, parse_value
from tests.builders import container, pod_document
from tests.e2e.stack import Stack, wait_for

pytestmark = pytest.mark.timeout(1200)
EVICTION = {
    "enable": True,
    "cpuSuppressPolicy": "cpuset",
    "cpuAllocatableEvictThresholdPercent": 100,
    "cpuAllocatableEvictLowerPercent": 95,
    "allocatableEvictPriorityThreshold": 7999,
}
PROFILE = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "reports"},
    "spec": {"selector": {"matchLabels": {"tier": "report"}}, "qosClass": "BE", "priorityClassName": "koord-mid"},
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    running = Stack("--nodes", "0")
    try:
        running.until_ready()
        yield running
    finally:
        running.close()


def offering(percent: int) -> dict[str, Any]:
    """A configuration in which each node lends a part of its CPUs as mid resources, whatever services use."""
    static = {"midReclaimMode": "static", "midStaticCPUReservedPercent": percent, "midStaticMemoryReservedPercent": 10}
    data = {
        "colocation-config": json.dumps({"enable": True, **static}),
        "resource-threshold-config": json.dumps({"clusterStrategy": EVICTION}),
    }
    metadata = {
        "name": "slo-controller-config",
        "namespace": "koordinator-system",
        "labels": {"koordinator.sh/configmap-type": "slo-controller-config"},
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def report(cpu_milli: int) -> dict[str, Any]:
    """An ordinary pod that asks for cpu and memory."""
    amounts = {"cpu": f"{cpu_milli}m", "memory": "64Mi"}
    return pod_document(
        "report",
        namespace="",
        uid="",
        labels={"tier": "report", "koordinator.sh/eviction-enabled": "true"},
        runtimeClassName="process",
        restartPolicy="Never",
        terminationGracePeriodSeconds=1,
        containers=[container(command=["/bin/sh", "-c", "exec sleep 600"], requests=amounts, limits=amounts)],
    )


def values_of(uid: str, host: str) -> dict[str, str]:
    """The kernel's files of the pod's group, by the names of cgroup v1 or v2."""
    names = ("cpu.shares", "cpu.cfs_quota_us", "memory.limit_in_bytes", "cpu.weight", "cpu.max", "memory.max")
    found = [*Path("/sys/fs/cgroup").glob(f"**/cotenant/{host}/besteffort/pod{uid}")]
    return {name: (group / name).read_text().strip() for group in found for name in names if (group / name).exists()}


def test_a_mid_pod_has_its_mid_resources_and_ends_when_the_node_offers_less(stack: Stack) -> None:
    host = stack.host()
    unchecked = {"scheduling.koordinator.sh/usage-thresholds": json.dumps({"usageThresholds": {"cpu": 0}})}
    stack.patch(f"api/v1/nodes/{host}", {"metadata": {"annotations": unchecked}})
    stack.apply(PROFILE, offering(20))

    def offered() -> int:
        node = stack.get(f"api/v1/nodes/{host}")
        return 0 if node is None else parse_value(node["status"]["allocatable"].get("kubernetes.io/mid-cpu", "0"))

    asked = wait_for("mid resources", offered) * 9 // 10
    stack.apply(report(asked))
    wait_for("the pod to run", lambda: stack.runs("report"))
    pod = stack.pod("report")
    assert pod is not None
    assert pod["spec"]["priorityClassName"] == "koord-mid"
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {
        "kubernetes.io/mid-cpu": format_decimal(asked),
        "kubernetes.io/mid-memory": "64Mi",
    }
    uid = pod["metadata"]["uid"]
    shares, quota, memory = asked * 1024 // 1000, str(asked * 100), str(64 << 20)
    wanted = (
        {"cpu.shares": str(shares), "cpu.cfs_quota_us": quota, "memory.limit_in_bytes": memory},
        {"cpu.weight": str(1 + (shares - 2) * 9999 // 262142), "cpu.max": f"{quota} 100000", "memory.max": memory},
    )
    if any(Path("/sys/fs/cgroup").glob(f"**/cotenant/{host}/besteffort")):  # else the stack works in a sandboxed tree
        wait_for("its values", lambda: values_of(uid, host) in wanted)

    stack.apply(offering(10))

    def evicted() -> bool:
        found = stack.pod("report")
        return found is not None and found["status"].get("reason") == "Evicted"

    wait_for("its eviction", evicted)
    explained = stack.run("explain", "pod", "report")
    assert f"CPUAllocatableEvict: {asked}m of mid-cpu requested" in explained
    assert "by midReclaimMode static" in explained

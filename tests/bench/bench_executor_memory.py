"""Resident memory and CPU of a node's executor with 50 pods, without the pods' own processes, with all sampling on.

A real executor on a real server and real control groups; each pod is one `sleep`. Memory is read after 50 cycles.
Needs root. Run it alone: `python -m tests.bench.bench_executor_memory`.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from tests.bench.own_server import run_as_root
from tests.builders import container, pod_document
from tests.integration.node_executor.executor_harness import Harness

PODS = 50
SETTLE_SECONDS = 30.0
GOAL_MIB = 58
YARN = b'{"name": "yarn", "cgroupPath": {"base": "KubepodsBesteffort", "relativePath": "yarn"}}'
HOST_APPLICATIONS = b'{"hostApplications": [%s]}' % YARN


def sleeping_pod(number: int) -> dict[str, object]:
    """A batch pod that does nothing."""
    batch = {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "32Mi"}
    return pod_document(
        f"pod-{number}",
        uid="",
        labels={"koordinator.sh/qosClass": "BE"},
        runtimeClassName="process",
        restartPolicy="Never",
        containers=[container(command=["/bin/sleep", "600"], requests=batch, limits=batch)],
    )


def resident_mib(pid: int) -> float:
    """What the process holds in memory now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has ended")


def cpu_seconds(pid: int) -> float:
    """CPU time of the process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(url: str) -> None:
    """Place the pods, wait, read."""
    harness = Harness(url)
    await harness.open()
    try:
        harness.start("--report-period", "15")
        everything = {"memory_collect_policy": "usageWithHotPageCache", "spec": msgspec.Raw(HOST_APPLICATIONS)}
        suppressing = {"enable": True, "cpu_suppress_policy": "cfsQuota", "cpu_suppress_threshold_percent": 65}
        await harness.node_slo(**suppressing, **everything)
        for number in range(PODS):
            await harness.place(sleeping_pod(number))

        def all_running() -> bool:
            return len(harness.runs) == PODS and all(run.phase.value == "running" for run in harness.runs.values())

        await harness.wait("all pods run", all_running)
        before = cpu_seconds(harness.pid)
        await asyncio.sleep(SETTLE_SECONDS)
        used = cpu_seconds(harness.pid) - before
        print(f"executor.memory.50-pods {resident_mib(harness.pid):.1f} MiB (goal below {GOAL_MIB})")
        print(f"executor.cpu.50-pods {100 * used / SETTLE_SECONDS:.1f} %-of-one-core")
    finally:
        await harness.close()


if __name__ == "__main__":
    run_as_root("executor.memory.50-pods", measure)

"""Burst, CPU sets, eviction and dry runs on the kernel's own files.

The share pool's threshold is far above what this machine can be loaded with, so that what else runs here moves no quota.
"""

from __future__ import annotations

import json
import os

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant_node_executor.targets.cpulist import format_cpu_list, parse_cpu_list
from cotenant_node_executor.targets.interface import Knob
from tests.integration.node_executor.executor_harness import Harness, pod_manifest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

CPUS = sorted(os.sched_getaffinity(0))
BURN = "while True: pass"
SLEEP = "import time\nwhile True: time.sleep(60)"
LIMIT_US = 5_000
"""So little that a crowded machine gives a burner more, and throttles it."""
BURST = {"policy": "auto", "cfsQuotaBurstPercent": 200, "sharePoolThresholdPercent": 100_000}


def limited(name: str, script: str = BURN) -> dict[str, object]:
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "50m", "memory": "128Mi"}}
    return pod_manifest(
        name, script, labels={"koordinator.sh/qosClass": "LS"}, container={"resources": resources}
    )


async def test_a_throttled_services_quota_grows_to_its_ceiling_and_comes_back_when_bursting_is_switched_off(
    harness: Harness,
) -> None:
    harness.start()
    await harness.node_slo({"cpuBurstStrategy": BURST})
    uid = await harness.place(limited("service"))
    await harness.running("service")
    pod, main = f"burstable/pod{uid}", f"burstable/pod{uid}/main"
    await harness.wait("the quota is at its ceiling", lambda: harness.number(main, Knob.CPU_QUOTA) == 2 * LIMIT_US)
    assert harness.number(pod, Knob.CPU_QUOTA) == 2 * LIMIT_US
    await harness.wait("the burst follows the quota", lambda: harness.number(main, Knob.CPU_BURST) == 2 * LIMIT_US)
    changes = [change for execution in harness.executions("cpu-burst") for change in execution.changes]
    steps = {int(change.new) for change in changes if "quota" in change.target}
    assert steps <= {6_000, 7_200, 8_640, 2 * LIMIT_US}
    assert not harness.executions("refusals")

    await harness.node_slo({"cpuBurstStrategy": {**BURST, "policy": "none"}})
    await harness.wait("the limit is back", lambda: harness.number(main, Knob.CPU_QUOTA) == LIMIT_US)
    await harness.wait("the burst is gone", lambda: harness.number(main, Knob.CPU_BURST) == 0)
    assert harness.number(pod, Knob.CPU_QUOTA) == LIMIT_US
    assert harness.number(pod, Knob.CPU_BURST) == 0
    assert not harness.executions("refusals")


@pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs")
async def test_a_bound_pod_has_its_cpus_for_itself_until_it_has_gone_also_across_a_kill_of_the_executor(
    harness: Harness,
) -> None:
    harness.start()
    await harness.node_slo(enable=False)
    service = await harness.place(limited("service", SLEEP))
    await harness.running("service")
    web = f"burstable/pod{service}/main"
    rest = format_cpu_list(CPUS[1:])

    def cpus(group: str) -> str:
        return format_cpu_list(parse_cpu_list(harness.value(group, Knob.CPUSET_CPUS)))

    bound = pod_manifest(
        "bound",
        SLEEP,
        labels={"koordinator.sh/qosClass": "LSR"},
        annotations={"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": str(CPUS[0])})},
        terminationGracePeriodSeconds=1,
        container={
            "resources": {"requests": {"cpu": "1", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
        },
    )
    uid = await harness.place(bound)
    await harness.running("bound")
    own = f"pod{uid}/main"
    await harness.wait("it has its CPU", lambda: cpus(own) == str(CPUS[0]))
    await harness.wait("the service has the others", lambda: cpus(web) == rest)
    assert harness.number(own, Knob.CPU_QUOTA) == -1

    harness.kill()
    harness.start()
    await harness.end("bound", grace=1)
    await harness.ended("bound")
    await harness.forget("bound")
    await harness.wait("the service has all CPUs again", lambda: cpus(web) == format_cpu_list(CPUS))
    assert not harness.executions("refusals")


async def test_starved_batch_work_is_evicted_with_its_figures_after_the_cool_down(harness: Harness) -> None:
    amounts = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "64Mi"}
    harness.start()
    section = {
        "enable": True,
        "cpuEvictBESatisfactionLowerPercent": 30,
        "cpuEvictBESatisfactionUpperPercent": 40,
    }
    await harness.node_slo(
        {"resourceUsedThresholdWithBE": section},
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=0,
    )
    await harness.place(
        pod_manifest(
            "batch",
            BURN,
            labels={"koordinator.sh/qosClass": "BE"},
            terminationGracePeriodSeconds=1,
            container={"resources": {"requests": amounts, "limits": amounts}},
        )
    )
    await harness.running("batch")
    ended = await harness.ended("batch")
    assert (ended.phase, ended.reason) == (RunPhase.FAILED, "Evicted")
    assert ended.message.startswith("BECPUEvict: best-effort uses ")
    (execution,) = await harness.wait("the report of the eviction", lambda: harness.executions("cpu-evict"))
    (causes,) = harness.causes("cpu-evict")
    assert [cause.partition(":")[0] for cause in causes] == ["LOG", "USAGE", "LOG"]
    assert execution.figures["best-effort.request.cpu-milli"] == 4000
    assert execution.figures["BECPUEvict.release.cpu-milli"] > 0


async def test_a_dry_run_writes_nothing_and_says_what_it_would_write(harness: Harness) -> None:
    harness.start()
    await harness.node_slo(
        {"resourceUsedThresholdWithBE": {"enable": True, "dryRun": True}},
        enable=True,
        cpu_suppress_policy="cfsQuota",
        cpu_suppress_threshold_percent=0,
    )
    await harness.wait("it is reported", lambda: harness.executions("suppress"))
    execution = harness.executions("suppress")[0]
    assert execution.summary.startswith("dry run of suppress, not done: besteffort/cpu.cfs_quota_us: ")
    assert harness.number("besteffort", Knob.CPU_QUOTA) == -1
    await harness.node_slo(enable=True, cpu_suppress_policy="cfsQuota", cpu_suppress_threshold_percent=0)
    await harness.wait("now it is done", lambda: harness.number("besteffort", Knob.CPU_QUOTA) == 2000)

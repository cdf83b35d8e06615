"""Real processes that are resized in place: some go on with other limits, some are restarted for it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from cotenant.events.node.runs import ContainerRun
from cotenant.events.resizes import ResizeState, ResizeStatus
from cotenant_node_executor.targets.interface import Knob
from tests.integration.node_executor.executor_harness import Harness, alive, pod_manifest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a real control group subtree")

SLEEP = "import time; time.sleep(600)"
POLICY = [
    {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    {"resourceName": "memory", "restartPolicy": "RestartContainer"},
]


def sized(cpu: str, memory: str) -> dict[str, Any]:
    """A pod that is restarted when its memory changes, and not when its CPU does."""
    wanted = {"cpu": cpu, "memory": memory}
    container = {"resources": {"requests": wanted, "limits": wanted}, "resizePolicy": POLICY}
    return pod_manifest("sized", SLEEP, restartPolicy="Always", terminationGracePeriodSeconds=5, container=container)


async def test_a_process_goes_on_where_its_policy_says_so_and_is_restarted_where_it_does_not(harness: Harness) -> None:
    harness.start()
    uid = await harness.place(sized("100m", "64Mi"))
    first = await harness.running("sized")
    main = f"pod{uid}/main"
    await harness.wait("its quota is in force", lambda: harness.value(main, Knob.CPU_QUOTA) == "10000")

    def done(resources: dict[str, str]) -> ResizeStatus | None:
        run = harness.runs.get("sized")
        resize = run.resize if run is not None else None
        finished = resize is not None and resize.state is ResizeState.DONE and resize.admitted[0].limits == resources
        return resize if finished else None

    await harness.resize(sized("200m", "64Mi"))
    await harness.wait("its quota is changed", lambda: done({"cpu": "200m", "memory": "64Mi"}))
    assert harness.value(main, Knob.CPU_QUOTA) == "20000"
    went_on = harness.container("sized")
    assert went_on is not None
    assert (went_on.pid, went_on.restarts) == (first.pid, 0)

    await harness.resize(sized("200m", "128Mi"))
    await harness.wait("its memory is changed", lambda: done({"cpu": "200m", "memory": "128Mi"}))

    def restarted() -> ContainerRun | None:
        run = harness.container("sized")
        return run if run is not None and run.state == "running" and run.restarts == 1 else None

    second = await harness.wait("it runs again", restarted)
    assert second.pid != first.pid
    assert not alive(first.pid)
    assert alive(second.pid)
    states = [report.resize for report in harness.reports("sized") if report.resize is not None]
    assert [resize.restarts for resize in states if resize.restarts] != [], "it was reported before the process ended"
    waited = [run.backoff_seconds for report in harness.reports("sized") for run in report.containers]
    assert max(waited) == 0, "a restart that was asked for does not wait"

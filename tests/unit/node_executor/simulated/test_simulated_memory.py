"""Out of memory on a simulated node: which pods the kernel kills, and their restart by policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.simulation import START, World
from cotenant_node_executor.runtime.oom_score import oom_score_adj
from cotenant_node_executor.simulated.machine import NodeSize, simulated_node
from cotenant_node_executor.simulated.memory import Holding, ended
from cotenant_node_executor.simulated.participant import NodeParticipant
from tests.builders import pod_document
from tests.unit.node_executor.builders_node_executor import batch, pod, service
from tests.unit.node_executor.simulated.test_simulated_node import NODE, place, run_of

GIB = 1 << 30
MACHINE = 16 * GIB


def small_node() -> World:
    """A node of 8 GiB, of which the system takes 2 %."""
    world = World(keep_history=True)
    world.add(NodeParticipant(simulated_node(NODE, NodeSize(4_000, 8 * GIB))))
    return world


def holding(
    name: str, memory: str, *, request: str = "", limit: str = "", policy: str = "Always", best_effort: bool = False
) -> dict[str, Any]:
    """A pod that holds so much memory: a quantity, or a range with a period."""
    resource = "kubernetes.io/batch-memory" if best_effort else "memory"
    return pod_document(
        name,
        labels={"koordinator.sh/qosClass": "BE" if best_effort else "LS"},
        annotations={"cotenant.io/simulated-usage": f"memory={memory}"},
        restartPolicy=policy,
        requests={resource: request} if request else {},
        limits={resource: limit} if limit else {},
    )


def reports(world: World, name: str) -> list[RunStatus]:
    """All reports of a pod, in order."""
    assert world.history is not None
    return [event.data for event in world.history if isinstance(event.data, RunStatus) and event.data.name == name]


def test_a_leaking_pod_is_killed_at_its_limit_and_restarts_with_a_growing_back_off() -> None:
    world = small_node()
    place(world, holding("leak", "64Mi..1024Mi,period=40s,from=start", request="128Mi", limit="256Mi"))
    world.run_until(START + timedelta(seconds=70))
    reported = [entry.containers[0] for entry in reports(world, "leak")]
    killed = {entry.restarts: entry for entry in reported if entry.exit_code is not None}
    assert {(entry.exit_code, entry.state) for entry in killed.values()} == {(137, "waiting")}
    assert (killed[0].reason, killed[0].backoff_seconds, killed[1].reason, killed[1].backoff_seconds) == (
        "OOMKilled",
        0,
        "CrashLoopBackOff",
        10,
    )
    # From 64 to 256 MiB the leak takes 4 s, each time again.
    lasted = [entry.finished_at - entry.started_at for entry in killed.values() if entry.finished_at and entry.started_at]
    assert all(timedelta(seconds=4) <= each <= timedelta(seconds=6) for each in lasted)
    assert len(lasted) >= 3


def test_a_batch_pod_above_its_batch_memory_fails_with_a_reason() -> None:
    world = small_node()
    place(world, holding("job", "300Mi", request="256Mi", limit="256Mi", policy="Never", best_effort=True))
    place(world, holding("modest", "256Mi", request="256Mi", limit="256Mi", policy="Never", best_effort=True))
    world.run_until(START + timedelta(seconds=5))
    run = run_of(world, "job")
    assert (run.phase, run.reason, run.containers[0].exit_code) == (RunPhase.FAILED, "OOMKilled", 137)
    assert run_of(world, "modest").phase is RunPhase.RUNNING


def test_a_machine_without_memory_ends_best_effort_work_before_a_service_within_its_request() -> None:
    world = small_node()
    place(world, holding("service", "6Gi", request="6Gi"))
    place(world, holding("job", "1Gi", request="1Gi", limit="2Gi", policy="Never", best_effort=True))
    world.run_until(START + timedelta(seconds=5))
    assert run_of(world, "job").phase is RunPhase.RUNNING
    place(world, holding("bloat", "1Gi", request="1Gi"))
    world.run_until(START + timedelta(seconds=10))
    assert run_of(world, "job").reason == "OOMKilled"
    assert [run_of(world, name).containers[0].restarts for name in ("service", "bloat")] == [0, 0]


def test_scores_are_kubelets() -> None:
    both = {"cpu": "1", "memory": "4Gi"}
    assert oom_score_adj(pod("guaranteed", requests=both, limits=both), 4 * GIB, MACHINE) == -997
    assert oom_score_adj(batch("batch-only", 1000), 0, MACHINE) == 1000
    assert oom_score_adj(service("web"), 4 * GIB, MACHINE) == 750
    assert oom_score_adj(service("tiny"), 1, MACHINE) == 999
    assert oom_score_adj(service("huge"), MACHINE, MACHINE) == 3


@given(
    pods=st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.tuples(st.integers(0, 8 * GIB), st.one_of(st.just(-1), st.integers(1, 8 * GIB)), st.integers(-997, 1000)),
    ),
    free=st.integers(0, 16 * GIB),
)
def test_the_remaining_pods_fit_and_no_pod_is_killed_needlessly(pods: dict[str, tuple[int, int, int]], free: int) -> None:
    held = {uid: Holding(*each) for uid, each in pods.items()}
    gone = dict(ended(held, free, MACHINE))
    left = sum(each.memory_bytes for uid, each in held.items() if uid not in gone)
    assert left <= free
    for uid, each in held.items():
        assert (each.limit_bytes >= 0 and each.memory_bytes > each.limit_bytes) == (gone.get(uid) is False)
    for_want = [uid for uid, machine in gone.items() if machine]
    assert not for_want or left + held[for_want[-1]].memory_bytes > free

"""Pods that name this node themselves run only where there is room, and what is refused leaves the room to others."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.api.objects.pod import Pod
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus, RunPhase, RunStatus
from cotenant.events.placements import PlacementPhase
from cotenant.model.subjects import executor_subject, resources_subject
from cotenant_node_executor.core.admission import refusal, take_room
from cotenant_node_executor.runtime.interface import Start
from tests.unit.node_executor.builders_node_executor import NODE, Bench, pod

OFFERED = {"cpu": 4000, "memory": 8 << 30, "pods": 3}
CPU_REFUSED = "Pod was rejected: Node didn't have enough resource: cpu, requested: 4000, used: 3900, capacity: 4000"


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot="boot", allocatable=OFFERED))
    return bench


def named(name: str, **spec: Any) -> Pod:
    """A pod that names this node."""
    return pod(name, nodeName=NODE, **spec)


def started(bench: Bench) -> list[str]:
    """The pods whose containers are ordered to start."""
    return [order.pod.uid for order in bench.core.plan(bench.now).orders if isinstance(order, Start)]


def reports(bench: Bench) -> dict[str, tuple[RunPhase, str, str]]:
    """What is reported now, by pod."""
    return {
        event.data.name: (event.data.phase, event.data.reason, event.data.message)
        for event in bench.report()
        if isinstance(event.data, RunStatus)
    }


def run(bench: Bench, entry: Pod) -> None:
    """Let a placed pod run, and report it."""
    bench.saw(entry, pid=1, started_at=bench.now)
    bench.look()
    bench.core.plan(bench.now)
    bench.report()


def test_a_pod_without_room_fails_with_kubelets_reason_and_never_runs(bench: Bench) -> None:
    bench.place(first := pod("first"), requests={"cpu": 3900})
    run(bench, first)
    bench.place(named("large"), requests={"cpu": 4000})
    assert started(bench.look()) == []
    assert reports(bench) == {"large": (RunPhase.FAILED, "OutOfcpu", CPU_REFUSED)}
    assert started(bench.look()) == []
    assert bench.report() == []


def test_it_stays_failed_when_there_is_room_its_object_changes_or_the_executor_starts_again(bench: Bench) -> None:
    bench.place(first := pod("first"), requests={"cpu": 3900})
    run(bench, first)
    bench.place(large := named("large"), requests={"cpu": 4000})
    bench.look()
    assert list(reports(bench)) == ["large"]
    bench.place(first, PlacementPhase.GONE)
    bench.states.clear()
    bench.place(large, requests={"cpu": 4000}, object_sequence=9)
    assert started(bench.look()) == []
    bench.report()
    again = Bench()
    for event in sorted(bench.last.values(), key=lambda event: event.sequence):
        again.core.apply(event)
    assert started(again.look()) == []
    assert again.report() == []


def test_what_is_refused_leaves_its_room_to_those_behind_it(bench: Bench) -> None:
    bench.place(first := pod("first"), requests={"cpu": 1000})
    run(bench, first)
    for name, cpu in (("large", 3500), ("small", 3000), ("late", 500)):
        bench.place(named(name), requests={"cpu": cpu})
    assert started(bench.look()) == ["uid-small"]
    assert [name for name, (phase, _, _) in reports(bench).items() if phase is RunPhase.FAILED] == ["large", "late"]


def test_pods_are_taken_in_the_order_in_which_they_came_whatever_their_names(bench: Bench) -> None:
    bench.place(named("z"), requests={"cpu": 3000})
    bench.place(named("a"), requests={"cpu": 3000})
    assert started(bench.look()) == ["uid-z"]


def test_what_the_scheduler_chose_the_node_for_is_not_asked_about(bench: Bench) -> None:
    bench.place(named("named"), requests={"cpu": 3000})
    bench.place(pod("chosen"), requests={"cpu": 3000})
    assert sorted(started(bench.look())) == ["uid-chosen", "uid-named"]


def test_what_runs_already_is_not_asked_about_after_a_restart(bench: Bench) -> None:
    bench.place(running := named("running"), requests={"cpu": 3000})
    bench.saw(running, pid=1, started_at=bench.now)
    bench.store(executor_subject(NODE), ExecutorStatus(node=NODE, boot="boot", allocatable={"cpu": 1000}))
    bench.look()
    assert reports(bench)["running"][0] is RunPhase.RUNNING


def test_ended_pods_take_no_room(bench: Bench) -> None:
    bench.place(done := pod("done", restartPolicy="Never"), requests={"cpu": 4000})
    bench.saw(done, exit_code=0, started_at=bench.now, finished_at=bench.now)
    bench.look()
    assert reports(bench)["done"][0] is RunPhase.SUCCEEDED
    bench.place(named("next"), requests={"cpu": 4000})
    assert started(bench.look()) == ["uid-next"]


def test_a_pod_that_is_deleted_before_it_was_asked_about_is_stopped(bench: Bench) -> None:
    bench.place(large := named("large"), requests={"cpu": 9000})
    bench.place(large, PlacementPhase.TERMINATING, requests={"cpu": 9000})
    bench.look()
    assert reports(bench)["large"][0] is RunPhase.STOPPED


def test_batch_resources_are_those_of_the_calculator_and_unknown_ones_are_left_out(bench: Bench) -> None:
    bench.place(named("early"), requests={"kubernetes.io/batch-cpu": 9000, "example.com/gpu": 4})
    assert started(bench.look()) == ["uid-early"]
    bench.store(resources_subject(NODE), NodeResources(node=NODE, batch_cpu_milli=10_000, batch_memory_bytes=1 << 30))
    bench.place(named("late"), requests={"kubernetes.io/batch-cpu": 9000})
    assert started(bench.look()) == ["uid-early"]
    assert reports(bench)["late"][1] == "OutOfkubernetes.io/batch-cpu"


@pytest.mark.parametrize(
    ("requests", "before", "reason"),
    [
        ({"cpu": 4000}, [], ""),
        ({"cpu": 4001}, [], "OutOfcpu"),
        ({"memory": (8 << 30) + 1, "cpu": 4001}, [], "OutOfcpu"),
        ({"memory": 1 << 30}, [{"memory": 8 << 30}], "OutOfmemory"),
        ({}, [{"cpu": 5000}], ""),
        ({}, [{}, {}, {}], "OutOfpods"),
        ({"cpu": 9 * 10**18}, [{"cpu": 9 * 10**18}], "OutOfcpu"),
    ],
)
def test_the_first_resource_that_does_not_fit_is_the_reason(
    requests: dict[str, int], before: list[dict[str, int]], reason: str
) -> None:
    used: dict[str, int] = {}
    for other in before:
        take_room(used, other)
    found = refusal(requests, used, OFFERED)
    assert (found.reason if found is not None else "") == reason


def test_a_pod_has_room_in_what_the_calculator_amplifies(bench: Bench) -> None:
    bench.store(resources_subject(NODE), NodeResources(node=NODE, withdrawn=True, amplification={"cpu": 1.5}))
    bench.place(first := pod("first"), requests={"cpu": 3900})
    run(bench, first)
    bench.place(named("large"), requests={"cpu": 2100})
    assert started(bench.look()) == ["uid-large"]

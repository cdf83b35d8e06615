"""Which finished pods are deleted without anybody asking for it, and what ends that outlives its pod."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.node.runs import ExecutorStatus, RunPhase
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.events.placements import PlacementPhase
from cotenant.explain.causes import CauseWalk, explain_pod
from cotenant.explain.sentences import sentence
from cotenant.log.plans import Plan
from cotenant.model.subjects import eviction_subject, executor_subject, node_subject, pod_subject, run_subject
from cotenant_gateway.planning.leftovers import KEPT, leftovers
from cotenant_gateway.planning.pod_collection import collected_pods
from cotenant_gateway.statuses import ApiError
from tests.builders import node_document, pod_document, stored
from tests.unit.gateway.builders_gateway import World, manifest

TTL = "cotenant.io/ttl-seconds-after-finished"


def world_with_node() -> World:
    world = World()
    world.put(node_subject("n1"), stored(node_document("n1")))
    world.put(executor_subject("n1"), ExecutorStatus(node="n1"))
    return world


def finished(world: World, name: str, phase: RunPhase = RunPhase.SUCCEEDED, ttl: str | None = None) -> None:
    """A pod that ran on n1 and ended now."""
    document: Any = manifest(name)
    document["metadata"]["annotations"] = {} if ttl is None else {TTL: ttl}
    world.create("pods", document)
    world.place(name)
    world.run(name, phase)


def collected(world: World, threshold: int = 0) -> dict[str, str]:
    """The names of the pods that are deleted now, with the reason; they are."""
    found = {}
    for plan in list(collected_pods(world.core, world.now, threshold)):
        world.store(plan)
        payload = plan.writes[0].payload
        found[plan.writes[0].subject.rpartition(".")[2]] = payload.reason if isinstance(payload, ObjectDeleted) else "marked"
    return found


def end_node(world: World) -> None:
    world.put(executor_subject("n1"), ExecutorStatus(node="n1"), tombstone=True)
    world.put(node_subject("n1"), ObjectDeleted(), tombstone=True)


def test_a_pod_is_deleted_so_many_seconds_after_it_finished() -> None:
    world = world_with_node()
    finished(world, "job", ttl="60")
    finished(world, "kept")
    world.pass_seconds(59)
    assert collected(world) == {}
    world.pass_seconds(1)
    assert collected(world) == {"job": "it finished at 2026-01-02T03:04:05Z, cotenant.io/ttl-seconds-after-finished: 60"}
    assert collected(world) == {}


def test_a_time_to_live_of_zero_deletes_at_once_and_never_what_still_runs() -> None:
    world = world_with_node()
    finished(world, "job", ttl="0")
    finished(world, "service", RunPhase.RUNNING, ttl="0")
    finished(world, "moved", RunPhase.STOPPED, ttl="0")
    assert list(collected(world)) == ["job"]


@pytest.mark.parametrize("text", ["-1", "1.5", "1h", "", " 1", "2147483648", "٣"])
def test_a_time_to_live_that_is_no_number_of_seconds_is_refused(text: str) -> None:
    world = world_with_node()
    world.create("pods", pod_document("like", namespace="", uid="", image="app"))
    with pytest.raises(ApiError, match=r"metadata.annotations\[cotenant.io/ttl-seconds-after-finished\]: Invalid value"):
        world.create("pods", pod_document("job", namespace="", uid="", image="app", annotations={TTL: text}))


def test_beyond_the_threshold_the_oldest_finished_pods_go() -> None:
    world = world_with_node()
    for name in ("first", "second", "third", "fourth"):
        world.pass_seconds(10)
        finished(world, name)
    world.run("first", RunPhase.RUNNING)
    for phase in (RunPhase.RUNNING, RunPhase.SUCCEEDED):
        world.run("second", phase)
    assert collected(world, 3) == {}
    why = "3 pods have finished, 1 are kept: this is one of the oldest"
    assert collected(world, 1) == {"second": why, "third": why}
    assert collected(world, 0) == {}


def test_a_finished_pod_goes_with_its_node_and_one_that_has_not_finished_stays() -> None:
    world = world_with_node()
    finished(world, "job", RunPhase.FAILED)
    finished(world, "service", RunPhase.RUNNING)
    assert collected(world) == {}
    end_node(world)
    assert collected(world) == {"job": "it has finished, and its node n1 was deleted"}


def test_a_finished_pod_stays_where_its_executor_is_about_to_register_the_node_again() -> None:
    world = world_with_node()
    finished(world, "job")
    end_node(world)
    world.put(executor_subject("n1"), ExecutorStatus(node="n1", boot="2"))
    assert collected(world) == {}


def test_a_finalizer_keeps_a_collected_pod_and_it_is_marked_once() -> None:
    world = world_with_node()
    document: Any = manifest("job")
    document["metadata"] |= {"annotations": {TTL: "0"}, "finalizers": ["example.com/keep"]}
    world.create("pods", document)
    world.place("job")
    world.run("job", RunPhase.SUCCEEDED)
    [plan] = collected_pods(world.core, world.now)
    assert isinstance(plan.writes[0].payload, ObjectStored)
    assert "ttl-seconds-after-finished" in plan.writes[0].payload.admission[0]
    world.store(plan)
    assert collected(world) == {}


def test_the_tombstone_of_a_collected_pod_says_why_and_names_the_report() -> None:
    world = world_with_node()
    finished(world, "job", ttl="0")
    report = world.events[-1]
    [plan] = collected_pods(world.core, world.now)
    write = plan.writes[0]
    assert report.ref in write.causes
    event = write.event(world.now, "id", "source", "gateway")
    said = sentence(event)
    assert said.startswith("pods default/job deleted by gateway: it finished at ")
    summary = explain_pod("default", "job", [event], CauseWalk([])).summary
    assert summary.startswith("has ended, deleted by gateway: it finished at ")


# -- what outlives its pod ---------------------------------------------------------------------------------------------


def ended(plans: list[Plan]) -> list[str]:
    assert all(write.tombstone for plan in plans for write in plan.writes)
    return [write.subject for plan in plans for write in plan.writes]


def answered(world: World, uid: str) -> Event:
    data = EvictionOutcome(namespace="default", name="web", uid=uid, allowed=False, reason="DisruptionBudget")
    return world.put(eviction_subject("default", "web"), data)


def test_the_answer_to_an_eviction_ends_after_the_pod_is_gone_and_its_reader_had_time() -> None:
    world = world_with_node()
    world.create("pods", manifest("web"), uid="one")
    answered(world, "one")
    world.now += KEPT
    assert list(leftovers(world.core, world.now)) == []
    world.put(pod_subject("default", "web"), ObjectDeleted(uid="one"), tombstone=True)
    world.create("pods", manifest("web"), uid="two")
    plans = list(leftovers(world.core, world.now))
    assert ended(plans) == [eviction_subject("default", "web")]
    world.store(plans[0])
    assert list(leftovers(world.core, world.now)) == []


def test_an_answer_about_a_pod_that_was_gone_already_is_kept_for_whoever_asked() -> None:
    world = world_with_node()
    answered(world, "gone")
    assert list(leftovers(world.core, world.now)) == []
    world.now += KEPT
    assert len(list(leftovers(world.core, world.now))) == 1


def test_the_reports_of_a_node_that_is_gone_end_once_nothing_is_placed_there() -> None:
    world = world_with_node()
    finished(world, "web", RunPhase.RUNNING)
    end_node(world)
    assert list(leftovers(world.core, world.now)) == []
    world.place("web", phase=PlacementPhase.GONE)
    plans = list(leftovers(world.core, world.now))
    assert ended(plans) == [run_subject("n1", "default", "web")]
    world.store(plans[0])
    assert list(leftovers(world.core, world.now)) == []
    assert not world.core.pod_ends.deserted


def test_the_report_of_a_finished_pod_stays_as_long_as_the_pod() -> None:
    world = world_with_node()
    finished(world, "job")
    end_node(world)
    world.place("job", phase=PlacementPhase.GONE)
    assert list(leftovers(world.core, world.now)) == []
    world.put(pod_subject("default", "job"), ObjectDeleted(), tombstone=True)
    assert ended(list(leftovers(world.core, world.now))) == [run_subject("n1", "default", "job")]


def test_reports_stay_where_the_node_is_there_whatever_order_a_load_brings_them_in() -> None:
    world = World()
    world.create("pods", manifest("web"), uid="u")
    world.run("web")
    world.put(pod_subject("default", "web"), ObjectDeleted(), tombstone=True)
    world.put(node_subject("n1"), stored(node_document("n1")))
    assert list(leftovers(world.core, world.now)) == []

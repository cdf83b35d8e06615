"""What ends at about the same time is ended together; run reports, which nobody waits for, more of them at a time."""

from __future__ import annotations

from datetime import timedelta

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import PlacementPhase
from cotenant.kinds.pods import PODS
from cotenant.log.plans import Plan
from cotenant.model.subjects import node_subject, pod_subject, run_subject
from cotenant_gateway.loop.duties import GATHERED_ENDINGS, GATHERED_RUNS, MANY_RUNS, Cadence, Duties
from cotenant_gateway.planning.endings import deletion
from tests.builders import node_document, stored
from tests.unit.gateway.builders_gateway import World, manifest


def world_with_node() -> World:
    world = World()
    world.put(node_subject("n1"), stored(node_document("n1")))
    return world


def run_to_its_end(world: World, name: str, phase: RunPhase = RunPhase.STOPPED) -> None:
    """A pod ran on n1, is being deleted, and its placement has just ended. That it was stopped is reported as by an earlier
    version."""
    world.create("pods", manifest(name))
    world.place(name)
    world.run(name, RunPhase.RUNNING)
    snapshot = world.core.get(PODS, "default", name)
    assert snapshot is not None
    world.store(deletion(snapshot, world.now, None))
    world.run(name, phase, as_tombstone=False)
    world.place(name, phase=PlacementPhase.GONE)


def duties_of(world: World) -> Duties:
    return Duties(lambda: world.core, lambda: "uid", Cadence(None))


def due(world: World, duties: Duties) -> list[str]:
    """The subjects that are ended now; they are."""
    plans: list[Plan] = [plan for yielded in duties.due(world.now) for plan in yielded]
    for plan in plans:
        assert all(write.tombstone for write in plan.writes)
        world.store(plan)
    return [write.subject for plan in plans for write in plan.writes]


def both(name: str) -> list[str]:
    return [pod_subject("default", name), run_subject("n1", "default", name)]


def test_the_report_of_a_pod_ends_with_its_object() -> None:
    world = world_with_node()
    duties = duties_of(world)
    run_to_its_end(world, "a")
    assert due(world, duties) == both("a")
    assert due(world, duties) == []


def test_of_a_pod_that_was_stopped_only_the_object_is_left_to_end() -> None:
    world = world_with_node()
    duties = duties_of(world)
    world.create("pods", manifest("a"))
    world.place("a")
    world.run("a", RunPhase.RUNNING)
    snapshot = world.core.get(PODS, "default", "a")
    assert snapshot is not None
    world.store(deletion(snapshot, world.now, None))
    world.run("a", RunPhase.STOPPED)
    assert due(world, duties) == []
    world.place("a", phase=PlacementPhase.GONE)
    assert due(world, duties) == [pod_subject("default", "a")]
    assert duties.wait(world.now) is None


def test_what_ends_within_a_quarter_of_a_second_is_ended_together() -> None:
    world = world_with_node()
    duties = duties_of(world)
    run_to_its_end(world, "a")
    assert due(world, duties) == both("a"), "the first one at once"
    world.now += timedelta(milliseconds=50)
    run_to_its_end(world, "b")
    assert due(world, duties) == []
    world.now += timedelta(milliseconds=100)
    run_to_its_end(world, "c")
    assert due(world, duties) == []
    assert duties.wait(world.now) == timedelta(milliseconds=100)
    world.now += timedelta(milliseconds=100)
    assert due(world, duties) == [pod_subject("default", "b"), pod_subject("default", "c")]
    assert duties.wait(world.now) == timedelta(milliseconds=750)
    world.now += timedelta(milliseconds=300)
    run_to_its_end(world, "d")
    assert due(world, duties) == [pod_subject("default", "d")]
    world.now += timedelta(milliseconds=450)
    assert due(world, duties) == [run_subject("n1", "default", name) for name in "bcd"]
    assert duties.wait(world.now) is None


def test_many_reports_end_as_soon_as_their_objects() -> None:
    world = world_with_node()
    duties = duties_of(world)
    run_to_its_end(world, "a")
    assert due(world, duties) == both("a")
    names = [f"p{number:03}" for number in range(MANY_RUNS)]
    for name in names:
        run_to_its_end(world, name)
    assert due(world, duties) == []
    assert duties.wait(world.now) == GATHERED_ENDINGS
    world.now += GATHERED_ENDINGS
    assert sorted(due(world, duties)) == sorted(subject for name in names for subject in both(name))
    assert duties.wait(world.now) is None


def test_a_look_that_ends_nothing_delays_nothing() -> None:
    world = world_with_node()
    duties = duties_of(world)
    world.create("pods", manifest("a"))
    world.place("a")
    snapshot = world.core.get(PODS, "default", "a")
    assert snapshot is not None
    world.store(deletion(snapshot, world.now, None))
    assert due(world, duties) == []
    world.now += timedelta(milliseconds=10)
    world.place("a", phase=PlacementPhase.GONE)
    assert due(world, duties) == [pod_subject("default", "a")]


def test_the_report_of_a_finished_pod_stays_as_long_as_its_object() -> None:
    world = world_with_node()
    duties = duties_of(world)
    run_to_its_end(world, "job", RunPhase.SUCCEEDED)
    assert due(world, duties) == [pod_subject("default", "job")]
    world.now += GATHERED_RUNS
    assert due(world, duties) == [run_subject("n1", "default", "job")]


def test_the_report_of_a_pod_that_was_placed_there_again_stays() -> None:
    world = world_with_node()
    duties = duties_of(world)
    world.create("pods", manifest("a"))
    world.place("a")
    world.run("a", RunPhase.RUNNING)
    world.place("a", phase=PlacementPhase.GONE)
    world.place("a")
    assert due(world, duties) == []


def test_a_report_whose_object_was_removed_at_once_ends_with_its_placement() -> None:
    world = world_with_node()
    duties = duties_of(world)
    world.create("pods", manifest("a"))
    world.place("a")
    uid = world.uid_of("a")
    world.run("a", RunPhase.RUNNING)
    snapshot = world.core.get(PODS, "default", "a")
    assert snapshot is not None
    world.store(deletion(snapshot, world.now, 0))
    assert due(world, duties) == []
    world.place("a", phase=PlacementPhase.GONE, uid=uid)
    assert due(world, duties) == [run_subject("n1", "default", "a")]

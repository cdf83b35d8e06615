"""How placements end, are told again, and what waits for their end."""

from __future__ import annotations

import pytest

from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.runs import RunPhase
from tests.unit.scheduler.builders_scheduler import Story, node, pod


def placed_story(**spec: object) -> Story:
    """A pod `web` that runs on node `a`, which has an executor."""
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.executor("a")
    story.pods(pod("web", **spec))  # type: ignore[arg-type]
    story.settle()
    story.run("a", "web", RunPhase.RUNNING)
    assert story.settle() == []
    return story


def phase(story: Story) -> PlacementPhase:
    data = story.placement_event("a", "web").data
    assert isinstance(data, Placement)
    return data.phase


def test_a_deleted_pod_is_terminating_until_its_executor_reports_the_end() -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    assert b"deletionTimestamp" in bytes(story.placement("web").pod)  # type: ignore[union-attr]
    story.later(3600)
    assert story.settle() == []
    run = story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    event = story.placement_event("a", "web")
    assert event.tombstone
    assert event.ttl_seconds > 0
    assert run.ref in event.causes


def test_a_pod_without_object_is_terminating_too() -> None:
    story = placed_story()
    story.pod_deleted("web")
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING


def test_the_room_of_a_terminating_pod_is_not_given_away() -> None:
    story = placed_story()
    story.pod(pod("web", deleting=True))
    story.pods(pod("next"))
    story.settle()
    assert story.node_of("next") is None
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    assert story.node_of("next") == "a"


def test_without_an_executor_nobody_runs_the_pod_so_it_is_gone_at_once() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("web"))
    story.settle()
    story.pod(pod("web", deleting=True))
    story.settle()
    assert story.placement("web") is None


def test_a_pod_that_was_never_reported_is_gone_after_its_grace_and_a_minute() -> None:
    story = Story()
    story.nodes(node("a"))
    story.executor("a")
    story.pods(pod("web", terminationGracePeriodSeconds=10))
    story.settle()
    story.pod(pod("web", deleting=True, terminationGracePeriodSeconds=10))
    story.settle()
    story.later(69)
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.later(1)
    story.settle()
    assert story.placement("web") is None


def test_a_pod_whose_run_ended_is_gone_as_soon_as_it_is_deleted() -> None:
    story = placed_story()
    story.run("a", "web", RunPhase.FAILED)
    assert story.settle() == []
    story.pod(pod("web", deleting=True))
    assert [event.tombstone for event in story.settle()] == [True]


def test_a_new_pod_of_the_same_name_waits_for_its_predecessors_end() -> None:
    story = placed_story()
    story.nodes(node("b"))
    story.pod_deleted("web")
    story.pod(pod("web", uid="second"))
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    waiting = story.waiting("web")
    assert waiting is not None
    assert waiting.reasons[0].code == "predecessor"
    # A report about the first pod is none about the second.
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    placement = story.placement("web")
    assert placement is not None
    assert (placement.uid, placement.node) == ("second", "b")
    assert story.waiting("web") is None


def test_a_changed_object_is_told_to_the_node_again() -> None:
    story = placed_story()
    before = story.placement("web")
    changed = story.pod(pod("web", labels={"version": "2"}))
    story.settle()
    after = story.placement("web")
    assert before is not None
    assert after is not None
    assert b'"version":"2"' in bytes(after.pod)
    assert (after.node, after.uid, after.bound_at) == (before.node, before.uid, before.bound_at)
    assert after.object_sequence == changed.sequence
    assert changed.ref in story.placement_event("a", "web").causes


def test_a_deleted_node_ends_its_pods_and_they_are_placed_again() -> None:
    story = placed_story()
    story.nodes(node("b"))
    story.node_deleted("a")
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.later(59)
    story.settle()
    assert story.node_of("web") == "a"
    story.later(1)
    story.settle()
    assert story.node_of("web") == "b"


def test_what_was_told_to_end_ends_even_if_its_node_comes_back() -> None:
    story = placed_story()
    story.node_deleted("a")
    story.settle()
    story.node(node("a", cpu="1"))
    story.settle()
    assert phase(story) is PlacementPhase.TERMINATING
    story.run("a", "web", RunPhase.STOPPED)
    story.settle()
    assert phase(story) is PlacementPhase.BOUND


@pytest.mark.parametrize("ended", [RunPhase.SUCCEEDED, RunPhase.FAILED, RunPhase.EVICTED])
def test_a_pod_that_ended_for_good_is_never_placed_again(ended: RunPhase) -> None:
    story = placed_story()
    story.run("a", "web", ended)
    story.node_deleted("a")
    story.settle()
    assert story.placement("web") is None
    story.node(node("a"))
    assert story.settle() == []


def test_a_pod_deleted_before_it_was_placed_leaves_nothing() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("big", cpu="4"))
    story.settle()
    assert story.waiting("big") is not None
    story.pod(pod("big", cpu="4", deleting=True))
    story.settle()
    assert story.waiting("big") is None
    story.pod_deleted("big")
    assert story.settle() == []


def test_many_endings_do_not_starve_and_are_not_starved_by_placements() -> None:
    story = Story()
    story.nodes(node("a", cpu="10000", memory="100Ti", pods="100000"))
    story.executor("a")
    story.pods(*(pod(f"old{i}", cpu="1m", memory="1Mi") for i in range(600)))
    story.settle()
    for i in range(600):
        story.pod_deleted(f"old{i}")
    story.pods(*(pod(f"new{i}", cpu="1m", memory="1Mi") for i in range(2000)))
    batch = story.decide()
    phases = [event.data.phase for event in batch if isinstance(event.data, Placement)]
    assert phases[0] is PlacementPhase.BOUND
    assert phases.count(PlacementPhase.TERMINATING) == 250
    assert len(batch) == 999
    story.settle()
    assert sum(isinstance(e.data, Placement) and e.data.phase is PlacementPhase.TERMINATING for e in story.last.values()) == 600


def test_what_is_told_of_a_node_before_its_object_counts_whatever_the_order() -> None:
    story = Story()
    story.nodes(node("a", cpu="10"))
    story.metric("a", 6_000)
    story.pods(pod("web", cpu="100m"))
    story.settle()
    kinds = {"objects.core.nodes": 2, "metrics": 0, "node": 1, "objects.core.pods": 3}
    order = sorted(story.last, key=lambda subject: next(n for prefix, n in kinds.items() if subject.startswith(prefix)))
    assert order[0].startswith("metrics")
    fresh = story.reloaded(order)
    hot = story.pod(pod("hot", cpu="2"))
    fresh.apply(hot)
    assert list(fresh.decide(story.now)) == list(story.core.decide(story.now))
    assert next(event.data.TYPE for event in story.settle()) == "cotenant.waiting.v1"

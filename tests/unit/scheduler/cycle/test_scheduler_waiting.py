"""What is said of pods that wait, how often, and what wakes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Waiting, WaitingReason, waiting_line
from tests.unit.scheduler.builders_scheduler import Story, batch_pod, node, pod


def test_the_line_names_the_nodes_by_reason_with_the_figures_of_the_nearest() -> None:
    story = Story()
    story.nodes(node("a"), node("b"), node("c"), node("hot"))
    for name, batch in (("a", 500), ("b", 1000), ("c", 0), ("hot", 4000)):
        story.batch(name, batch)
        story.metric(name, 4700 if name == "hot" else 100)
    story.pods(batch_pod("job", cpu="2500"))
    story.settle()
    waiting = story.waiting("job")
    assert waiting is not None
    assert waiting_line(waiting) == "0/4 nodes: 3 batch-cpu short by 1500m, 1 cpu usage 85% > 65%"
    assert waiting.message == (
        "0/4 nodes are available: 1 node(s) cpu usage exceed threshold, 3 Insufficient kubernetes.io/batch-cpu."
    )
    assert "metrics.*" in waiting.wakes_on
    assert "node.*.resources" in waiting.wakes_on


def test_the_line_of_a_reason_that_is_about_the_pod() -> None:
    waiting = Waiting(
        namespace="d", name="p", uid="u", nodes=3, reasons=(WaitingReason(code="gated", count=0, detail="gates: x"),)
    )
    assert waiting_line(waiting) == "gates: x"


def test_a_pod_is_said_to_wait_once_it_was_refused_for_half_a_second() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pod(pod("big", cpu="4"), age=0)
    assert story.settle() == []
    story.later(0.499)
    assert story.settle() == []
    story.later(0.001)
    (told,) = story.settle()
    assert told.subject == "waiting.default.big"


def test_a_pod_that_finds_room_within_half_a_second_is_never_said_to_wait() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pod(pod("big", cpu="4"), age=0)
    assert story.settle() == []
    story.later(0.4)
    story.node(node("a", cpu="8"))
    assert [event.subject for event in story.settle()] == ["node.a.placement.default.big"]


def test_a_scheduler_that_starts_meanwhile_waits_no_longer_than_the_one_before() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pod(pod("big", cpu="4"), age=0)
    story.settle()
    story.later(0.3)
    fresh = story.reloaded()
    assert fresh.decide(story.now) == []
    assert [event.subject for event in fresh.decide(story.now + timedelta(seconds=0.2))] == ["waiting.default.big"]


def test_what_only_the_pods_own_object_can_change_is_said_at_once() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pod(pod("gated", schedulingGates=[{"name": "example.com/ready"}]), age=0)
    story.pod(pod("malformed", cpu="many"), age=0)
    story.pod(pod("absent", nodeName="nowhere"), age=0)
    assert [event.subject for event in story.settle()] == ["waiting.default.gated", "waiting.default.malformed"]
    story.later(0.5)
    assert [event.subject for event in story.settle()] == ["waiting.default.absent"]


def test_without_nodes_it_says_so() -> None:
    story = Story()
    story.pods(pod("web"))
    story.settle()
    waiting = story.waiting("web")
    assert waiting is not None
    assert waiting_line(waiting) == "0/0 nodes"
    assert waiting.wakes_on == ("objects.core.nodes._.*",)


def test_figures_alone_are_said_again_only_after_thirty_seconds() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("big", cpu="4"))
    story.settle()
    story.node(node("a", cpu="2"))
    assert story.settle() == []
    story.later(29)
    assert story.settle() == []
    story.later(1)
    (again,) = story.settle()
    assert isinstance(again.data, Waiting)
    assert again.data.reasons[0].detail == "short by 2"
    story.later(300)
    assert story.settle() == []


def test_another_reason_is_said_at_once() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("big", cpu="4"))
    story.settle()
    story.later(1)
    story.node(node("a", cpu="1", unschedulable=True))
    (again,) = story.settle()
    assert isinstance(again.data, Waiting)
    assert [reason.code for reason in again.data.reasons] == ["unschedulable"]


def test_reasons_that_go_to_and_fro_are_said_once_a_second() -> None:
    """Seed 42 of 6 h: 750 waiting pods, told twice within 50 ms when a node's capacity and then its quota changed."""
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("big", cpu="4"))
    story.settle()
    for _ in range(2):
        story.node(node("a", cpu="1", unschedulable=True))
        assert story.settle() == []
        story.node(node("a", cpu="1"))
        assert story.settle() == []
    story.node(node("a", cpu="1", unschedulable=True))
    story.later(1)
    (again,) = story.settle()
    assert isinstance(again.data, Waiting)
    assert [reason.code for reason in again.data.reasons] == ["unschedulable"]


def test_every_pod_of_a_shape_is_told() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(*(pod(f"big{i}", cpu="4") for i in range(1200)))
    first = story.decide()
    assert len(first) == 999
    assert len(story.settle()) == 201
    story.pods(pod("late", cpu="4"))
    assert [event.data.name for event in story.settle() if isinstance(event.data, Waiting)] == ["late"]


def test_freed_room_wakes_the_first_of_those_who_wait() -> None:
    story = Story()
    story.nodes(node("a", cpu="2"))
    story.pods(pod("one", cpu="2"))
    story.settle()
    story.pods(pod("second", cpu="2", created="2026-01-01T11:30:00Z"), pod("first", cpu="2", created="2026-01-01T11:10:00Z"))
    story.settle()
    story.run("a", "one", RunPhase.SUCCEEDED)
    story.settle()
    assert story.node_of("first") == "a"
    assert story.waiting("first") is None
    assert story.node_of("second") is None


def test_small_pods_pass_by_big_ones_that_fit_nowhere() -> None:
    story = Story()
    story.nodes(node("a", cpu="2"))
    story.pods(pod("big", cpu="4", priority=9000), pod("small", cpu="1", priority=0))
    story.settle()
    assert story.placed() == {"small": "a"}


def test_a_gated_pod_waits_and_is_placed_once_the_gates_are_gone() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("web", schedulingGates=[{"name": "example.com/ready"}]))
    story.settle()
    waiting = story.waiting("web")
    assert waiting is not None
    assert waiting.reasons[0].code == "gated"
    assert story.settle() == []
    story.pods(pod("web"))
    story.settle()
    assert story.node_of("web") == "a"
    assert story.waiting("web") is None


def test_a_malformed_pod_waits_with_the_reason_and_harms_nobody() -> None:
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("bad", cpu="many"), pod("negative", cpu="-1"), pod("good"))
    story.settle()
    assert story.placed() == {"good": "a"}
    for name in ("bad", "negative"):
        waiting = story.waiting(name)
        assert waiting is not None
        assert waiting.reasons[0].code == "malformed"


def test_a_quota_refusal_names_quota_dimension_and_figures_and_a_wider_quota_wakes_the_pod() -> None:
    story = Story()
    story.nodes(node("a"))
    story.quota("team", max={"cpu": 1500})
    label = {"quota.scheduling.koordinator.sh/name": "team"}
    story.pods(*(pod(f"p{i}", labels=label) for i in range(3)))
    story.settle()
    assert sorted(story.placed()) == ["p0"]
    waiting = story.waiting("p1")
    assert waiting is not None
    assert (waiting.reasons[0].code, waiting.reasons[0].resource) == ("quota", "cpu")
    assert waiting.reasons[0].detail == "quota team: cpu 2 needed, runtime is 1500m"
    wider = story.quota("team", max={"cpu": 2000})
    story.settle()
    assert sorted(story.placed()) == ["p0", "p1"]
    assert wider.ref in story.placement_event("a", "p1").causes
    story.run("a", "p0", RunPhase.SUCCEEDED)
    story.settle()
    assert sorted(story.placed()) == ["p0", "p1", "p2"]


def test_a_full_ancestor_is_named() -> None:
    story = Story()
    story.nodes(node("a"))
    story.quota("dept", max={"cpu": 2000})
    for name in ("team", "other"):
        story.quota(name, max={"cpu": 8000}, parent="dept")
    # What the other quota uses beyond its share is still used.
    story.pods(pod("first", cpu="2", labels={"quota.scheduling.koordinator.sh/name": "other"}))
    story.settle()
    story.pods(pod("p1", labels={"quota.scheduling.koordinator.sh/name": "team"}))
    story.settle()
    waiting = story.waiting("p1")
    assert waiting is not None
    assert "quota team (its ancestor dept)" in waiting.reasons[0].detail


def test_who_is_placed_is_not_told_to_wait_by_the_same_decision() -> None:
    """Found by `cotenant simulate --chaos --seed 2 --nodes 3 --for 4m`: of two pods of a quota one fits."""
    story = Story()
    story.nodes(node("a"))
    story.quota("team", max={"cpu": 1500})
    label = {"quota.scheduling.koordinator.sh/name": "team"}
    story.pods(*(pod(f"p{i}", labels=label) for i in range(2)))
    decided = story.decide()
    assert [event.subject for event in decided] == ["node.a.placement.default.p0", "waiting.default.p1"]
    story.later(60)
    assert story.settle() == []


def test_a_pod_that_is_deleted_and_created_again_between_two_decisions_waits_as_the_new_one() -> None:
    """Found by `cotenant simulate --chaos --seed 1 --nodes 6 --for 6m`: the first one stayed in the queue without its facts."""
    story = Story()
    story.nodes(node("a"))
    story.pods(pod("p", cpu="1000"))
    assert story.core.decide(story.now)
    story.pod_deleted("p")
    story.pods(pod("p", cpu="2000", uid="second"))
    story.settle()
    waiting = story.waiting("p")
    assert waiting is not None
    assert waiting.uid == "second"
    assert len(story.core.queue) == 1


def test_a_late_pod_is_notified_at_once_while_others_wait_for_the_pause() -> None:
    story = Story()
    story.nodes(node("a", cpu="1"))
    story.pods(pod("big", cpu="4"))
    story.settle()
    story.node(node("a", cpu="2"))
    story.pods(pod("later", cpu="4"))
    assert [event.data.name for event in story.settle() if isinstance(event.data, Waiting)] == ["later"]


def test_a_quota_that_comes_to_be_that_of_a_namespace_counts_for_who_waits_there() -> None:
    room: dict[str, Any] = {"max": {"cpu": 1000}}
    for before in (False, True):
        story = Story()
        story.nodes(node("a", cpu="1"))
        if before:
            story.quota("team", **room)
        story.pods(pod("big", cpu="2", namespace="red"))
        story.settle()
        story.quota("team", namespaces=("red",), **room)
        story.later(1)
        story.node(node("a", cpu="4"))
        story.settle()
        waiting = story.waiting("big", "red")
        assert waiting is not None
        assert waiting.reasons[0].code == "quota"

"""Pods that other schedulers place: whose they are, the room that is kept for them, and placements that came too late."""

from __future__ import annotations

from typing import Any

import msgspec

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import PlacementPhase
from cotenant.model.subjects import pod_subject
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.builders import stored
from tests.unit.scheduler.builders_scheduler import Story, node, pod

LABEL = "scheduling.koordinator.sh/scheduler-name"
THEIRS = {LABEL: "their-scheduler"}


def story(config: SchedulerConfig | None = None, **nodes: str) -> Story:
    found = Story(config)
    for name, cpu in nodes.items():
        found.node(node(name, cpu=cpu))
        found.executor(name)
    return found


def nominated_by_them(name: str, to: str, **more: Any) -> dict[str, Any]:
    return {**pod(name, schedulerName="their-scheduler", **more), "status": {"nominatedNodeName": to}}


def test_the_label_names_the_scheduler_before_the_spec_does() -> None:
    world = story(a="8")
    world.pods(
        pod("theirs", labels=THEIRS),
        pod("ours", labels={LABEL: "koord-scheduler"}, schedulerName="their-scheduler"),
        pod("plain"),
        pod("not-ours", schedulerName="their-scheduler"),
    )
    world.settle()
    assert sorted(world.placed()) == ["ours", "plain"]
    assert world.waiting("theirs") is None, "it is not ours to say why it waits"


def test_pods_of_one_spec_may_have_two_schedulers() -> None:
    world = story(a="8")
    for i in range(4):
        world.pod(pod(f"p{i}", labels=THEIRS if i % 2 else {}))
    world.settle()
    assert sorted(world.placed()) == ["p0", "p2"]


def test_room_is_kept_where_another_scheduler_nominated_a_pod() -> None:
    world = story(a="4", b="2")
    world.pod(nominated_by_them("theirs", "a", cpu="3", priority=100))
    world.pods(pod("low", cpu="2", priority=0), pod("equal", cpu="2", priority=100))
    world.settle()
    assert world.placed() == {"equal": "b"}, "a has room for neither of them beside the nominated one"
    world.pod(pod("high", cpu="2", priority=200))
    world.settle()
    assert world.node_of("high") == "a", "a nomination does not bind pods of a higher priority"


def test_the_room_ends_with_the_nomination() -> None:
    for end in ("named", "placed", "deleted", "gone"):
        world = story(a="4")
        world.pod(nominated_by_them("theirs", "a", cpu="3", priority=100))
        world.pod(pod("low", cpu="2", priority=0))
        world.settle()
        assert world.node_of("low") is None
        if end == "named":
            world.pod(nominated_by_them("theirs", "", cpu="3", priority=100))
        elif end == "placed":
            world.node(node("b", cpu="4"))
            world.pod({**nominated_by_them("theirs", "a", cpu="3", priority=100, nodeName="b")})
        elif end == "deleted":
            world.pod(nominated_by_them("theirs", "a", cpu="3", priority=100, deleting=True))
        else:
            world.pod_deleted("theirs")
        world.settle()
        assert world.node_of("low") == "a", end


def test_a_nomination_in_the_status_of_an_own_pod_says_nothing() -> None:
    world = story(a="4")
    world.pod({**pod("ours", cpu="30", priority=100), "status": {"nominatedNodeName": "a"}})
    world.pod(pod("low", cpu="2", priority=0))
    world.settle()
    assert world.node_of("low") == "a"


def decided_too_late(config: SchedulerConfig | None = None) -> Story:
    """A pod is given to another scheduler while its placement is on its way to the log."""
    world = story(config, a="8")
    world.pod(pod("p"))
    decided = list(world.core.decide(world.now))
    given_away = world.pod(pod("p", labels=THEIRS))
    assert given_away.subject == pod_subject("default", "p")
    for event in decided:
        world.sequence += 1
        event = msgspec.structs.replace(event, sequence=world.sequence, time=world.now)
        world.last[event.subject] = event
        world.core.apply(event)
    return world


def test_a_placement_that_did_not_know_of_the_other_scheduler_is_taken_back() -> None:
    world = decided_too_late()
    world.settle()
    placement = world.placement("p")
    assert placement is not None
    assert placement.phase is PlacementPhase.TERMINATING
    assert placement.reason == "the pod has belonged to another scheduler since before it was placed"
    world.run("a", "p", RunPhase.STOPPED)
    world.settle()
    assert world.node_of("p") is None


def test_it_stays_where_the_check_is_switched_off_or_its_node_runs_it() -> None:
    without = decided_too_late(SchedulerConfig(dynamic_scheduler_check=False))
    running = decided_too_late()
    running.run("a", "p", RunPhase.RUNNING)
    for world in (without, running):
        world.settle()
        placement = world.placement("p")
        assert placement is not None
        assert placement.phase is PlacementPhase.BOUND


def test_a_placed_pod_that_is_given_away_later_stays() -> None:
    world = story(a="8")
    world.pod(pod("p"))
    world.settle()
    world.say(pod_subject("default", "p"), stored(pod("p", labels=THEIRS)))
    world.settle()
    placement = world.placement("p")
    assert placement is not None
    assert placement.phase is PlacementPhase.BOUND

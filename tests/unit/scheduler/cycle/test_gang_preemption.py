"""A gang pre-empts whole or not at all: who leaves, which rooms are held, and what becomes of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_MODE, ANNOTATION_GANG_NAME
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement, Waiting, waiting_line
from tests.unit.scheduler.builders_scheduler import Story, node, pod


def story_of(*cpus: str) -> Story:
    """Nodes `a`, `b`, ... of so many CPUs, with executors."""
    story = Story()
    for name, cpu in zip("abcdefgh", cpus, strict=False):
        story.node(node(name, cpu=cpu))
        story.executor(name)
    return story


def member(name: str, least: int, *, cpu: str = "2", gang: str = "g", priority: int = 1000, **more: Any) -> dict[str, Any]:
    own = {ANNOTATION_GANG_NAME: gang, ANNOTATION_GANG_MIN: str(least), **more.pop("annotations", {})}
    return pod(name, cpu=cpu, memory="1Mi", annotations=own, priority=priority, **more)


def gang(count: int, **more: Any) -> list[dict[str, Any]]:
    name = more.get("gang", "g")
    return [member(f"{name}{index}", count, **more) for index in range(count)]


def low(name: str, cpu: str = "2", **more: Any) -> dict[str, Any]:
    more.setdefault("priority", 0)
    return pod(name, cpu=cpu, memory="1Mi", **more)


def placed_low(story: Story, *documents: dict[str, Any]) -> None:
    for document in documents:
        story.pod(document)
        story.settle()
        story.later(1)


def rooms(story: Story) -> dict[str, str]:
    return {name: found.node for name, found in story.nominated().items()}


def victims(story: Story) -> set[str]:
    return {victim.name for found in story.nominated().values() for victim in found.victims}


def ended(story: Story, *names: str) -> None:
    """Victims get a deletionTimestamp, end, and are gone."""
    for name in names:
        placement = story.placement(name)
        assert placement is not None
        story.pod(low(name, deleting=True))
        story.settle()
        story.run(placement.node, name, RunPhase.STOPPED)
        story.settle()
        story.pod_deleted(name)


def test_a_gang_gets_room_for_all_of_its_members_by_one_decision_and_lands_once_it_is_free() -> None:
    story = story_of("4", "4")
    placed_low(story, low("l0"), low("l1"), low("l2"), low("l3"))
    story.pods(*gang(3))
    waiting = [event.data for event in story.decide() if isinstance(event.data, Waiting)]
    assert [data.name for data in waiting if data.nomination] == ["g0", "g1", "g2"]
    story.settle()
    assert len(victims(story)) == 3
    assert sorted(rooms(story).values()) == ["a", "a", "b"] or sorted(rooms(story).values()) == ["a", "b", "b"]
    gone = sorted(victims(story))
    ended(story, *gone[:2])
    story.settle()
    assert not {name for name in story.placed() if name.startswith("g")}
    ended(story, gone[2])
    story.settle()
    assert {name for name in story.placed() if name.startswith("g")} == {"g0", "g1", "g2"}
    assert not story.nominated()


def test_members_that_fit_without_a_victim_have_their_room_held() -> None:
    story = story_of("2", "4")
    placed_low(story, low("l0", nodeName="a"))
    story.pods(*gang(3))
    story.settle()
    assert victims(story) == {"l0"}
    assert sorted(rooms(story).values()) == ["a", "b", "b"]
    story.pod(low("late", priority=500))
    story.settle()
    assert "late" not in story.placed()
    ended(story, "l0")
    story.settle()
    assert set(story.placed()) == {"g0", "g1", "g2"}


def test_members_go_to_the_rooms_that_are_held_for_them_where_the_best_nodes_one_by_one_have_no_room_for_all() -> None:
    story = story_of("4", "2")
    placed_low(story, low("l0", "4"))
    story.pods(member("g0", 2, cpu="2"), member("g1", 2, cpu="4"))
    story.settle()
    assert (rooms(story), victims(story)) == ({"g0": "b", "g1": "a"}, {"l0"})
    ended(story, "l0")
    # Alone, g0 would go to the larger node, on which it leaves most free; and g1 would wait, and preempt, for ever.
    assert {name: story.placed().get(name) for name in ("g0", "g1")} == {"g0": "b", "g1": "a"}


def test_a_gang_that_would_not_fit_whole_preempts_nobody() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(*gang(3))
    story.settle()
    assert not story.nominated()
    waiting = story.waiting("g0")
    assert waiting is not None
    assert '"default/g" gets rejected due to member Pod "default/g0" is unschedulable' in waiting.message
    assert waiting_line(waiting) == "0/1 nodes: 1 cpu short by 2"
    other = story.waiting("g1")
    assert other is not None
    assert waiting_line(other) == "pod default/g0 of its gang does not fit: 0/1 nodes: 1 cpu short by 2"
    story.pod(low("l2", cpu="1"))
    story.settle()
    assert story.waiting("l2") is not None


def test_what_waits_for_room_says_who_leaves() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(*gang(2))
    story.settle()
    waiting = story.waiting("g1")
    assert waiting is not None
    assert waiting.message.endswith("preemption: 2 pods on 1 node leave for the group.")


@pytest.mark.parametrize(
    "spared",
    [{"priority": 1000}, {"labels": {"scheduling.koordinator.sh/disable-preemptible": "true"}}],
    ids=["of-the-same-priority", "protected"],
)
def test_pods_that_may_not_be_preempted_stay_and_so_the_gang_takes_nothing(spared: dict[str, Any]) -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1", **spared))
    story.pods(*gang(2))
    story.settle()
    assert not story.nominated()


def test_a_gang_one_member_of_which_may_not_preempt_waits() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(member("g0", 2), member("g1", 2, preemptionPolicy="Never"))
    story.settle()
    assert not story.nominated()


def test_members_beyond_the_minimum_of_a_non_strict_gang_are_not_required() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    loose = {ANNOTATION_GANG_MODE: "NonStrict"}
    story.pods(*(member(f"g{index}", 2, annotations=loose) for index in range(3)))
    story.settle()
    assert len(rooms(story)) == 2
    ended(story, "l0", "l1")
    story.settle()
    assert len(story.placed()) == 2


def test_a_large_pod_that_leaves_makes_room_for_several_members() -> None:
    story = story_of("8", "4")
    placed_low(story, low("big", cpu="8", nodeName="a"), low("l0", nodeName="b"), low("l1", nodeName="b"))
    story.pods(*gang(4))
    story.settle()
    assert len(rooms(story)) == 4
    assert victims(story) in ({"big"}, {"l0", "l1", "big"})


def test_a_gang_whose_quota_does_not_admit_all_members_preempts_nobody() -> None:
    for cpu, admitted in ((6000, False), (8000, True)):
        story = story_of("8")
        story.node(node("cordoned", cpu="8", unschedulable=True))  # the quota's runtime is its max
        story.quota("q", max={"cpu": cpu})
        placed_low(story, low("l0", cpu="4"), low("l1", cpu="4"))
        labels = {"quota.scheduling.koordinator.sh/name": "q"}
        story.pods(*gang(4, labels=labels))
        story.settle()
        assert bool(story.nominated()) is admitted


def test_a_gang_of_higher_priority_takes_the_rooms_of_one_that_waits_for_victims() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(*gang(2, gang="g", priority=500))
    story.settle()
    assert set(rooms(story)) == {"g0", "g1"}
    story.pods(*gang(2, gang="h", priority=2000))
    story.settle()
    ended(story, "l0", "l1")
    story.settle()
    assert set(story.placed()) == {"h0", "h1"}


def test_the_victims_have_their_time_and_then_nodes_are_chosen_again() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(*gang(2))
    story.settle()
    first = story.nominated()["g0"]
    story.later(0.5)
    story.settle()
    assert story.nominated()["g0"] == first
    story.later(1)
    story.settle()
    assert story.nominated()["g0"].attempts == 2


@pytest.mark.parametrize("seed", range(20))
def test_at_no_time_is_half_a_gang_nominated_or_placed_and_a_restart_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    story = story_of(*(str(chance.choice([4, 6, 8])) for _ in range(4)))
    for index in range(12):
        story.pod(low(f"l{index}", cpu=str(chance.choice([1, 2, 3])), priority=chance.choice([0, 10])))
    story.settle()
    sizes = {name: chance.randrange(2, 5) for name in "gh"}
    story.pods(*(each for name in "gh" for each in gang(sizes[name], gang=name, priority=chance.choice([500, 1000]))))
    for _ in range(30):
        decided = story.decide()
        assert [event.subject for event in story.reloaded().decide(story.now)] == [
            event.subject for event in story.core.decide(story.now)
        ]
        placed = {event.data.name for event in decided if isinstance(event.data, Placement)}
        nominated = story.nominated()
        for name, size in sizes.items():
            members = {f"{name}{index}" for index in range(size)}
            assert len(placed & members) in (0, size)
            assert len(nominated.keys() & members) in (0, size)
        leaving = sorted(victims(story) & story.placed().keys())
        if leaving and chance.random() < 0.6:
            ended(story, chance.choice(leaving))
        story.later(chance.choice([0.1, 1.2, 11]))
    for name, size in sizes.items():
        members = {f"{name}{index}" for index in range(size)}
        assert len(story.placed().keys() & members) in (0, size)

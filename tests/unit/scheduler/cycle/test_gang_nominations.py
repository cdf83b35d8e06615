"""The nominations of a gang: how often it has tried, which members get one, and when they end."""

from __future__ import annotations

import pytest

from cotenant.domain.gangs import ANNOTATION_GANG_MODE
from cotenant.events.placements import Placement, Waiting
from tests.unit.scheduler.builders_scheduler import Story, node, pod
from tests.unit.scheduler.cycle.test_gang_preemption import (
    ended,
    gang,
    low,
    member,
    placed_low,
    rooms,
    story_of,
    victims,
)

LOOSE = {ANNOTATION_GANG_MODE: "NonStrict"}


def test_attempts_are_counted_from_one() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(*gang(2))
    story.settle()
    assert {found.attempts for found in story.nominated().values()} == {1}
    for attempts in (2, 3, 4):
        story.later(11)
        story.settle()
        assert {found.attempts for found in story.nominated().values()} == {attempts}


def test_nominations_end_where_a_gang_of_higher_priority_takes_the_rooms() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(*gang(2, priority=500))
    story.settle()
    story.pods(*gang(2, gang="h", priority=2000))
    story.settle()
    assert set(rooms(story)) == {"h0", "h1"}
    waiting = story.waiting("g0")
    assert waiting is not None
    assert " for the group." not in waiting.message


def test_a_member_that_no_victim_can_help_stays_without_a_room_if_the_gang_does_not_need_it() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(member("g0", 2, cpu="8", annotations=LOOSE), *(member(f"g{i}", 2, annotations=LOOSE) for i in (1, 2)))
    story.settle()
    assert rooms(story) == {"g1": "a", "g2": "a"}
    assert victims(story) == {"l0", "l1"}
    ended(story, "l0", "l1")
    story.settle()
    assert set(story.placed()) == {"g1", "g2"}


def test_a_member_whose_node_is_deleted_loses_its_room_and_the_others_keep_theirs() -> None:
    story = story_of("4", "2")
    placed_low(story, low("l0", nodeName="a"), low("l1", nodeName="a"), low("l2", nodeName="b"))
    story.pods(*(member(f"g{i}", 2, annotations=LOOSE) for i in range(3)))
    story.settle()
    assert sorted(rooms(story).values()) == ["a", "a", "b"]
    story.node_deleted("b")
    story.settle()
    assert sorted(rooms(story).values()) == ["a", "a"]
    assert {found.attempts for found in story.nominated().values()} == {2}
    assert not [event for event in story.decide() if isinstance(event.data, Waiting)]


def test_a_member_that_a_gang_does_not_wait_for_loses_its_room_when_the_others_are_placed_elsewhere() -> None:
    story = story_of("4", "2")
    placed_low(story, low("l0", nodeName="a"), low("l1", nodeName="a"), low("l2", nodeName="b"))
    story.pods(*(member(f"g{i}", 2, annotations=LOOSE) for i in range(3)))
    story.settle()
    assert sorted(rooms(story).values()) == ["a", "a", "b"]
    story.node(node("a", cpu="8"))
    decided = story.core.decide(story.now)
    assert decided == story.reloaded().decide(story.now)
    assert [event.data.name for event in decided if isinstance(event.data, Placement)] == ["g0", "g1"]
    [waiting] = [event.data for event in decided if isinstance(event.data, Waiting) and not event.tombstone]
    assert (waiting.name, waiting.nomination) == ("g2", None)


def test_members_of_a_gang_that_has_become_too_small_lose_their_rooms_at_once() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(*gang(2))
    story.settle()
    assert set(rooms(story)) == {"g0", "g1"}
    story.pod_deleted("g0")
    decided = story.core.decide(story.now)
    assert decided == story.reloaded().decide(story.now)
    [waiting] = [event.data for event in decided if isinstance(event.data, Waiting) and not event.tombstone]
    assert (waiting.name, waiting.nomination) == ("g1", None)


@pytest.mark.parametrize(("count", "nominated"), [(2, 2), (3, 0)])
def test_a_gang_of_more_members_than_one_decision_can_nominate_waits(
    count: int, nominated: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.groups.group_preemption.MEMBERS", 2)
    story = story_of("8")
    placed_low(story, *(low(f"l{i}") for i in range(4)))
    story.pods(*gang(count))
    story.settle()
    assert len(rooms(story)) == nominated


def test_a_gang_preempts_for_one_member_though_another_is_above_nobody() -> None:
    story = story_of("4", "2")
    placed_low(story, low("l0", nodeName="a"), low("l1", nodeName="a"))
    story.pods(member("g0", 2, cpu="4"), member("g1", 2, priority=0))
    story.settle()
    assert rooms(story) == {"g0": "a", "g1": "b"}
    assert victims(story) == {"l0", "l1"}


def test_a_gang_is_as_large_as_one_batch_holds_and_no_larger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.placing.MOST_TOGETHER", 3)
    story = story_of("16")
    story.pods(*gang(3), *gang(4, gang="h"))
    story.settle()
    assert set(story.placed()) == {"g0", "g1", "g2"}
    waiting = story.waiting("h0")
    assert waiting is not None
    assert waiting.message == "the group has 4 pods, and one batch holds the placements of 3"


@pytest.mark.parametrize(("count", "with_it"), [(2, True), (3, False)])
def test_waiting_events_of_a_gang_end_with_its_placements_if_a_usual_decision_has_room_for_both(
    count: int, with_it: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.placing.MOST_EVENTS", 4)
    story = story_of("1")
    story.pods(*gang(count))
    story.settle()
    assert all(story.waiting(f"g{index}") for index in range(count))
    story.node(node("b", cpu="8"))
    decided = story.decide()
    assert [event.data.name for event in decided if isinstance(event.data, Placement)] == [f"g{i}" for i in range(count)]
    assert len([event for event in decided if event.tombstone]) == (count if with_it else 0)
    story.settle()
    assert not any(story.waiting(f"g{index}") for index in range(count))


@pytest.mark.parametrize(
    ("singles", "members", "batches"),
    [
        (5, 12, [17]),
        (8, 12, [20]),
        (9, 12, [9, 12]),
        (1, 20, [1, 20]),
        (5, 6, [5, 6]),
        (4, 6, [10]),
        (5, 7, [12]),
        (10, 12, [10, 12]),
        (9, 21, [9]),
    ],
)
def test_only_a_gang_that_no_usual_decision_holds_makes_one_larger_and_no_larger_than_a_batch(
    singles: int, members: int, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision has room for 10 events, 6 of them for sure; a batch for 20 placements."""
    monkeypatch.setattr("cotenant_scheduler.core.MAX_EVENTS_PER_DECISION", 10)
    monkeypatch.setattr("cotenant_scheduler.cycle.placing.MOST_EVENTS", 6)
    monkeypatch.setattr("cotenant_scheduler.cycle.placing.MOST_TOGETHER", 20)
    story = story_of("64")
    story.pods(*(pod(f"p{index}", memory="1Mi", priority=5000) for index in range(singles)))
    story.pods(*gang(members, cpu="1"))
    placed = []
    for _ in range(4):
        decided = story.decide()
        if found := [event for event in decided if isinstance(event.data, Placement)]:
            placed.append(len(found))
    assert placed == batches


def test_a_pod_that_is_placed_behind_a_gang_ends_its_waiting_event_by_the_same_decision() -> None:
    story = story_of("1")
    story.pods(*gang(2), pod("last", cpu="2", memory="1Mi", priority=0))
    story.settle()
    story.node(node("b", cpu="8"))
    decided = story.decide()
    assert [event.data.name for event in decided if isinstance(event.data, Placement)] == ["g0", "g1", "last"]
    assert sorted(event.data.name for event in decided if isinstance(event.data, Waiting) and event.tombstone) == [
        "g0", "g1", "last",
    ]  # fmt: skip


def test_a_pod_that_has_to_be_beside_a_gang_is_placed_by_the_same_decision() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "leader"}}, "topologyKey": "host"}
    beside = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    story = Story()
    story.nodes(node("a", labels={"host": "a"}), node("b", labels={"host": "b"}))
    story.pods(pod("follower", priority=5000, affinity=beside), *gang(2, labels={"app": "leader"}))
    assert {event.data.name for event in story.decide() if isinstance(event.data, Placement)} == {"g0", "g1", "follower"}


def test_nodes_are_chosen_again_after_a_second_and_not_before() -> None:
    story = story_of("4")
    placed_low(story, low("l0"), low("l1"))
    story.pods(*gang(2))
    story.settle()
    for seconds, attempts in ((0.999, 1), (0.001, 2)):
        story.later(seconds)
        story.settle()
        assert {found.attempts for found in story.nominated().values()} == {attempts}


def test_nominations_stand_while_a_victim_is_ending_on_one_of_the_nodes() -> None:
    story = story_of("2", "2")
    placed_low(story, low("l0", nodeName="a"), low("l1", nodeName="b"))
    story.pods(*gang(2))
    story.settle()
    story.pod(low("l0", nodeName="a", deleting=True))
    story.settle()
    story.later(30)
    story.settle()
    assert {found.attempts for found in story.nominated().values()} == {1}


def test_a_free_node_is_taken_before_one_that_others_have_to_leave() -> None:
    story = story_of("4", "2")
    placed_low(story, low("l0", nodeName="b"))
    story.pods(*gang(3))
    story.settle()
    assert rooms(story) == {"g0": "a", "g1": "a", "g2": "b"}
    assert victims(story) == {"l0"}

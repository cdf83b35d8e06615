"""Which node and which victims: one example for each comparison of the rules."""

from __future__ import annotations

import pytest

from cotenant_scheduler.cycle.preemption import SPARE_RANKS, CachedChoices, PreemptionCandidate
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import Story, node, pod
from tests.unit.scheduler.cycle.test_scheduler_preemption import nomination, on, story_of, victims


def asking(story: Story, cpu: str = "4", priority: int = 1000) -> list[str]:
    """The victims of a pod that comes now, in the order of its nomination."""
    story.pods(pod("high", cpu=cpu, priority=priority))
    story.settle()
    return victims(story, "high")


def test_of_equal_priority_the_one_bound_last_goes_whatever_its_name() -> None:
    story = story_of(*(on("a", name, cpu="1") for name in ("z", "y", "x", "w")))
    assert asking(story, "1") == ["w"]
    story = story_of(*(on("a", name, cpu="1") for name in ("w", "x", "y", "z")))
    assert asking(story, "1") == ["z"]


def test_of_those_bound_at_one_time_the_last_name_goes() -> None:
    story = story_of()
    story.pods(*(on("a", name, cpu="1") for name in ("q", "s", "p", "r")))
    story.settle()
    assert asking(story, "1") == ["s"]


def test_victims_are_named_by_importance() -> None:
    story = story_of(
        on("a", "cheap", cpu="1", priority=1), on("a", "late", cpu="1", priority=9), on("a", "dear", cpu="2", priority=7)
    )
    assert asking(story) == ["late", "dear", "cheap"]


@pytest.mark.parametrize("other", [5, 1])
def test_what_counts_is_when_the_first_of_the_highest_priority_was_bound(other: int) -> None:
    """On a the first and the last of all four, on b the two between them."""
    story = story_of(
        on("a", "a0", cpu="2", priority=5),
        on("b", "b0", cpu="2", priority=5),
        on("b", "b1", cpu="2", priority=other),
        on("a", "a1", cpu="2", priority=other),
        nodes=2,
    )
    assert asking(story) == ["b0", "b1"]


def test_no_victim_violates_a_budget_where_there_is_none() -> None:
    story = story_of(on("a", "p", cpu="2"), on("a", "q", cpu="2"))
    assert asking(story) == ["p", "q"]
    found = nomination(story, "high")
    assert found is not None
    assert [victim.violates_budget for victim in found.victims] == [False, False]


def test_of_two_victims_the_one_whose_budget_is_used_up_is_marked() -> None:
    story = story_of(on("a", "guarded", cpu="2", labels={"app": "db"}), on("a", "free", cpu="2"))
    story.budget("db", {"app": "db"}, allowed=0)
    assert asking(story) == ["guarded", "free"]
    found = nomination(story, "high")
    assert found is not None
    assert [victim.violates_budget for victim in found.victims] == [True, False]


def test_a_pod_of_higher_priority_somewhere_does_not_protect_the_others() -> None:
    story = story_of(on("a", "low", cpu="2"), on("a", "above", cpu="2", priority=2000))
    assert asking(story, "2") == ["low"]


def test_nodes_behind_one_without_pods_of_lower_priority_are_looked_at() -> None:
    story = story_of(on("a", "same", cpu="4", priority=1000), on("b", "low", cpu="4"), nodes=2)
    assert asking(story) == ["low"]


def test_a_deleted_node_on_which_pods_are_ending_is_not_counted_among_those_that_preemption_does_not_help() -> None:
    story = story_of(on("b", "ends", cpu="1"), on("a", "low", cpu="1"), nodes=2)
    story.node_deleted("b")
    story.node(node("a", cpu="4", taints=[{"key": "x", "value": "", "effect": "NoSchedule"}]))
    story.settle()
    assert asking(story) == []
    waiting = story.waiting("high")
    assert waiting is not None
    assert waiting.message.endswith("preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")


def test_a_second_pod_of_another_priority_takes_what_is_left_of_the_rooms() -> None:
    story = story_of(on("a", "p", cpu="2"), on("a", "q", cpu="2"))
    assert asking(story, "2") == ["q"]
    story.pods(pod("next", cpu="2", priority=900))
    story.settle()
    assert victims(story, "next") == ["p"]
    story.pods(pod("last", cpu="2", priority=800))
    story.settle()
    assert victims(story, "last") == []


def choice(violations: int, name: str) -> PreemptionCandidate:
    return PreemptionCandidate((violations, 0, 0, 0, 0, name), name, ())


def test_the_best_of_cached_choices_is_the_lowest_rank_that_still_holds() -> None:
    cached = CachedChoices()
    assert cached.best() is None
    cached.put(0, choice(3, "a"))
    cached.put(1, choice(2, "b"))
    assert cached.best() == choice(2, "b")
    del cached.choices[1]
    assert cached.best() == choice(3, "a")
    cached.put(1, choice(5, "b"))
    assert cached.best() == choice(3, "a")
    del cached.choices[0]
    assert cached.best() == choice(5, "b")
    del cached.choices[1]
    assert cached.best() is None


@pytest.mark.parametrize("rows", [1, 200])
def test_ranks_are_kept_for_twice_the_choices(rows: int) -> None:
    cached = CachedChoices()
    for number in range(3000):
        row = number % rows
        cached.choices.pop(row, None)
        cached.put(row, choice(number % 7, f"n{row}"))
        assert len(cached.ranked) <= 2 * len(cached.choices) + SPARE_RANKS + 1
    best = min(cached.choices.values(), key=lambda each: each.rank)
    assert cached.best() == best


def test_a_node_on_which_the_pod_in_the_way_ends_by_itself_is_chosen_next_time_at_no_cost() -> None:
    story = story_of(on("a", "pa", cpu="4", priority=1), on("b", "pb", cpu="4", priority=5), nodes=2)
    assert asking(story) == ["pa"]
    story.pod(on("b", "pb", cpu="4", priority=5, deleting=True))
    story.settle()
    story.later(2)
    story.settle()
    found = nomination(story, "high")
    assert found is not None
    assert (found.node, found.victims) == ("b", ())


def test_pods_beside_a_reservation_that_holds_room_may_be_victims() -> None:
    story = ReservedStory()
    story.node(node("a", cpu="4"))
    story.executor("a")
    story.reservation(reservation("r", cpu="1"))
    story.settle()
    story.pod(on("a", "low", cpu="3"))
    story.settle()
    assert story.phase("r") == "Available"
    assert asking(story, "3") == ["low"]

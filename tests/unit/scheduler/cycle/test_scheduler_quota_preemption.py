"""A pod that its quota has no room for preempts pods of its own quota."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.domain.quota.admission import QuotaLevel
from cotenant.domain.quota.names import DEFAULT
from cotenant.domain.quota.preemption import headroom, may_preempt
from cotenant.events.node.runs import RunPhase
from cotenant_scheduler.cycle.preempting import NOMINATIONS_PER_DECISION
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import Story, node, pod

QUOTA = "quota.scheduling.koordinator.sh/name"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"


def of(
    quota: str, name: str, *, cpu: str = "1", priority: int = 0, labels: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    return pod(name, cpu=cpu, priority=priority, labels={QUOTA: quota, **(labels or {})}, **more)


def story_of(*placed: dict[str, Any], cpu: str = "16", runtime: int = 4000, nodes: int = 1, **config: Any) -> Story:
    """Nodes with room, quotas `red` and `blue` of that many milli-cores each, and pods placed in that order."""
    story = Story(SchedulerConfig(**config))
    for name in "abcdefgh"[:nodes]:
        story.node(node(name, cpu=cpu))
        story.executor(name)
    for name in ("red", "blue"):
        story.quota(name, max={"cpu": runtime}, min={"cpu": 1000})
    for document in placed:
        story.pod(document)
        story.settle()
        story.later(1)
    return story


def victims(story: Story, name: str) -> list[str]:
    waiting = story.waiting(name)
    return [victim.name for victim in waiting.nomination.victims] if waiting and waiting.nomination else []


def ended(story: Story, name: str, quota: str = "red") -> None:
    placement = story.placement(name)
    assert placement is not None
    story.pod(of(quota, name, deleting=True))
    story.settle()
    story.run(placement.node, name, RunPhase.STOPPED)
    story.settle()
    story.pod_deleted(name)


def test_the_pod_lands_once_a_pod_of_lower_priority_of_its_quota_has_left() -> None:
    story = story_of(of("red", "low", cpu="3"), of("red", "mid", cpu="1", priority=5))
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == ["low"]
    waiting = story.waiting("high")
    assert waiting is not None
    assert waiting.reasons[0].code == "quota"
    story.settle()
    assert victims(story, "high") == ["low"]
    ended(story, "low")
    story.settle()
    assert story.node_of("high") == "a"


def test_of_the_nodes_the_one_is_taken_whose_pod_of_the_quota_matters_least() -> None:
    low = [of("red", name, cpu="2", priority=priority, nodeName=on) for name, on, priority in (("x", "a", 5), ("y", "b", 1))]
    for placed in (low, low[::-1]):
        story = story_of(*placed, nodes=2)
        story.pod(of("red", "high", cpu="2", priority=10))
        story.settle()
        assert victims(story, "high") == ["y"]


@pytest.mark.parametrize(("rows", "found"), [(2, []), (3, ["c0"])])
def test_so_many_nodes_are_looked_at(rows: int, found: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.quota_preemption.ROWS", rows)
    story = story_of(*(of("red", f"{name}0", nodeName=name) for name in "abc"), nodes=3, runtime=3000)
    for name in "ab":
        story.node(node(name, cpu="16", unschedulable=True))
    story.pod(of("red", "high", priority=10))
    story.settle()
    assert victims(story, "high") == found


def test_pods_of_another_quota_stay() -> None:
    story = story_of(of("blue", "low", cpu="4"), of("red", "same", cpu="4", priority=10))
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == []
    assert story.waiting("high") is not None


def test_as_few_pods_as_are_needed_leave_and_the_more_important_ones_stay() -> None:
    story = story_of(of("red", "a", priority=3), of("red", "b", priority=2), of("red", "c", priority=1), of("red", "d"))
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == ["c", "d"]


def test_non_preemptible_pods_are_no_victims() -> None:
    fixed = of("red", "fixed", cpu="1", labels={PREEMPTIBLE: "false"})
    story = story_of(fixed, of("red", "low", cpu="3"))
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == ["low"]


def test_a_non_preemptible_pod_that_min_has_no_room_for_preempts_nobody() -> None:
    story = story_of(of("red", "low", cpu="4"))
    story.pod(of("red", "high", cpu="2", priority=10, labels={PREEMPTIBLE: "false"}))
    story.settle()
    assert victims(story, "high") == []


def test_a_thousandth_of_a_cpu_that_the_quota_lacks_is_made_room_for() -> None:
    story = story_of(of("red", "low", cpu="3001m"), runtime=4000)
    story.pod(of("red", "high", cpu="1", priority=10))
    story.settle()
    assert victims(story, "high") == ["low"]


def test_nobody_leaves_where_the_quota_has_no_room_even_then() -> None:
    story = story_of(of("red", "low", cpu="1"), of("red", "same", cpu="3", priority=10))
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == []


def test_a_pod_that_never_preempts_waits() -> None:
    story = story_of(of("red", "low", cpu="4"))
    story.pod(of("red", "high", cpu="2", priority=10, preemptionPolicy="Never"))
    story.settle()
    assert victims(story, "high") == []


def test_pods_that_are_ending_already_make_room_for_free() -> None:
    story = story_of(of("red", "ending", cpu="2"), of("red", "low", cpu="2"))
    story.pod(of("red", "ending", cpu="2", deleting=True))
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == []


def test_a_pod_that_is_ending_makes_no_more_room_than_it_takes() -> None:
    story = story_of(of("red", "ends"), of("red", "low", cpu="3"))
    story.run("a", "ends", RunPhase.RUNNING)
    story.pod(of("red", "ends", deleting=True))
    story.settle()
    # Of 4 CPUs 3 are left when it is gone, which the other has: of the 2 wanted 1 is still short.
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == ["low"]


def test_two_pods_do_not_preempt_the_same_victim() -> None:
    story = story_of(of("red", "low-1", cpu="2"), of("red", "low-2", cpu="2"))
    story.pods(of("red", "high-1", cpu="2", priority=10), of("red", "high-2", cpu="2", priority=10))
    story.settle()
    assert sorted([*victims(story, "high-1"), *victims(story, "high-2")]) == ["low-1", "low-2"]


def test_a_decision_nominates_a_bounded_number_of_pods_and_the_next_ones_the_rest() -> None:
    count = NOMINATIONS_PER_DECISION + 1
    story = story_of(cpu="400", runtime=1000 * count)
    story.pods(*(of("red", f"low{index}", memory="1Mi") for index in range(count)))
    story.settle()
    story.pods(*(of("red", f"high{index}", memory="1Mi", priority=10) for index in range(count)))
    story.decide()
    assert len(story.nominated()) == NOMINATIONS_PER_DECISION
    story.settle()
    assert len(story.nominated()) == count


def test_a_budget_is_spared_where_another_pod_will_do() -> None:
    story = story_of(of("red", "kept", cpu="2", labels={"app": "kept"}), of("red", "other", cpu="2", priority=5), nodes=1)
    story.budget("kept", {"app": "kept"}, allowed=0)
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == ["other"]


def test_an_ancestor_without_room_is_given_room_too() -> None:
    story = story_of(of("red", "low", cpu="3"))
    story.quota("top", max={"cpu": 3000})
    story.quota("red", max={"cpu": 8000}, parent="top")
    story.pod(of("red", "high", cpu="2", priority=10))
    story.settle()
    assert victims(story, "high") == ["low"]


def test_pods_of_the_default_quota_are_preempted_only_if_a_setting_lets_them_be() -> None:
    for protects, expected in ((True, []), (False, ["low"])):
        story = Story(SchedulerConfig(disable_default_quota_preemption=protects))
        story.node(node("a", cpu="16"))
        story.executor("a")
        story.quota(DEFAULT, max={"cpu": 4000})
        story.pod(pod("low", cpu="3", priority=0))
        story.settle()
        story.pod(pod("high", cpu="2", priority=10))
        story.settle()
        assert victims(story, "high") == expected


def test_a_restart_decides_the_same() -> None:
    story = story_of(of("red", "low", cpu="3"), of("red", "mid", cpu="1", priority=5))
    story.pod(of("red", "high", cpu="2", priority=10))
    fresh = story.reloaded()
    assert [event.data for event in fresh.decide(story.now)] == [event.data for event in story.decide()]


@pytest.mark.parametrize(
    ("victim", "expected"),
    [(("red", 1, True), True), (("blue", 1, True), False), (("red", 5, True), False), (("red", 1, False), False)],
)
def test_who_may_preempt_whom(victim: tuple[str, int, bool], expected: bool) -> None:
    quota, priority, preemptible = victim
    assert may_preempt("red", 5, quota, priority, victim_preemptible=preemptible) is expected


_PODS = st.lists(st.tuples(st.sampled_from(["red", "blue"]), st.integers(1, 4), st.integers(0, 3), st.booleans()), max_size=10)


@settings(deadline=None, max_examples=60)
@given(_PODS, st.integers(1, 4), st.integers(1, 4), st.integers(2, 10))
def test_victims_are_of_the_quota_lower_preemptible_needed_and_enough(
    placed: list[tuple[str, int, int, bool]], cpu: int, priority: int, runtime: int
) -> None:
    documents = [
        of(quota, f"p{index}", cpu=str(cores), priority=rank, labels={} if preemptible else {PREEMPTIBLE: "false"})
        for index, (quota, cores, rank, preemptible) in enumerate(placed)
    ]
    story = story_of(*documents, cpu="12", runtime=runtime * 1000, nodes=3)
    there = {f"p{index}": index for index in range(len(placed)) if story.node_of(f"p{index}") is not None}
    story.pod(of("red", "high", cpu=str(cpu), priority=priority))
    story.settle()
    leaving = victims(story, "high")
    used = sum(placed[index][1] for index in there.values() if placed[index][0] == "red")
    for name in leaving:
        quota, _, rank, preemptible = placed[there[name]]
        assert (quota, rank < priority, preemptible) == ("red", True, True)
        assert story.node_of(name) == story.nominated()["high"].node
    freed = sum(placed[there[name]][1] for name in leaving)
    if leaving:
        assert used - freed + cpu <= runtime
        assert used + cpu > runtime or story.node_of("high") is None


def test_headroom_counts_each_limit_and_no_other_resource() -> None:
    own = QuotaLevel(name="red", max={"cpu": 9, "memory": 9}, runtime={"cpu": 5, "memory": 1}, used={"cpu": 4, "memory": 2})
    top = QuotaLevel(name="top", max={"cpu": 9}, runtime={"cpu": 6, "memory": 0}, used={"cpu": 6, "memory": 9})
    found = headroom({"cpu": 2, "gpu": 1}, [own, top], preemptible=True, runtime_limits=True, check_ancestors=True)
    assert found == [("cpu", -1), ("memory", -1), ("cpu", -2)]
    assert headroom({"cpu": 2}, [own, top], preemptible=True, runtime_limits=False, check_ancestors=False) == [
        ("cpu", 3),
        ("memory", 7),
    ]

"""Gangs through the scheduler's core: placed whole in one decision or not at all, by Koordinator's rules."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cotenant.domain.gangs import (
    ANNOTATION_GANG_GROUPS,
    ANNOTATION_GANG_MATCH_POLICY,
    ANNOTATION_GANG_MIN,
    ANNOTATION_GANG_MODE,
    ANNOTATION_GANG_NAME,
    LABEL_POD_GROUP,
)
from cotenant.events.gangs import PodGroupStatus
from cotenant.events.node.runs import RunPhase, RunStatus
from cotenant.events.objects import ObjectDeleted
from cotenant.events.placements import Placement
from cotenant.model.subjects import object_subject, pod_group_subject, run_subject
from tests.builders import stored
from tests.unit.scheduler.builders_scheduler import Story, node, pod

POD_GROUPS = ("scheduling.sigs.k8s.io", "podgroups")


def story_with(*nodes: dict[str, Any]) -> Story:
    story = Story()
    story.nodes(*nodes)
    return story


def member(name: str, gang: str = "g", least: int = 3, *, cpu: str = "1", **annotations: str) -> dict[str, Any]:
    """A pod that states its gang in annotations."""
    own = {ANNOTATION_GANG_NAME: gang, ANNOTATION_GANG_MIN: str(least)}
    return pod(name, cpu=cpu, memory="1Mi", annotations=own | {_name(key): value for key, value in annotations.items()})


def _name(key: str) -> str:
    return {"mode": ANNOTATION_GANG_MODE, "groups": ANNOTATION_GANG_GROUPS, "policy": ANNOTATION_GANG_MATCH_POLICY}[key]


def in_pod_group(name: str, gang: str = "g", cpu: str = "1") -> dict[str, Any]:
    return pod(name, cpu=cpu, memory="1Mi", labels={LABEL_POD_GROUP: gang})


def pod_group(story: Story, name: str = "g", least: int = 3, **annotations: str) -> None:
    metadata = {
        "name": name,
        "namespace": "default",
        "annotations": {_name(key): value for key, value in annotations.items()},
    }
    story.say(object_subject(*POD_GROUPS, "default", name), stored({"metadata": metadata, "spec": {"minMember": least}}))


def message(story: Story, name: str) -> str:
    waiting = story.waiting(name)
    assert waiting is not None
    return waiting.message


def placed_by(events: Any) -> list[str]:
    return [event.data.name for event in events if isinstance(event.data, Placement)]


def test_a_gang_waits_until_its_minimum_is_there_and_is_then_placed_by_one_decision() -> None:
    story = story_with(node("a", cpu="4"))
    story.pods(member("p0"), member("p1"))
    story.settle()
    assert not story.placed()
    assert message(story, "p0") == (
        "gangGroup [default/g] basic check: memberGangs [default/g] child pod not collect enough, "
        "current gang: default/g, podName: default/p0"
    )
    story.pod(member("p2"))
    assert placed_by(story.decide()) == ["p0", "p1", "p2"]


def test_a_placement_of_a_gang_names_it() -> None:
    story = story_with(node("a", cpu="4"))
    story.pods(*(member(f"p{i}") for i in range(3)))
    story.settle()
    placement = story.placement("p1")
    assert placement is not None
    assert placement.allocation is not None
    assert placement.allocation.gang == "default/g"


def test_a_gang_that_does_not_fit_leaves_everything_as_it_was_and_says_which_member_does_not() -> None:
    story = story_with(node("a", cpu="2"))
    story.pods(*(member(f"p{i}") for i in range(3)))
    story.settle()
    assert not story.placed()
    assert message(story, "p0") == (
        'GangGroup "default/g" gets rejected due to member Pod "default/p2" is unschedulable with reason '
        '"0/1 nodes are available: 1 Insufficient cpu.", alreadyWaitForBound: 2.'
    )
    story.pod(pod("other", cpu="2", memory="1Mi"))
    story.settle()
    assert set(story.placed()) == {"other"}, "nothing is held for a gang that waits"


def test_members_beyond_the_minimum_come_along_where_they_fit() -> None:
    story = story_with(node("a", cpu="4"))
    story.pods(*(member(f"p{i}") for i in range(5)))
    assert placed_by(story.decide()) == ["p0", "p1", "p2", "p3"]
    story.settle()
    story.node(node("b", cpu="1"))
    story.settle()
    assert set(story.placed()) == {"p0", "p1", "p2", "p3", "p4"}


def test_a_strict_gang_waits_for_its_first_member_that_fits_nowhere_and_a_non_strict_one_tries_the_others() -> None:
    for mode, expected in (("Strict", set()), ("NonStrict", {"p1", "p2"})):
        story = story_with(node("a", cpu="4"))
        story.pods(member("p0", least=2, cpu="8", mode=mode), *(member(f"p{i}", least=2, mode=mode) for i in (1, 2)))
        story.settle()
        assert set(story.placed()) == expected


def test_a_pod_group_states_what_its_gang_needs_whatever_comes_first() -> None:
    story = story_with(node("a", cpu="4"))
    story.pods(in_pod_group("p0"), in_pod_group("p1"))
    story.settle()
    assert message(story, "p0") == "gang has not init, gangName: default/g, podName: default/p0"
    pod_group(story, least=3)
    story.later(31)
    story.settle()
    assert "child pod not collect enough" in message(story, "p0")
    pod_group(story, least=2)
    story.settle()
    assert set(story.placed()) == {"p0", "p1"}


def test_a_smaller_minimum_lets_a_gang_be_tried_again() -> None:
    story = story_with(node("a", cpu="2"))
    pod_group(story, least=3)
    story.pods(*(in_pod_group(f"p{i}") for i in range(3)))
    story.settle()
    assert not story.placed()
    pod_group(story, least=2)
    story.settle()
    assert set(story.placed()) == {"p0", "p1"}


def test_gangs_of_one_group_are_placed_together() -> None:
    groups = '["default/a","default/b"]'
    story = story_with(node("n", cpu="3"))
    story.pods(member("a0", "a", 1, groups=groups), member("a1", "a", 1, groups=groups))
    story.settle()
    assert "memberGangs [default/b] doesn't exists" in message(story, "a0")
    story.pods(member("b0", "b", 2, groups=groups), member("b1", "b", 2, groups=groups))
    story.settle()
    assert not story.placed(), "room for a, but not for both"
    story.node(node("m", cpu="1"))
    assert sorted(placed_by(story.decide())) == ["a0", "a1", "b0", "b1"]


def test_a_gang_that_was_placed_once_gets_its_replacements_one_by_one() -> None:
    story = story_with(node("a", cpu="3"))
    story.pods(*(member(f"p{i}") for i in range(3)))
    story.settle()
    story.pod_deleted("p1")
    story.settle()
    story.pod(member("p9"))
    story.settle()
    assert set(story.placed()) == {"p0", "p2", "p9"}


@pytest.mark.parametrize(("policy", "expected"), [("only-waiting", False), ("waiting-and-running", True)])
def test_match_policies_say_whether_running_members_count(policy: str, expected: bool) -> None:
    story = story_with(node("a", cpu="3"))
    story.pods(*(member(f"p{i}", policy=policy) for i in range(3)))
    story.settle()
    assert len(story.placed()) == 3
    story.pod_deleted("p1")
    story.settle()
    story.pod(member("p9", policy=policy))
    story.settle()
    assert ("p9" in story.placed()) is expected


def test_what_pods_state_is_taken_from_the_oldest_with_a_minimum_whichever_came_first() -> None:
    old, new, wrong = member("p1", least=2), member("p0", least=5), member("p2", least=1)
    old["metadata"]["creationTimestamp"] = "2026-01-01T10:00:00Z"
    wrong["metadata"] |= {"creationTimestamp": "2026-01-01T09:00:00Z"}
    wrong["metadata"]["annotations"][ANNOTATION_GANG_MIN] = "two"
    for order in ((old, new, wrong), (wrong, new, old), (new, wrong, old)):
        story = story_with(node("a", cpu="9"))
        story.pods(*order)
        assert len(placed_by(story.decide())) == 3
        spec = story.core.gangs.gangs["default/g"].spec
        assert spec is not None
        assert spec.min_member == 2


def test_a_gang_ends_with_its_members_and_its_pod_group() -> None:
    story = story_with(node("a", cpu="1"))
    pod_group(story)
    story.pods(in_pod_group("p0"), member("q0", "h"))
    story.settle()
    story.pod_deleted("p0")
    story.pod_deleted("q0")
    story.settle()
    assert set(story.core.gangs.gangs) == {"default/g"}
    story.say(object_subject(*POD_GROUPS, "default", "g"), ObjectDeleted(), tombstone=True)
    story.settle()
    assert not story.core.gangs.gangs
    assert not story.core.gangs.of_pod


@pytest.mark.parametrize("seed", range(20))
def test_no_decision_places_half_a_gang_and_a_restart_decides_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.groups.trials.WORTHWHILE", 2)
    chance = random.Random(seed)
    story = story_with(*(node(f"n{i}", cpu=str(chance.randint(1, 6))) for i in range(4)))
    least = {gang: chance.randint(1, 5) for gang in "abc"}
    alive: dict[str, str] = {}
    for number in range(40):
        if alive and chance.random() < 0.3:
            name = chance.choice(sorted(alive))
            del alive[name]
            story.pod_deleted(name)
        else:
            gang = chance.choice("abc")
            name = f"{gang}{number}"
            alive[name] = gang
            mode = chance.choice(["Strict", "NonStrict"])
            story.pod(member(name, gang, least[gang], cpu=chance.choice(["1", "2"]), mode=mode))
        story.later(1)
        before = set(story.placed())
        again = story.reloaded().decide(story.now)
        decided = story.decide()
        assert placed_by(again) == placed_by(decided)
        new = set(placed_by(decided)) - before
        for gang, needed in least.items():
            had = [one for one in before if one.startswith(gang)]
            got = [one for one in new if one.startswith(gang)]
            assert had or not got or len(got) >= needed, "the first members of a gang come all at once"
        story.settle()


# -- the status of a PodGroup --------------------------------------------------------------------------------------------


def status(story: Story, name: str = "g") -> PodGroupStatus:
    event = story.last[pod_group_subject("default", name)]
    assert isinstance(event.data, PodGroupStatus)
    assert not event.tombstone
    return event.data


def run(story: Story, name: str, phase: RunPhase) -> None:
    story.say(
        run_subject("a", "default", name),
        RunStatus(node="a", namespace="default", name=name, uid=f"uid-{name}", phase=phase),
    )


def test_the_status_of_a_pod_group_follows_its_pods() -> None:
    story = story_with(node("a", cpu="4"))
    pod_group(story, least=2)
    story.settle()
    assert status(story).phase == "Pending"
    story.pods(in_pod_group("p0"), in_pod_group("p1"), in_pod_group("p2"))
    story.later(1)
    story.settle()
    story.later(1)
    story.settle()
    assert (status(story).phase, status(story).scheduled, status(story).pods) == ("Scheduled", 3, 3)
    for name in ("p0", "p1"):
        run(story, name, RunPhase.RUNNING)
    story.later(1)
    story.settle()
    assert (status(story).phase, status(story).running) == ("Running", 2)
    for name in ("p0", "p1"):
        run(story, name, RunPhase.SUCCEEDED)
    story.later(1)
    story.settle()
    assert (status(story).phase, status(story).succeeded) == ("Finished", 2)
    assert not story.reloaded().decide(story.now), "what is stored is not stored again"


def test_the_status_of_a_pod_group_is_stored_at_most_once_a_second() -> None:
    story = story_with(node("a", cpu="9"))
    pod_group(story, least=2)
    story.settle()
    for number in range(5):
        story.pod(in_pod_group(f"p{number}"))
        story.settle()
    assert status(story).pods == 0
    story.later(1)
    story.settle()
    assert status(story).pods == 5


def test_the_status_ends_with_the_pod_group() -> None:
    story = story_with(node("a", cpu="1"))
    pod_group(story)
    story.settle()
    story.say(object_subject(*POD_GROUPS, "default", "g"), ObjectDeleted(), tombstone=True)
    story.settle()
    assert story.last[pod_group_subject("default", "g")].tombstone
    assert not story.reloaded().decide(story.now)


def test_a_gang_that_nodes_and_a_quota_refuse_is_tried_again_as_soon_as_a_node_takes_what_it_needs() -> None:
    taint = {"key": "maintenance", "value": "", "effect": "NoSchedule"}
    story = story_with(node("a", cpu="4", taints=[taint]))
    story.quota("q", max={"cpu": 1000})
    refused = member("p1", least=1, cpu="2", mode="NonStrict")
    refused["metadata"]["labels"] = {"quota.scheduling.koordinator.sh/name": "q"}
    story.pods(member("p0", least=1, mode="NonStrict"), refused)
    story.settle()
    assert not story.placed()
    story.node(node("a", cpu="4"))
    story.settle()
    assert set(story.placed()) == {"p0"}


@pytest.mark.parametrize("order", [("1", "1", "1", "2"), ("2", "1", "1", "1"), ("1", "1", "2", "2"), ("1", "2", "1", "1")])
def test_members_that_are_placed_at_once_and_one_by_one_come_together(
    order: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cotenant_scheduler.cycle.groups.trials.WORTHWHILE", 2)
    for cpu, expected in (("6", ["p0", "p1", "p2", "p3"]), ("4", [])):
        story = story_with(node("a", cpu=cpu))
        story.pods(*(member(f"p{index}", least=4, cpu=each) for index, each in enumerate(order)))
        assert placed_by(story.decide()) == expected
        story.settle()
        assert sorted(story.placed()) == expected
        story.pod(pod("other", cpu=cpu, memory="1Mi"))
        story.settle()
        assert ("other" in story.placed()) is (not expected)

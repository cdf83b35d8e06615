"""Which pods a pre-allocating reservation takes: those that it is for and that stay where they are, as few as will do."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import Placement
from cotenant.model.subjects import placement_subject
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod

WEB = {"app": "web"}


def taking(name: str = "r", *, many: bool = False, **more: Any) -> dict[str, Any]:
    policy = {"enableMultiple": many}
    spec = {"allocatePolicy": "Restricted", "allocateOnce": False, "preAllocation": True, "preAllocationPolicy": policy}
    return reservation(name, **{"cpu": "4", "memory": "8Gi", **spec, **more})


def put(name: str, where: str, cpu: str = "4", memory: str = "1Mi", **more: Any) -> dict[str, Any]:
    """A pod that is for such reservations and is on a node."""
    return pod(name, cpu=cpu, memory=memory, nodeName=where, **{"labels": WEB, **more})


def story_of(**cpus: str) -> ReservedStory:
    story = ReservedStory()
    story.nodes(*(node(name, cpu=cpu, memory="64Gi") for name, cpu in cpus.items()))
    return story


def share_of(story: ReservedStory, name: str = "r") -> str:
    share = story.share(name)
    return share.node if share is not None else ""


def test_a_pod_that_any_of_its_rules_matches_is_taken() -> None:
    story = story_of(a="4")
    story.pod(put("web-0", "a"))
    story.settle()
    rules = [{"labelSelector": {"matchLabels": {"app": app}}} for app in ("db", "web")]
    story.reservation(taking(owners=rules))
    story.settle()
    assert (share_of(story), story.used("web-0")) == ("a", "r")


@pytest.mark.parametrize(
    ("selector", "used"),
    [
        ({"matchLabels": {"app": "web", "tier": "front"}}, ""),
        ({"matchLabels": {"app": "web"}}, "r"),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, "r"),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}, ""),
    ],
)
def test_a_rule_holds_with_all_its_terms(selector: dict[str, Any], used: str) -> None:
    story = story_of(a="4")
    story.pod(put("web-0", "a"))
    story.settle()
    story.reservation(taking(owners=[{"labelSelector": selector}]))
    story.settle()
    assert story.used("web-0") == used


def test_no_more_is_freed_than_the_pods_take() -> None:
    story = story_of(a="5", b="5")
    story.pods(put("small", "a", "2"), put("rest-a", "a", "3", labels={}), put("exact", "b", "3"))
    story.pod(put("rest-b", "b", "1", labels={}))
    story.settle()
    story.reservation(taking())
    story.settle()
    # Without 2 of its 5 CPUs a has room for 2 of the 4 that are reserved; without 3 of them b has room for 4.
    assert (share_of(story), story.used("small"), story.used("exact")) == ("b", "", "r")
    assert (story.requested("a"), story.requested("b")) == (5000, 5000)


def test_what_neither_requests_is_left_alone() -> None:
    story = story_of(a="4")
    unit: dict[str, Any] = {"example.com/unit": "1"}
    story.node(node("a", cpu="4", memory="64Gi", **unit))
    story.pods(put("web-0", "a"), pod("unit", requests={"example.com/unit": "1"}, nodeName="a"))
    story.settle()
    story.reservation(taking(requests={"cpu": "4", "memory": "8Gi", **unit}))
    story.settle()
    assert story.phase("r") == "Pending", "the unit is another pod's"
    story.pod_deleted("unit")
    story.settle()
    assert (share_of(story), story.used("web-0")) == ("a", "r")


def test_a_pod_whose_run_has_ended_or_that_is_replaced_is_not_taken() -> None:
    story = story_of(a="4")
    story.pod(put("web-0", "a"))
    story.executor("a")
    story.settle()
    story.run("a", "web-0", RunPhase.RUNNING)
    story.pod(put("web-0", "a", uid="another"))
    story.settle()
    story.reservation(taking(labels={f"{GROUP}/pre-allocation-required": "true"}))
    story.settle()
    assert share_of(story) == "", "the first one is still ending there"
    story.run("a", "web-0", RunPhase.SUCCEEDED)
    story.settle()
    assert share_of(story) == "a"
    assert [placed.uid for placed in story.owners_of("uid-r")] == ["another"]
    story.run("a", "web-0", RunPhase.SUCCEEDED, uid="another")
    story.reservation(taking("late", labels={f"{GROUP}/pre-allocation-required": "true"}))
    story.settle()
    assert share_of(story, "late") == ""


def test_a_pod_that_is_deleted_is_not_taken_while_it_ends() -> None:
    story = story_of(a="4")
    story.executor("a")
    story.pod(put("web-0", "a"))
    story.settle()
    story.run("a", "web-0", RunPhase.RUNNING)
    story.pod_deleted("web-0")
    story.reservation(taking(labels={f"{GROUP}/pre-allocation-required": "true"}))
    story.settle()
    assert (share_of(story), story.node_of("web-0")) == ("", "a")


def test_a_pod_whose_requests_cannot_be_read_is_not_taken() -> None:
    story = story_of(a="4")
    story.pod(put("web-0", "a"))
    story.settle()
    story.pod(put("web-0", "a", requests={"cpu": "-1"}))
    story.reservation(taking(labels={f"{GROUP}/pre-allocation-required": "true"}))
    story.settle()
    assert (share_of(story), story.node_of("web-0")) == ("", "a")


def test_a_reservation_is_not_taken_by_one_that_its_pod_template_matches() -> None:
    story = story_of(a="4")
    story.reservation(reservation("first", cpu="4", memory="8Gi"))
    story.settle()
    story.reservation(taking(owners=[{"labelSelector": {"matchLabels": {"reserve": "first"}}}]))
    story.settle()
    assert (share_of(story, "first"), share_of(story)) == ("a", "")


def test_a_pod_that_is_on_two_nodes_is_not_taken() -> None:
    story = story_of(a="4", b="4")
    story.pods(put("web-0", "a"))
    story.settle()
    first = story.placement("web-0")
    assert isinstance(first, Placement)
    story.say(placement_subject("b", "default", "web-0"), msgspec.structs.replace(first, node="b"))
    story.reservation(taking(labels={f"{GROUP}/pre-allocation-required": "true"}))
    story.settle()
    assert share_of(story) == ""


def test_a_node_that_is_gone_and_one_without_such_pods_are_passed_by() -> None:
    story = story_of(a="4", b="4", c="4")
    for name in "abc":
        story.executor(name)
    story.pods(put("web-a", "a"), put("other", "b", labels={}), put("web-c", "c"))
    story.settle()
    story.run("a", "web-a", RunPhase.SUCCEEDED)
    story.node_deleted("a")
    story.settle()
    story.reservation(taking())
    story.settle()
    assert (share_of(story), story.used("web-c")) == ("c", "r")


def test_the_fewest_pods_are_taken_wherever_they_are() -> None:
    story = story_of(a="4", b="4", c="4")
    story.pods(*(put(f"a-{index}", "a", "1") for index in range(4)))
    story.pods(*(put(f"b-{index}", "b", "2") for index in range(2)))
    story.pods(*(put(f"c-{index}", "c", "4") for index in range(1)))
    story.settle()
    for name, where in (("first", "c"), ("second", "b"), ("third", "a")):
        story.reservation(taking(name, many=True))
        story.settle()
        assert share_of(story, name) == where


def test_pods_are_compared_by_what_they_take_of_what_is_held() -> None:
    """A part of a resource counts, not its amount: bytes are many."""
    story = story_of(a="6")
    story.pods(put("half", "a", "3", "1Gi"), put("third", "a", "1", "3Gi"), put("rest", "a", "2", labels={}))
    story.settle()
    story.reservation(taking(many=True, requests={"cpu": "3", "memory": "9Gi", "example.com/none": "0"}))
    story.settle()
    assert (story.used("half"), story.used("third")) == ("r", "")

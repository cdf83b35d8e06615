"""Reservations that take the room of pods that run already."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant_scheduler.core import SchedulerCore
from tests.unit.scheduler.builders_reservations import GROUP, ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod

WEB = {"app": "web"}
ONLY = {f"{GROUP}/pre-allocation-required": "true"}


def taking(name: str = "r", *, cpu: str = "4", many: bool = False, **more: Any) -> dict[str, Any]:
    policy = {"enableMultiple": many}
    spec = {"allocatePolicy": "Restricted", "allocateOnce": False, "preAllocation": True, "preAllocationPolicy": policy}
    return reservation(name, cpu=cpu, memory="8Gi", **{**spec, **more})


def story_with(*pods: dict[str, Any], nodes: int = 1, cpu: str = "8") -> ReservedStory:
    story = ReservedStory()
    story.nodes(*(node(f"n{i}", cpu=cpu, memory="64Gi") for i in range(1, nodes + 1)))
    for document in pods:
        story.pod(document)
        story.settle()
    return story


def loads(core: SchedulerCore, node_name: str) -> list[list[int]]:
    """The estimated usage of a node: for its thresholds, for those of prod, for scoring; by resource."""
    core.settle()
    row, load = core.nodes.rows[node_name], core.nodes.load
    return [view[:, row].tolist() for view in (load.node_view, load.prod_view, load.score_view)]


@pytest.mark.parametrize("measured", [False, True])
def test_the_load_of_a_pod_whose_room_is_taken_counts_once(measured: bool) -> None:
    story = story_with(pod("web", cpu="4", labels=WEB), pod("other", cpu="1"), cpu="8")
    story.later(300)
    if measured:
        # 4.9 of 8 CPUs are used: a second pod like web is over 65 %.
        story.metric("n1", 4900, 1 << 30, web=(3400, 1 << 29), other=(850, 1 << 29))
    else:
        story.metric("n1", 500, 1 << 30)
    before = loads(story.core, "n1")
    story.reservation(taking(labels=ONLY))
    story.settle()
    assert (story.phase("r"), story.used("web")) == ("Available", "r")
    assert loads(story.core, "n1") == loads(story.reloaded(), "n1") == before
    story.pod(pod("more", cpu="2", labels={"app": "x"}))
    story.settle()
    assert story.node_of("more") is None


def test_the_load_of_the_other_pods_counts_for_a_reservation_that_takes_a_pod() -> None:
    story = story_with(pod("web", cpu="4", labels=WEB), cpu="8")
    story.later(300)
    story.metric("n1", 6000, 1 << 30, web=(3400, 1 << 29))
    story.reservation(taking(labels=ONLY))
    story.settle()
    assert story.phase("r") == "Pending"


def test_it_takes_the_room_of_a_pod_that_it_is_for() -> None:
    story = story_with(pod("web-0", cpu="4", labels=WEB), pod("other", cpu="4"))
    story.reservation(taking())
    story.settle()
    share = story.share("r")
    assert share is not None
    assert (share.node, story.used("web-0"), story.used("other")) == ("n1", "r", "")
    assert story.requested("n1") == 8000
    story.later(2)
    story.settle()
    share = story.share("r")
    assert share is not None
    assert [owner.name for owner in share.owners] == ["web-0"]
    assert story.settle() == []


def test_the_room_stays_reserved_when_the_pod_ends() -> None:
    story = story_with(pod("web-0", cpu="4", labels=WEB), pod("other", cpu="4"))
    story.reservation(taking())
    story.settle()
    story.run("n1", "web-0", RunPhase.SUCCEEDED, uid="uid-web-0")
    story.pod(pod("stranger", cpu="2"))
    story.settle()
    assert (story.requested("n1"), story.node_of("stranger")) == (8000, None)
    story.pod(pod("web-1", cpu="4", labels=WEB))
    story.settle()
    assert story.used("web-1") == "r"


def test_free_room_is_taken_first_unless_pods_are_required() -> None:
    story = story_with(pod("web-0", cpu="4", labels=WEB), nodes=2)
    story.reservation(taking("free"))
    story.settle()
    assert story.phase("free") == "Available"
    assert story.used("web-0") == ""
    story.reservation(taking("required", labels=ONLY))
    story.settle()
    share = story.share("required")
    assert share is not None
    assert (share.node, story.used("web-0")) == (story.node_of("web-0"), "required")


def test_free_room_beside_such_a_pod_is_taken_first() -> None:
    story = story_with(pod("web-0", cpu="4", labels=WEB))
    story.reservation(taking())
    story.settle()
    assert (story.phase("r"), story.used("web-0"), story.requested("n1")) == ("Available", "", 8000)


def test_one_that_must_take_a_pod_waits_until_there_is_one() -> None:
    story = story_with()
    story.reservation(taking(labels=ONLY))
    story.settle()
    story.later(1)
    story.settle()
    status = story.status("r")
    assert status is not None
    assert status.message == "no node has pods that it is for, whose room it can take"
    # An owner that comes does not wait for it, and is what it waits for.
    story.pod(pod("web-0", cpu="3", labels=WEB))
    story.settle()
    assert (story.phase("r"), story.used("web-0")) == ("Available", "r")


def test_it_takes_one_pod_or_several() -> None:
    pods = [pod(f"web-{i}", cpu="2", labels=WEB) for i in range(4)]
    story = story_with(*pods)
    story.reservation(taking("one"))
    story.settle()
    assert story.phase("one") == "Pending"
    story.reservation(taking("several", many=True))
    story.settle()
    assert story.phase("several") == "Available"
    assert sorted(story.used(f"web-{i}") for i in range(4)) == ["", "", "several", "several"]
    assert story.requested("n1") == 8000


def test_the_node_where_the_fewest_pods_are_taken_is_chosen() -> None:
    story = ReservedStory()
    story.node(node("n1", cpu="8", memory="64Gi"))
    for name in ("a", "b", "c", "d"):
        story.pod(pod(name, cpu="2", labels=WEB))
    story.settle()
    story.node(node("n2", cpu="8", memory="64Gi"))
    story.pod(pod("large", cpu="4", labels=WEB))
    story.pod(pod("rest", cpu="4"))
    story.settle()
    story.reservation(taking(many=True))
    story.settle()
    share = story.share("r")
    assert share is not None
    assert (share.node, story.used("large")) == ("n2", "r")


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (pod("p", cpu="5", labels=WEB), "it is larger than the reservation"),
        (pod("p", cpu="4", labels={"app": "x"}), "it is for others"),
        (pod("p", cpu="4", labels=WEB, deleting=True), "it ends"),
    ],
)
def test_pods_that_are_not_taken(document: dict[str, Any], why: str) -> None:
    story = story_with(pod("p", cpu=document["spec"]["containers"][0]["resources"]["requests"]["cpu"], labels=WEB), cpu="6")
    story.run("n1", "p", RunPhase.RUNNING, uid="uid-p")
    story.pod(document)
    story.reservation(taking())
    story.settle()
    assert story.phase("r") == "Pending", why


def test_a_pod_belongs_to_one_reservation() -> None:
    story = story_with(pod("web-0", cpu="4", labels=WEB), cpu="4")
    story.reservation(taking("first"))
    story.settle()
    story.reservation(taking("second"))
    story.settle()
    assert (story.used("web-0"), story.phase("second")) == ("first", "Pending")


def test_a_pod_is_taken_by_one_of_two_reservations_that_come_together() -> None:
    story = story_with(pod("web-0", cpu="4", labels=WEB), cpu="20")
    for name in ("first", "second"):
        story.reservation(taking(name, labels=ONLY))
    decided = story.decide()
    assert len({event.subject for event in decided}) == len(decided)
    story.settle()
    assert (story.used("web-0"), story.phase("second")) == ("first", "Pending")
    story.pod(pod("web-1", cpu="4", labels=WEB))
    story.settle()
    assert story.used("web-1") == "second"


def test_alike_reservations_of_which_one_pre_allocates_do_not_refuse_each_other() -> None:
    story = story_with(pod("web-0", cpu="4", labels=WEB), cpu="4")
    story.reservation(reservation("plain", cpu="4", memory="8Gi", created="2026-01-01T10:00:00Z", allocatePolicy="Restricted"))
    story.reservation(taking())
    story.settle()
    assert (story.phase("plain"), story.phase("r")) == ("Pending", "Available")


def test_a_restart_finds_the_same() -> None:
    story = story_with(pod("web-0", cpu="4", labels=WEB), pod("other", cpu="4"))
    story.reservation(taking())
    story.settle()
    story.later(2)
    story.settle()
    story.core = story.reloaded(sorted(story.last, reverse=True))
    assert story.settle() == []
    assert story.requested("n1") == 8000


def small(name: str, cpu: str, memory: str = "1Mi") -> dict[str, Any]:
    return pod(name, cpu=cpu, memory=memory, labels=WEB)


@pytest.mark.parametrize(("count", "phase"), [(16, "Available"), (17, "Pending")])
def test_it_takes_sixteen_pods_at_most(count: int, phase: str) -> None:
    size = f"{count * 250}m"
    story = story_with(*(small(f"web-{index:02}", "250m") for index in range(count)), cpu=size)
    story.reservation(taking(cpu=size, many=True))
    story.settle()
    assert story.phase("r") == phase
    assert sum(story.used(f"web-{index:02}") == "r" for index in range(count)) == (16 if phase == "Available" else 0)


def test_the_largest_by_any_resource_are_taken_first_and_those_that_no_longer_fit_are_left_out() -> None:
    story = ReservedStory()
    story.node(node("n1", cpu="8", memory="8Gi"))
    story.pods(small("web-a", "2", "1Gi"), small("web-b", "1", "6Gi"), pod("other", cpu="1", memory="1Gi"))
    story.settle()
    story.reservation(taking(many=True, requests={"cpu": "4", "memory": "6Gi"}))
    story.settle()
    assert (story.used("web-a"), story.used("web-b")) == ("", "r"), "three quarters of memory, half of CPU"
    story = story_with(small("web-1", "1"), small("web-2", "2"), small("web-3", "3"), cpu="6")
    story.reservation(taking(many=True))
    story.settle()
    assert [story.used(f"web-{cpu}") for cpu in (1, 2, 3)] == ["r", "", "r"], "3 and 2 are more than 4"


def test_of_nodes_where_as_many_are_taken_the_first_by_name_is_chosen_and_nodes_without_such_pods_are_passed_by() -> None:
    story = ReservedStory()
    for name in ("n0", "n2", "n1"):
        story.node(node(name, cpu="4", memory="64Gi"))
    for where in ("n2", "n1"):
        for index in range(2):
            document = small(f"web-{where}-{index}", "2")
            document["spec"]["nodeName"] = where
            story.pod(document)
    story.pod(pod("other", cpu="4", memory="1Mi", nodeName="n0"))
    story.settle()
    story.reservation(taking(many=True))
    story.settle()
    share = story.share("r")
    assert share is not None
    assert share.node == "n1"
    assert [story.used(f"web-{where}-0") for where in ("n1", "n2")] == ["r", ""]


def test_pods_that_use_a_reservation_or_are_one_are_not_taken() -> None:
    story = story_with(cpu="4")
    story.reservation(reservation("first", cpu="4", memory="8Gi", allocateOnce=False))
    story.settle()
    story.pod(small("web-0", "4"))
    story.settle()
    assert story.used("web-0") == "first"
    story.reservation(taking())
    story.settle()
    assert story.phase("r") == "Pending"


@pytest.mark.parametrize("changed", [{"allocatePolicy": "Aligned"}, {"preAllocation": False}])
def test_one_that_is_not_restricted_or_does_not_ask_for_it_takes_no_pods(changed: dict[str, Any]) -> None:
    story = story_with(small("web-0", "4"), cpu="4")
    story.reservation(taking(**changed))
    story.settle()
    assert (story.phase("r"), story.used("web-0")) == ("Pending", "")

"""Room is kept for the head of the queue inside reservations, where their users, or pods beside them, end by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.domain.gangs import ANNOTATION_GANG_MIN, ANNOTATION_GANG_NAME
from cotenant.events.node.runs import RunPhase
from cotenant.events.placements import condition_message
from cotenant_scheduler.cycle.ordering.coming_rooms import CANDIDATES, ROWS
from cotenant_scheduler.framework.queue_args import QueueArgs
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_reservations import AFFINITY, ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import as_stored, node
from tests.unit.scheduler.cycle.test_network_topology import BLOCK, SPINE, network, rules
from tests.unit.scheduler.cycle.test_queue_head import job, service

WEB: dict[str, Any] = {"labels": {"app": "web"}}
OF_WEB: dict[str, Any] = {**WEB, "annotations": wants()}
"""A pod that goes into a reservation or nowhere."""


def story_of(**nodes: str) -> ReservedStory:
    """Nodes by name with so many CPUs."""
    story = ReservedStory(SchedulerConfig(queue=QueueArgs()))
    for name, cpu in nodes.items():
        story.node(node(name, cpu=cpu, labels={"own": name}))
        story.executor(name)
    return story


def reserve(story: ReservedStory, name: str, where: str, cpu: str, **more: Any) -> None:
    own: dict[str, Any] = {"memory": "1Gi", "allocateOnce": False, "template": {"nodeSelector": {"own": where}}, **more}
    story.reservation(reservation(name, cpu=cpu, **own))
    story.settle()
    assert story.share(name) is not None


def run(story: ReservedStory, *documents: dict[str, Any]) -> None:
    for document in documents:
        story.pod(document)
        story.settle()
        assert story.node_of(document["metadata"]["name"]) is not None


def kept(story: ReservedStory, *names: str) -> list[tuple[str, str] | None]:
    """The node and the reservation in which pods are kept room."""
    found: list[tuple[str, str] | None] = []
    for name in names or ("head",):
        waiting = story.waiting(name)
        hold = waiting.hold if waiting is not None else None
        used = hold.reservation if hold is not None else None
        found.append((hold.node, used.name if used is not None else "") if hold is not None else None)
    return found


def head(story: ReservedStory, cpu: str, **more: Any) -> list[tuple[str, str] | None]:
    story.pod(job("head", cpu, **more))
    story.settle()
    assert story.node_of("head") is None
    return kept(story)


def ends(story: ReservedStory, *names: str) -> None:
    for name in names:
        placement = story.placement(name)
        assert placement is not None
        story.run(placement.node, name, RunPhase.SUCCEEDED, uid=placement.uid)
    story.settle()


# -- where room comes -------------------------------------------------------------------------------------------------


def test_users_that_end_give_their_room_to_a_head_that_must_use_the_reservation() -> None:
    story = story_of(a="4")
    reserve(story, "r", "a", "4")
    run(story, job("j", "3", **OF_WEB))
    assert head(story, "4", **OF_WEB) == [("a", "r")]
    waiting = story.waiting("head")
    assert waiting is not None
    assert "In the queue: room is kept on a in reservation r, as it is first in the queue." in condition_message(waiting)
    # It fits beside the user, and without the room it would take the place of the next one that ends, again and again.
    story.pods(job("small", "1", created="2026-01-01T11:30:00Z", **OF_WEB))
    story.settle()
    assert story.node_of("small") is None
    ends(story, "j")
    assert (story.node_of("head"), story.used("head")) == ("a", "r")


def test_services_that_use_it_do_not_end() -> None:
    story = story_of(a="4")
    reserve(story, "r", "a", "4")
    run(story, service("s", "3", **OF_WEB))
    assert head(story, "4", **OF_WEB) == [None]
    # As no room comes for it, it blocks nobody.
    run(story, job("small", "1", created="2026-01-01T11:30:00Z", **OF_WEB))


@pytest.mark.parametrize(("policy", "found"), [("", ("a", "r")), ("Aligned", ("a", "r")), ("Restricted", None)])
def test_what_ends_beside_a_reservation_adds_to_it_unless_it_is_restricted(policy: str, found: tuple[str, str] | None) -> None:
    story = story_of(a="8")
    reserve(story, "r", "a", "4", **({"allocatePolicy": policy} if policy else {}))
    run(story, job("j", "4"))
    # With what is left of the reservation it lacks two CPUs; beside it six, of which four come.
    assert head(story, "6", **WEB) == [found]
    if found is not None:
        ends(story, "j")
        assert story.used("head") == "r"


def test_what_ends_in_a_reservation_of_others_comes_to_no_other_pod() -> None:
    story = story_of(a="8", b="5")
    reserve(story, "r", "a", "4", owners=[{"labelSelector": {"matchLabels": {"app": "db"}}}])
    run(story, job("j", "4", labels={"app": "db"}), service("s", "2", nodeName="a"), job("k", "5", nodeName="b"))
    assert story.used("j") == "r"
    assert head(story, "4", **WEB) == [("b", "")], "it lacks less of node a, but that will not come"


def test_room_beside_is_kept_where_less_of_it_is_short() -> None:
    story = story_of(a="8", b="8")
    reserve(story, "r", "a", "4", allocatePolicy="Restricted")
    run(story, job("j", "4", **OF_WEB), service("s", "4", nodeName="a"), job("k", "7", nodeName="b"))
    assert head(story, "3", **WEB) == [("b", "")], "two of eight, three of eight in the reservation"
    story = story_of(a="8", b="8")
    reserve(story, "r", "a", "4", allocatePolicy="Restricted")
    run(story, job("j", "4", **OF_WEB), service("s", "4", nodeName="a"), job("k", "8", nodeName="b"))
    assert head(story, "3", **WEB) == [("a", "r")], "equal parts: in the reservation"


def test_of_reservations_that_with_the_smallest_part_short_then_the_first_node() -> None:
    story = story_of(a="8", b="8", c="8")
    for name in "abc":
        reserve(story, f"r-{name}", name, "4", allocatePolicy="Restricted")
    run(story, *(job(f"j-{name}", "4", **{**WEB, "annotations": wants(name=f"r-{name}")}) for name in "abc"))
    assert head(story, "4", **OF_WEB) == [("a", "r-a")]
    story.pod_deleted("head")
    ends(story, "j-b")
    run(story, job("k-b", "2", **{**WEB, "annotations": wants(name="r-b")}))
    assert head(story, "4", **OF_WEB) == [("b", "r-b")], "two CPUs of it are short, four of the others"


def test_a_pod_whose_demands_cannot_be_read_is_kept_no_room() -> None:
    story = story_of(a="8")
    reserve(story, "r", "a", "4")
    run(story, job("j", "4", **OF_WEB))
    assert head(story, "2", labels={"app": "web"}, annotations={AFFINITY: "{"}) == [None]


@pytest.mark.parametrize(("others", "found"), [(CANDIDATES - 1, "z"), (CANDIDATES, None)])
def test_a_bounded_number_of_reservations_is_looked_at(others: int, found: str | None) -> None:
    assert CANDIDATES < ROWS
    names = [f"n{index:02}" for index in range(others)]
    story = story_of(**dict.fromkeys([*names, "z"], "4"))
    for name in [*names, "z"]:
        reserve(story, f"r-{name}", name, "4", allocatePolicy="Restricted")
        kind = job if name == "z" else service
        run(story, kind(f"u-{name}", "4", **{**WEB, "annotations": wants(name=f"r-{name}")}))
    assert head(story, "4", **OF_WEB) == [(found, f"r-{found}") if found else None]


# -- how long ---------------------------------------------------------------------------------------------------------


def test_another_room_is_chosen_where_the_reservation_ends() -> None:
    story = story_of(a="4", b="4")
    for name in "ab":
        reserve(story, f"r-{name}", name, "4")
        run(story, job(f"j-{name}", "4", **{**WEB, "annotations": wants(name=f"r-{name}")}))
    assert head(story, "4", **OF_WEB) == [("a", "r-a")]
    story.reservation_deleted("r-a")
    story.settle()
    assert kept(story) == [("b", "r-b")]


def test_a_restart_keeps_it_and_a_decision_leaves_nothing() -> None:
    story = story_of(a="8")
    reserve(story, "r", "a", "4")
    run(story, job("j", "4", **OF_WEB), job("k", "4"))
    assert head(story, "6", **WEB) == [("a", "r")]
    table = story.core.nodes.requested.tolist()
    assert as_stored(story.core.decide(story.now)) == []
    assert story.core.nodes.requested.tolist() == table
    story.core = story.reloaded(sorted(story.last, reverse=True))
    assert story.settle() == []
    assert kept(story) == [("a", "r")]
    share = story.share("r")
    assert share is not None
    assert [owner.name for owner in share.owners] == ["j"], "the head is no owner yet"


def test_an_unused_reservation_that_is_used_once_is_kept_for_the_head_alone() -> None:
    story = story_of(a="8")
    reserve(story, "r", "a", "4", allocateOnce=True)
    run(story, job("j", "4"))
    assert head(story, "6", **WEB) == [("a", "r")]
    story.pod(job("small", "1", created="2026-01-01T11:30:00Z", **OF_WEB))
    story.settle()
    assert story.node_of("small") is None
    ends(story, "j")
    assert (story.node_of("head"), story.used("head")) == ("a", "r")


# -- gangs ------------------------------------------------------------------------------------------------------------


def gang(story: ReservedStory, count: int, cpu: str, gather: str = "", **more: Any) -> list[str]:
    names = [f"g{index}" for index in range(count)]
    for name in names:
        document = job(name, cpu, **more)
        own = {ANNOTATION_GANG_NAME: "g", ANNOTATION_GANG_MIN: str(count)}
        if gather:
            own["gang.scheduling.koordinator.sh/network-topology-spec"] = gather
        document["metadata"]["annotations"] = {**document["metadata"].get("annotations", {}), **own}
        document["spec"]["preemptionPolicy"] = "Never"
        story.pod(document)
    story.settle()
    return names


def test_a_gang_is_kept_room_in_reservations_and_beside_them() -> None:
    story = story_of(a="8", b="8")
    reserve(story, "r", "a", "4", allocatePolicy="Restricted")
    run(story, job("j", "2", **OF_WEB), service("s", "4", nodeName="a"), job("k", "7", nodeName="b"))
    names = gang(story, 3, "2", **WEB)
    # The first fits into the reservation; of b the least is short for the second; the third fits in there once j ends.
    assert kept(story, *names) == [("a", "r"), ("b", ""), ("a", "r")]
    ends(story, "k")
    assert all(story.node_of(name) for name in names), "it starts wherever it fits first"


def test_a_gang_that_must_be_in_one_domain_is_kept_the_room_of_the_reservations_there() -> None:
    story = ReservedStory(SchedulerConfig(queue=QueueArgs()))
    network(story)
    for block in ("s1b1", "s1b2"):
        for index in range(2):
            name = f"{block}-{index}"
            story.node(node(name, cpu="4", labels={SPINE: "s1", BLOCK: block, "own": name}))
            story.executor(name)
    for where in ("s1b2-0", "s1b2-1"):
        reserve(story, f"r-{where}", where, "4", allocatePolicy="Restricted")
        run(story, job(f"j-{where}", "4", **{**WEB, "annotations": wants(name=f"r-{where}")}))
    run(story, *(service(f"s{index}", "3", nodeName=f"s1b1-{index}") for index in range(2)))
    names = gang(story, 2, "4", rules("BlockLayer!"), **OF_WEB)
    assert sorted(map(str, kept(story, *names))) == ["('s1b2-0', 'r-s1b2-0')", "('s1b2-1', 'r-s1b2-1')"]
    ends(story, "j-s1b2-0")
    assert not [name for name in names if story.node_of(name)]
    ends(story, "j-s1b2-1")
    assert sorted(story.used(name) for name in names) == ["r-s1b2-0", "r-s1b2-1"]

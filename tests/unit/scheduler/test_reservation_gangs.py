"""Reservations in gangs: all of them are placed in one batch, or all wait."""

from __future__ import annotations

from typing import Any

from tests.unit.scheduler.builders_reservations import ReservedStory, reservation
from tests.unit.scheduler.builders_scheduler import node, pod

GANG = "gang.scheduling.koordinator.sh/"


def member(name: str, *, least: int = 2, cpu: str = "6", **more: Any) -> dict[str, Any]:
    return reservation(name, cpu=cpu, annotations={f"{GANG}name": "g", f"{GANG}min-available": str(least)}, **more)


def story_with(*names: str) -> ReservedStory:
    story = ReservedStory()
    story.nodes(*(node(name, cpu="8") for name in names))
    return story


def test_they_wait_until_there_is_room_for_all_and_are_placed_in_one_batch() -> None:
    story = story_with("n1")
    story.reservation(member("r0"))
    story.reservation(member("r1"))
    story.settle()
    story.later(1)
    story.settle()
    assert (story.phase("r0"), story.phase("r1")) == ("Pending", "Pending")
    status = story.status("r1")
    assert status is not None
    assert '"default/g" gets rejected due to member Reservation "r1" is unschedulable' in status.message
    assert status.member == "reservation r1"
    assert [members.names for members in status.members] == [("reservation r1",)]
    assert story.requested("n1") == 0
    story.node(node("n2", cpu="8"))
    batch = story.decide()
    shares = [event for event in batch if event.subject.startswith("node.") and not event.tombstone]
    assert sorted(event.subject.split(".")[3] for event in shares) == ["r0", "r1"]
    assert (story.phase("r0"), story.phase("r1")) == ("Available", "Available")
    assert story.settle() == []


def test_one_alone_waits_for_the_others_to_be_created() -> None:
    story = story_with("n1", "n2")
    story.reservation(member("r0"))
    story.settle()
    story.later(1)
    story.settle()
    assert story.phase("r0") == "Pending"
    story.reservation(member("r1"))
    story.settle()
    assert (story.phase("r0"), story.phase("r1")) == ("Available", "Available")


def test_a_pod_and_a_reservation_may_be_one_gang() -> None:
    story = story_with("n1", "n2")
    story.reservation(member("r0"))
    story.settle()
    story.pod(pod("p", cpu="4", annotations={f"{GANG}name": "g", f"{GANG}min-available": "2"}))
    story.settle()
    assert story.phase("r0") == "Available"
    assert story.node_of("p") is not None


def test_one_whose_time_is_over_leaves_the_gang() -> None:
    story = story_with("n1")
    story.reservation(member("r0", ttl="10s", created="2026-01-01T12:00:00Z"))
    story.reservation(member("r1"))
    story.settle()
    story.node(node("n2", cpu="8"))
    story.later(60)
    story.settle()
    assert (story.phase("r0"), story.phase("r1")) == ("Failed", "Pending")
    story.reservation(member("r2"))
    story.settle()
    assert (story.phase("r1"), story.phase("r2")) == ("Available", "Available")


def test_many_alike_are_placed() -> None:
    story = ReservedStory()
    story.node(node("n1", cpu="64"))
    for index in range(20):
        story.reservation(member(f"r{index:02d}", least=20, cpu="1", memory="1Gi"))
    story.settle()
    assert {story.phase(f"r{index:02d}") for index in range(20)} == {"Available"}
    story.core = story.reloaded(sorted(story.last, reverse=True))
    assert story.settle() == []

"""Gangs that shall be together in the network use the reservations of the domain that takes them."""

from __future__ import annotations

from typing import Any

from cotenant.events.allocations import Gathered
from tests.unit.scheduler.builders_reservations import ReservedStory, reservation, wants
from tests.unit.scheduler.builders_scheduler import node
from tests.unit.scheduler.cycle.test_network_topology import BLOCK, SPINE, members, network, rules

OWNERS = [{"labelSelector": {"matchLabels": {"job": "train"}}}]


def story_with(*held: str) -> ReservedStory:
    """Two blocks of two nodes with 8 CPUs each; on each of these nodes 8 are reserved for the gang's pods."""
    story = ReservedStory()
    network(story)
    for block in ("s1b1", "s1b2"):
        for i in range(2):
            story.node(node(f"{block}-{i}", labels={SPINE: "s1", BLOCK: block, "own": f"{block}-{i}"}))
    for where in held:
        story.reservation(
            reservation(f"r-{where}", cpu="8", owners=OWNERS, allocateOnce=False, template={"nodeSelector": {"own": where}})
        )
    story.settle()
    return story


def gang(story: ReservedStory, count: int, gather: str, **annotations: str) -> None:
    for document in members(count, gather, least=count):
        metadata: dict[str, Any] = document["metadata"]
        metadata["labels"] = {"job": "train"}
        metadata["annotations"] |= annotations
        story.pod(document)


def test_a_block_whose_room_is_reserved_for_the_gang_takes_it() -> None:
    story = story_with("s1b1-0", "s1b1-1", "s1b2-0")
    gang(story, 4, rules("BlockLayer!"))
    story.settle()
    assert [story.node_of(f"w-{i}") for i in range(4)] == ["s1b1-0", "s1b1-0", "s1b1-1", "s1b1-1"]
    assert [story.used(f"w-{i}") for i in range(4)] == ["r-s1b1-0", "r-s1b1-0", "r-s1b1-1", "r-s1b1-1"]
    placement = story.placement("w-0")
    assert placement is not None
    assert placement.allocation is not None
    assert placement.allocation.gathered == Gathered(layer="BlockLayer", domain="s1/s1b1", pods=4, slots=4, domains=2)


def test_room_beside_reservations_is_none_for_pods_that_must_use_one() -> None:
    story = story_with("s1b1-0")
    gang(story, 4, rules("BlockLayer!"), **wants(reservationSelector={"reserve": "yes"}))
    story.settle()
    story.later(1)
    story.settle()
    waiting = story.waiting("w-0")
    assert waiting is not None
    assert "no candidate topology nodes can accommodate job, desiredOfferSlot: 4" in waiting.message
    assert "BlockLayer/s1/s1b2: 0" in waiting.message


def test_what_is_counted_leaves_no_trace_on_the_nodes() -> None:
    story = story_with("s1b1-0")
    before = story.core.nodes.requested.copy()
    gang(story, 8, rules("BlockLayer!"))
    story.settle()
    assert story.placed() == {}
    assert (story.core.nodes.requested == before).all()

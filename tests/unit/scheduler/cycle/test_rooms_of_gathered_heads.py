"""Room is kept for a gang at the queue's head that must be in one domain of the network."""

from __future__ import annotations

from typing import Any

import pytest

from cotenant.events.node.runs import RunPhase
from cotenant_scheduler.framework.queue_args import QueueArgs
from cotenant_scheduler.plugins.default_profile import SchedulerConfig
from tests.unit.scheduler.builders_scheduler import Story, pod
from tests.unit.scheduler.cycle.test_network_topology import blocks, member, network, rules
from tests.unit.scheduler.cycle.test_queue_head import job, kept

OLD = "2026-01-01T11:00:00Z"
MUST = rules("BlockLayer!")


def story_of(**nodes_of: int) -> Story:
    """Nodes of 8 CPUs, so many a block."""
    story = Story(SchedulerConfig(queue=QueueArgs()))
    blocks(story, **nodes_of)
    network(story)
    for name in story.core.nodes.rows:
        story.executor(name)
    return story


def gang(count: int, gather: str = MUST, cpus: str = "8") -> list[dict[str, Any]]:
    found = [member(f"g{index}", gather, least=count, cpu=cpus, index=str(index)) for index in range(count)]
    for document in found:
        document["metadata"]["creationTimestamp"] = OLD
        document["spec"] |= {"preemptionPolicy": "Never"}
    return found


def names(count: int) -> list[str]:
    return [f"g{index}" for index in range(count)]


def ends(story: Story, *jobs: str) -> None:
    for name in jobs:
        placement = story.placement(name)
        assert placement is not None
        story.run(placement.node, name, RunPhase.SUCCEEDED, uid=placement.uid)
    story.settle()


def test_it_is_kept_room_in_one_domain_and_small_jobs_behind_it_do_not_take_that() -> None:
    story = story_of(s1b1=2, s1b2=2)
    story.pods(*(job(f"j{node}", "5", nodeName=node) for node in ("s1b1-0", "s1b2-0")))
    story.settle()
    story.pods(*gang(2))
    story.settle()
    rooms = kept(story, *names(2))
    assert None not in rooms
    assert len(set(rooms)) == 2
    assert len({str(room).partition("-")[0] for room in rooms}) == 1, "both are in one block"
    held = str(rooms[0]).partition("-")[0]
    # These fit beside the jobs; without the rooms they would fill both blocks again and again.
    story.pods(*(job(f"small{index}", "2", created="2026-01-01T11:30:00Z") for index in range(8)))
    story.settle()
    assert not {node for name, node in story.placed().items() if name.startswith("small") and node.startswith(held)}
    assert any(name.startswith("small") for name in story.placed()), "the other block is filled meanwhile"
    ends(story, f"j{held}-0")
    assert {story.node_of(name) for name in names(2)} == {f"{held}-0", f"{held}-1"}
    placement = story.placement("g0")
    assert placement is not None
    assert placement.allocation is not None
    assert placement.allocation.gathered is not None
    assert placement.allocation.gathered.domain == f"s1/{held}"


def test_rooms_in_two_domains_are_none() -> None:
    story = story_of(s1b1=1, s1b2=1)
    story.pods(*(job(f"j{node}", "5", nodeName=node) for node in ("s1b1-0", "s1b2-0")))
    story.settle()
    story.pods(*gang(2))
    story.settle()
    assert kept(story, *names(2)) == [None, None]
    # As room never comes for it together, it blocks nobody.
    story.pods(job("small", "3", created="2026-01-01T11:30:00Z"))
    story.settle()
    assert story.node_of("small") is not None


def test_services_that_do_not_end_leave_the_next_domain() -> None:
    story = story_of(s1b1=2, s1b2=2, s1b3=3)
    story.pods(*(pod(f"svc{node}", cpu="1", memory="1Mi", nodeName=node) for node in ("s1b1-0", "s1b3-0", "s1b3-1")))
    story.pods(*(job(f"j{node}", "5", nodeName=node) for node in ("s1b2-0", "s1b2-1")))
    story.settle()
    story.pods(*gang(2))
    story.settle()
    assert sorted(map(str, kept(story, *names(2)))) == ["s1b2-0", "s1b2-1"]


@pytest.mark.parametrize(("count", "multiple", "blocks_used"), [(4, 2, {"s1b1": 2, "s1b2": 2}), (2, 2, {"s1b1": 2})])
def test_each_domain_gets_a_multiple_of_pods(count: int, multiple: int, blocks_used: dict[str, int]) -> None:
    story = story_of(s1b1=3, s1b2=3)
    nodes = [f"{block}-{index}" for block in ("s1b1", "s1b2") for index in range(3)]
    story.pods(*(job(f"j{name}", "5", nodeName=name) for name in nodes))
    story.settle()
    story.pods(*gang(count, rules("SpineLayer!", "BlockLayer", multiples={"BlockLayer": multiple})))
    story.settle()
    rooms = [str(room).partition("-")[0] for room in kept(story, *names(count))]
    assert {block: rooms.count(block) for block in sorted(set(rooms))} == blocks_used
    ends(story, *(name for name in sorted(story.placed()) if name.startswith("j")))
    assert all(story.node_of(name) for name in names(count))


def test_it_is_kept_other_rooms_where_a_node_leaves_the_domain() -> None:
    story = story_of(s1b1=2, s1b2=2)
    story.pods(*(job(f"j{node}", "5", nodeName=node) for node in ("s1b1-0", "s1b1-1", "s1b2-0", "s1b2-1")))
    story.settle()
    story.pods(*gang(2))
    story.settle()
    first = sorted(map(str, kept(story, *names(2))))
    assert first == ["s1b1-0", "s1b1-1"]
    story.node_deleted("s1b1-1")
    story.settle()
    assert sorted(map(str, kept(story, *names(2)))) == ["s1b2-0", "s1b2-1"]


def test_members_go_to_the_rooms_kept_for_them_where_the_domain_filled_in_order_has_no_room_for_all() -> None:
    story = story_of(s1b1=2)
    story.pods(pod("svc", cpu="6", memory="1Mi", nodeName="s1b1-0"), job("j", "5", nodeName="s1b1-1"))
    story.settle()
    small, large = gang(2, cpus="2")[0], gang(2)[1]
    story.pods(small, large)
    story.settle()
    assert kept(story, "g0", "g1") == ["s1b1-0", "s1b1-1"]
    ends(story, "j")
    # In order g0 goes to the emptier node, on which g1 has no room then.
    assert (story.node_of("g0"), story.node_of("g1")) == ("s1b1-0", "s1b1-1")
    placement = story.placement("g1")
    assert placement is not None
    assert placement.allocation is not None
    assert placement.allocation.gathered is not None
    assert placement.allocation.gathered.domain == "s1/s1b1"


def test_a_restart_keeps_the_same_rooms() -> None:
    story = story_of(s1b1=2, s1b2=2)
    story.pods(*(job(f"j{node}", "5", nodeName=node) for node in ("s1b1-0", "s1b2-0")))
    story.settle()
    story.pods(*gang(2))
    story.settle()
    story.core = story.reloaded(sorted(story.last, reverse=True))
    assert story.settle() == []
    assert None not in kept(story, *names(2))

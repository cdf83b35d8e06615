"""Gangs that shall be together in the network, through the scheduler's core: in the domain that Koordinator's solver takes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cotenant.domain.gangs import ANNOTATION_GANG_GROUPS, ANNOTATION_GANG_MIN, ANNOTATION_GANG_MODE, ANNOTATION_GANG_NAME
from cotenant.domain.network_topology import (
    ANNOTATION_TOPOLOGY_INDEX,
    ANNOTATION_TOPOLOGY_SELECTOR,
    ANNOTATION_TOPOLOGY_SPEC,
)
from cotenant.events.allocations import Gathered
from cotenant.events.objects import ObjectDeleted
from cotenant.explain.sentences import sentence
from cotenant.model.subjects import object_subject, placement_subject
from tests.builders import stored
from tests.unit.scheduler.builders_scheduler import Story, as_stored, node, pod

SPINE, BLOCK = "net/spine", "net/block"
TOPOLOGIES = ("scheduling.koordinator.sh", "clusternetworktopologies")
LAYERS = [
    {"topologyLayer": "SpineLayer", "labelKey": ["other/spine", SPINE]},
    {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": [BLOCK]},
    {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
]


def rules(*found: str, multiples: dict[str, int] | None = None) -> str:
    """`BlockLayer!` is a layer with MustGather, `BlockLayer` one with PreferGather."""
    strategy: list[dict[str, Any]] = [
        {"layer": rule.rstrip("!"), "strategy": "MustGather" if rule.endswith("!") else "PreferGather"} for rule in found
    ]
    for rule in strategy:
        if rule["layer"] in (multiples or {}):
            rule["podCountMultiple"] = (multiples or {})[rule["layer"]]
    return msgspec.json.encode({"gatherStrategy": strategy}).decode()


def member(name: str, gather: str, gang: str = "g", *, least: int = 4, cpu: str = "4", **annotations: str) -> dict[str, Any]:
    own = {ANNOTATION_GANG_NAME: gang, ANNOTATION_GANG_MIN: str(least), ANNOTATION_TOPOLOGY_SPEC: gather}
    names = {
        "index": ANNOTATION_TOPOLOGY_INDEX,
        "selector": ANNOTATION_TOPOLOGY_SELECTOR,
        "mode": ANNOTATION_GANG_MODE,
        "groups": ANNOTATION_GANG_GROUPS,
    }
    return pod(name, cpu=cpu, memory="1Mi", annotations=own | {names[key]: value for key, value in annotations.items()})


def members(count: int, gather: str, **more: Any) -> list[dict[str, Any]]:
    return [member(f"w-{i}", gather, index=str(i), **more) for i in range(count)]


def network(story: Story, layers: list[dict[str, Any]] | None = None, name: str = "default") -> None:
    document = {"metadata": {"name": name}, "spec": {"networkTopologySpec": LAYERS if layers is None else layers}}
    story.say(object_subject(*TOPOLOGIES, "", name), stored(document))


def blocks(story: Story, **nodes_of: int) -> None:
    """Nodes of 8 CPUs, so many a block; a block `s1b1` is in the spine `s1`."""
    for block, count in nodes_of.items():
        for i in range(count):
            story.node(node(f"{block}-{i}", labels={SPINE: block[:2], BLOCK: block}))


def cluster(**nodes_of: int) -> Story:
    story = Story()
    network(story)
    blocks(story, **nodes_of)
    return story


def blocks_of(story: Story) -> set[str]:
    return {where.rpartition("-")[0] for where in story.placed().values()}


def message(story: Story, name: str = "w-0") -> str:
    waiting = story.waiting(name)
    assert waiting is not None
    return waiting.message


def gathered(story: Story, name: str = "w-0") -> Gathered:
    placement = story.placement(name)
    assert placement is not None
    assert placement.allocation is not None
    assert placement.allocation.gathered is not None
    return placement.allocation.gathered


def test_a_gang_goes_to_the_block_with_the_least_room_that_takes_all_of_it() -> None:
    # Two pods a node: s1b1 has room for 2, s1b2 for 6, s2b3 for 4.
    story = cluster(s1b1=1, s1b2=3, s2b3=2)
    story.pods(*members(4, rules("BlockLayer")))
    story.settle()
    assert blocks_of(story) == {"s2b3"}
    assert gathered(story) == Gathered(layer="BlockLayer", domain="s2/s2b3", pods=4, slots=4, domains=2)


def test_of_blocks_with_equal_room_the_one_whose_spine_has_less_is_taken() -> None:
    story = cluster(s1b1=2, s1b2=2, s2b3=2)
    story.pods(*members(4, rules("BlockLayer!")))
    story.settle()
    assert blocks_of(story) == {"s2b3"}


def test_one_node_that_takes_all_is_the_nearest_domain() -> None:
    story = cluster(s1b1=1, s2b2=3)
    story.pods(*members(2, rules("SpineLayer!"), least=2))
    story.settle()
    assert set(story.placed().values()) == {"s1b1-0"}
    assert gathered(story) == Gathered(layer="NodeTopologyLayer", domain="s1b1-0", pods=2, slots=2, domains=4)


def test_a_preference_gives_way_layer_by_layer_to_the_whole_cluster() -> None:
    story = cluster(s1b1=1, s1b2=1, s2b3=1)
    story.pods(*members(4, rules("BlockLayer")))
    story.settle()
    assert blocks_of(story) == {"s1b1", "s1b2"}
    assert gathered(story).layer == "SpineLayer"
    story = cluster(s1b1=1, s2b2=1, s3b3=1)
    story.pods(*members(6, rules("BlockLayer"), least=6))
    story.settle()
    assert len(story.placed()) == 6
    assert gathered(story).layer == "ClusterTopologyLayer"


def test_a_gang_that_would_rather_be_together_and_has_no_room_at_all_waits_for_what_nodes_lack() -> None:
    story = cluster(s1b1=1)
    story.pod(pod("full", cpu="5"))
    story.settle()
    story.pods(*members(4, rules("BlockLayer")))
    story.settle()
    assert set(story.placed()) == {"full"}
    waiting = story.waiting("w-0")
    assert waiting is not None
    expected = 'member Pod "default/w-0" is unschedulable with reason "0/1 nodes are available: 1 Insufficient cpu.'
    assert expected in waiting.message
    story.later(60)
    story.budget("any", {"app": "any"}, allowed=1)
    story.settle()
    assert story.waiting("w-0") == waiting, "tried again, it waits for the same"


def test_a_gang_that_must_be_together_waits_and_names_the_room_of_the_domains() -> None:
    story = cluster(s1b1=1, s1b2=1, s2b3=1)
    story.pods(*members(4, rules("BlockLayer!")))
    story.settle()
    assert story.placed() == {}
    assert message(story) == (
        "0/3 nodes are available: no candidate topology nodes can accommodate job, desiredOfferSlot: 4, "
        "topology topologyNode BlockLayer/s1/s1b1: 2;topology topologyNode BlockLayer/s1/s1b2: 2;"
        "topology topologyNode BlockLayer/s2/s2b3: 2."
    )
    waiting = story.waiting("w-3")
    assert waiting is not None
    assert [reason.code for reason in waiting.reasons] == ["network-topology"]
    assert "objects.core.nodes._.*" in waiting.wakes_on
    blocks(story, s2b3=2)
    batch = story.decide()
    assert blocks_of(story) == {"s2b3"}
    assert sum(event.subject.startswith("node.") for event in batch) == 4, "the gang is placed in one batch"


def test_of_several_layers_with_must_gather_the_nearest_counts() -> None:
    story = cluster(s1b1=1, s1b2=1)
    story.pods(*members(4, rules("SpineLayer!", "BlockLayer!")))
    story.settle()
    assert story.placed() == {}
    assert "topologyNode BlockLayer/s1/s1b1: 2" in message(story)


def test_neighbours_by_index_are_neighbours_in_the_network() -> None:
    story = cluster(s1b1=2, s1b2=2)
    for i in (5, 0, 3, 10, 1, 2):
        story.pod(member(f"w-{i}", rules("SpineLayer!"), index=str(i), least=6))
    story.settle()
    placed = story.placed()
    assert placed["w-0"] == placed["w-1"] == "s1b1-0"
    assert placed["w-2"] == placed["w-3"] == "s1b1-1"
    assert placed["w-5"] == placed["w-10"] == "s1b2-0"


def test_a_replaced_pod_returns_to_the_domain_of_its_gang() -> None:
    story = cluster(s1b1=2, s2b2=3)
    story.pods(*members(4, rules("BlockLayer!")))
    story.settle()
    assert blocks_of(story) == {"s1b1"}
    gone = story.node_of("w-3")
    assert gone is not None
    story.pod_deleted("w-3")
    story.settle()
    story.pod(member("w-4", rules("BlockLayer!"), index="4"))
    story.settle()
    assert story.node_of("w-4") == gone
    story.pod(member("w-5", rules("BlockLayer!"), index="5"))
    story.settle()
    assert story.node_of("w-5") is None
    assert message(story, "w-5").endswith("desiredOfferSlot: 1, topology topologyNode BlockLayer/s1/s1b1: 0.")


@pytest.mark.parametrize(("selector", "expected"), [("app", "s1b1"), ("other", "s2b2")])
def test_a_gang_that_states_the_selector_of_another_goes_near_it(selector: str, expected: str) -> None:
    story = cluster(s1b1=3, s2b2=2)
    for document in members(2, rules("BlockLayer"), least=2, cpu="1", selector="app"):
        document["spec"]["nodeSelector"] = {BLOCK: "s1b1"}
        story.pod(document)
    story.settle()
    assert blocks_of(story) == {"s1b1"}
    story.pods(*[member(f"v-{i}", rules("BlockLayer"), "h", selector=selector) for i in range(4)])
    story.settle()
    assert {story.placed()[f"v-{i}"].rpartition("-")[0] for i in range(4)} == {expected}


def test_layers_get_multiples_of_pods() -> None:
    # 3 slots a block would take 3 pods of the first and 3 of the second block.
    story = Story()
    network(story)
    for block in ("s1b1", "s1b2", "s1b3"):
        story.node(node(f"{block}-0", cpu="12", labels={SPINE: "s1", BLOCK: block}))
    gather = rules("SpineLayer!", "BlockLayer", multiples={"BlockLayer": 2})
    story.pods(*members(6, gather, least=6))
    story.settle()
    placed = list(story.placed().values())
    assert sorted(placed.count(f"{block}-0") for block in ("s1b1", "s1b2", "s1b3")) == [2, 2, 2]


def test_the_groups_of_a_gang_are_in_one_domain_together() -> None:
    groups = msgspec.json.encode(["default/a", "default/b"]).decode()
    story = cluster(s1b1=2, s2b2=3)
    story.pods(*[member(f"a-{i}", rules("BlockLayer!"), "a", least=3, groups=groups) for i in range(3)])
    story.settle()
    assert story.placed() == {}
    story.pods(*[member(f"b-{i}", "", "b", least=3, groups=groups) for i in range(3)])
    story.settle()
    assert len(story.placed()) == 6
    assert blocks_of(story) == {"s2b2"}


def test_a_gang_with_more_pods_than_its_minimum_is_placed_with_those_that_fit_together() -> None:
    story = cluster(s1b1=2, s2b2=1)
    story.pods(*members(6, rules("BlockLayer!"), least=3))
    story.settle()
    assert blocks_of(story) == {"s1b1"}
    assert len(story.placed()) == 4
    story.later(31)
    story.settle()
    assert "BlockLayer/s1/s1b1: 0" in message(story, "w-5")


def test_pods_of_different_sizes_are_placed_together() -> None:
    story = cluster(s1b1=2, s2b2=2)
    story.pod(pod("filler", cpu="6", memory="1Mi", nodeName="s1b1-0"))
    story.settle()
    story.pod(member("w-0", rules("BlockLayer!"), cpu="1", index="0"))
    story.pods(*[member(f"w-{i}", rules("BlockLayer!"), cpu="5", index=str(i), least=3) for i in (1, 2)])
    story.pod(member("w-3", rules("BlockLayer!"), cpu="2", index="3"))
    story.settle()
    placed = {name: where for name, where in story.placed().items() if name != "filler"}
    assert {where.rpartition("-")[0] for where in placed.values()} == {"s2b2"}
    assert len(placed) == 4


def test_nodes_without_the_labels_are_in_no_domain_but_the_clusters() -> None:
    story = cluster(s1b1=1)
    story.nodes(node("bare-0"), node("bare-1"))
    story.pods(*members(4, rules("BlockLayer!")))
    story.settle()
    assert "BlockLayer/s1/s1b1: 2" in message(story)
    story.pods(*[member(f"v-{i}", rules("BlockLayer"), "h", least=6) for i in range(6)])
    story.settle()
    assert len(story.placed()) == 6
    story = cluster(s1b1=1)
    story.pod(pod("full", cpu="6", nodeName="s1b1-0"))
    story.node(node("bare-0", labels={SPINE: "s1"}))
    story.settle()
    story.pods(*members(2, rules("NodeTopologyLayer!"), least=2))
    story.settle()
    assert set(story.placed()) == {"full"}, "nor is it a domain of the layer of nodes"


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("RackLayer!", "the ClusterNetworkTopology default has no layer RackLayer, only ClusterTopologyLayer, SpineLayer, "),
        ("BlockLayer!", "no node is in a BlockLayer: the labels that name it are missing"),
    ],
)
def test_a_gang_waits_for_a_layer_that_is_not_there(layer: str, expected: str) -> None:
    story = Story()
    network(story)
    story.nodes(node("a"), node("b"))
    story.pods(*members(4, rules(layer)))
    story.settle()
    assert expected in message(story)


def test_without_a_network_topology_only_must_gather_waits_and_goes_on_once_it_is_there() -> None:
    story = Story()
    network(story, name="other")
    blocks(story, s1b1=2, s2b2=1)
    story.pods(*members(4, rules("BlockLayer!")))
    story.settle()
    assert message(story).endswith("it must be in one BlockLayer, and there is no ClusterNetworkTopology named default.")
    network(story)
    story.settle()
    assert blocks_of(story) == {"s1b1"}
    story.say(object_subject(*TOPOLOGIES, "", "default"), ObjectDeleted(), tombstone=True)
    story.pods(*[member(f"v-{i}", rules("BlockLayer"), "h", least=2) for i in range(2)])
    story.settle()
    assert story.node_of("v-1") is not None


def test_a_topology_that_cannot_be_used_is_said_and_counts_as_absent() -> None:
    story = cluster(s1b1=2)
    network(story, [{"topologyLayer": "BlockLayer", "labelKey": [BLOCK]}])
    assert "has no layer NodeTopologyLayer" in "".join(story.core.refused.values())
    story.pods(*members(4, rules("BlockLayer!")))
    story.settle()
    assert "there is no ClusterNetworkTopology" in message(story)


def test_victims_leave_one_domain_that_the_gang_then_takes() -> None:
    story = cluster(s1b1=2, s2b2=2)
    for i, where in enumerate(("s1b1-0", "s1b1-1", "s2b2-0", "s2b2-1")):
        # The spine s1 has pods of a higher priority: its victims weigh more.
        story.pod(pod(f"old-{i}", cpu="6", memory="1Mi", priority=9500 if where.startswith("s1") else 9000, nodeName=where))
    story.settle()
    wanted = members(4, rules("BlockLayer!"))
    for document in wanted:
        document["spec"]["priority"] = 9900
        document["spec"]["preemptionPolicy"] = "PreemptLowerPriority"
    story.pods(*wanted)
    story.settle()
    nominated = story.nominated()
    assert {found.node for found in nominated.values()} == {"s2b2-0", "s2b2-1"}
    assert {victim.name for found in nominated.values() for victim in found.victims} == {"old-2", "old-3"}
    for name in ("old-2", "old-3"):
        story.pod_deleted(name)
    story.settle()
    assert {story.node_of(f"w-{i}") for i in range(4)} == {"s2b2-0", "s2b2-1"}


def test_explain_says_in_which_domain_a_pod_is_and_why() -> None:
    story = cluster(s1b1=2, s2b2=3)
    story.pods(*members(4, rules("BlockLayer!")))
    story.settle()
    where = story.node_of("w-0")
    assert where is not None
    text = sentence(story.last[placement_subject(where, "default", "w-0")])
    assert text.endswith(
        "with its gang in BlockLayer s1/s1b1: in no nearer layer is there room for its 4 pods, "
        "and of the 2 domains of this one that have it, this has the least (4)"
    )


def test_a_scheduler_that_loads_decides_the_same() -> None:
    story = cluster(s1b1=1, s1b2=3, s2b3=2)
    story.pods(*members(4, rules("BlockLayer"), mode="NonStrict"))
    core = story.reloaded()
    assert as_stored(core.decide(story.now)) == as_stored(story.core.decide(story.now))


def test_equal_gangs_that_follow_one_another_are_each_together() -> None:
    story = cluster(**{f"s{i}b{i}": 4 for i in range(8)})
    for gang in range(8):
        story.pods(*[member(f"{gang}-{i}", rules("BlockLayer!"), f"g{gang}", least=7, index=str(i)) for i in range(7)])
    story.settle()
    placed = story.placed()
    homes = [{placed[f"{gang}-{i}"].rpartition("-")[0] for i in range(7)} for gang in range(8)]
    assert [len(home) for home in homes] == [1] * 8
    assert len(set().union(*homes)) == 8

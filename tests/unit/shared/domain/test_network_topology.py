"""Layers of the network and rules of gangs, as users write them."""

from __future__ import annotations

import pytest

from cotenant.api.objects.network_topology import TopologyLayerSpec
from cotenant.domain.gangs import of_pod_group
from cotenant.domain.network_topology import (
    ANNOTATION_TOPOLOGY_INDEX,
    ANNOTATION_TOPOLOGY_SPEC,
    Layer,
    TopologyError,
    gather_rules,
    index_of,
    layers_of,
    must_layer,
    path_of,
)

RULES = '{"gatherStrategy": [{"layer": "Spine", "strategy": "MustGather"}, {"layer": "Block", "strategy": "PreferGather"}]}'


def layer(name: str, parent: str = "", *labels: str) -> TopologyLayerSpec:
    return TopologyLayerSpec(topology_layer=name, parent_topology_layer=parent, label_key=list(labels))


NODES = layer("NodeTopologyLayer", "Block")
BLOCK, SPINE = layer("Block", "Spine", "b"), layer("Spine", "", "s", "spine")


def test_layers_are_ordered_from_the_widest_whatever_their_order() -> None:
    expected = (Layer("Spine", ("s", "spine")), Layer("Block", ("b",)))
    assert layers_of([NODES, BLOCK, SPINE]) == layers_of([SPINE, NODES, BLOCK]) == expected
    assert layers_of([layer("NodeTopologyLayer", "ClusterTopologyLayer")]) == ()


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        ([], "has no layers"),
        ([BLOCK, SPINE], "has no layer NodeTopologyLayer"),
        ([NODES, BLOCK], "parent layer Spine is missing"),
        ([NODES, layer("Block", "Block", "b")], "parent layer Block is missing, or is its own ancestor"),
        ([NODES, BLOCK, SPINE, SPINE], "[3].topologyLayer: Spine is there twice"),
        ([NODES, BLOCK, SPINE, layer("Rack", "", "r")], "layer Rack is not above NodeTopologyLayer"),
        ([NODES, layer("Block", "Spine"), SPINE], "[1].labelKey: layer Block needs the node label"),
        ([NODES, layer("", "", "x")], "[1].topologyLayer: must name a layer"),
        ([NODES, layer("ClusterTopologyLayer", "", "x")], "[1].topologyLayer: must name a layer below"),
        ([layer(f"L{i}", "", "x") for i in range(17)], "17 layers; at most 16"),
    ],
)
def test_layers_that_are_no_chain_are_refused(specs: list[TopologyLayerSpec], text: str) -> None:
    with pytest.raises(TopologyError, match="networkTopologySpec") as error:
        layers_of(specs)
    assert text in str(error.value)


def test_a_node_is_in_the_domains_that_its_labels_name() -> None:
    layers = layers_of([SPINE, BLOCK, NODES])
    assert path_of({"spine": "s1", "b": "b1"}, layers) == ("s1", "b1")
    assert path_of({"s": "s2", "spine": "s1", "b": "b1"}, layers) == ("s2", "b1")
    assert path_of({"b": "b1"}, layers) is None
    assert path_of({"s": "", "b": "b1"}, layers) is None


def test_the_nearest_layer_that_a_gang_must_not_leave_counts() -> None:
    layers = layers_of([SPINE, BLOCK, NODES])
    assert must_layer(gather_rules(RULES), layers) == "Spine"
    assert must_layer(gather_rules(RULES.replace("Prefer", "Must")), layers) == "Block"
    assert must_layer(gather_rules(RULES.replace("Must", "Prefer")), layers) == ""
    assert must_layer(gather_rules(RULES.replace('"Spine"', '"Rack"')), layers) == "Rack"


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"gatherStrategy": [{"layer": "Spine"}]}',
        '{"gatherStrategy": [{"layer": "Spine", "strategy": "Gather"}]}',
        '{"gatherStrategy": [{"layer": "Spine", "strategy": "MustGather", "podCountMultiple": -1}]}',
        '{"gatherStrategy": [{"layer": "Spine", "strategy": "MustGather", "podCountMultiple": 1e18}]}',
        '{{"gatherStrategy": [{}]}}'.format(", ".join(['{"layer": "Spine", "strategy": "MustGather"}'] * 17)),
    ],
)
def test_rules_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(TopologyError, match=ANNOTATION_TOPOLOGY_SPEC):
        gather_rules(text)
    assert of_pod_group("ns/g", 1, None, {ANNOTATION_TOPOLOGY_SPEC: text}).gather == ()


@pytest.mark.parametrize(("text", "expected"), [("0", 0), ("12", 12), ("", None), ("-1", None), ("1e18", None), ("²", None)])
def test_an_index_is_a_small_number(text: str, expected: int | None) -> None:
    assert index_of({ANNOTATION_TOPOLOGY_INDEX: text}) == expected

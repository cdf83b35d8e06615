"""ClusterNetworkTopologies and gangs' rules about them in the API: what is refused, what is shown."""

from __future__ import annotations

import copy
from typing import Any

from cotenant.domain.network_topology import ANNOTATION_TOPOLOGY_SPEC
from cotenant.kinds.koordinator.cluster_network_topologies import DEFINITION, NETWORK_TOPOLOGIES
from cotenant_gateway.planning.creations import plan_creation
from tests.unit.gateway.builders_gateway import NOW, World, as_json, causes, kind, refusal_of

TOPOLOGY: dict[str, Any] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "ClusterNetworkTopology",
    "metadata": {"name": "default"},
    "spec": {
        "networkTopologySpec": [
            {"topologyLayer": "SpineLayer", "labelKey": ["net/spine"]},
            {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": ["net/block"]},
            {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
        ]
    },
}


def wrong(plural: str, document: dict[str, Any]) -> dict[str, str]:
    world, found = World(), kind(plural)
    namespace = "default" if found.namespaced else ""
    error = refusal_of(lambda: plan_creation(world.core, found, namespace, as_json(document), world.now, "u", lambda: "x"))
    return causes(error) if error is not None else {}


def with_layer(index: int, **changes: Any) -> dict[str, Any]:
    document = copy.deepcopy(TOPOLOGY)
    document["spec"]["networkTopologySpec"][index] |= changes
    return document


def test_a_chain_of_layers_is_taken_and_shown_from_the_widest() -> None:
    assert wrong(NETWORK_TOPOLOGIES.plural, TOPOLOGY) == {}
    world = World()
    world.create(NETWORK_TOPOLOGIES.plural, TOPOLOGY)
    (snapshot,) = world.core.objects(NETWORK_TOPOLOGIES)
    assert list(DEFINITION.layout.cells(snapshot, NOW))[:2] == ["default", "SpineLayer,BlockLayer"]


def test_layers_that_are_no_chain_are_refused_by_their_field() -> None:
    plural = NETWORK_TOPOLOGIES.plural
    assert "spec.networkTopologySpec[1].labelKey" in wrong(plural, with_layer(1, labelKey=[]))
    assert "spec.networkTopologySpec" in wrong(plural, with_layer(1, parentTopologyLayer="RackLayer"))
    assert "spec.networkTopologySpec" in wrong(plural, TOPOLOGY | {"spec": {}})
    assert "spec.networkTopologySpec[0].topologyLayer" in wrong(plural, with_layer(0, topologyLayer=""))


def test_a_pod_group_with_rules_that_cannot_be_read_is_refused() -> None:
    group = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "annotations": {ANNOTATION_TOPOLOGY_SPEC: '{"gatherStrategy": [{"layer": "x"}]}'}},
        "spec": {"minMember": 1},
    }
    assert list(wrong("podgroups", group)) == [f"metadata.annotations[{ANNOTATION_TOPOLOGY_SPEC}]"]

"""The network as layers of domains, and how near to one another a gang's pods shall be.

In: the ClusterNetworkTopology named `default`; the labels of nodes; a gang's annotation. Out: the layers from the widest to the
nearest above the nodes, a node's domain in each, and a gang's rules. Source: Koordinator's network-topology-aware scheduling.

    {"gatherStrategy": [{"layer": "SpineLayer", "strategy": "MustGather"}, {"layer": "BlockLayer", "strategy": "PreferGather"}]}

A domain is named by its path, as blocks of two spines may have the same label value. Bounds: MAX_LAYERS layers, as many rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec

from cotenant.api.objects.metadata import View
from cotenant.api.objects.network_topology import TopologyLayerSpec

ANNOTATION_TOPOLOGY_SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
ANNOTATION_TOPOLOGY_INDEX = "gang.scheduling.koordinator.sh/network-topology-index"
DEFAULT_TOPOLOGY = "default"
"""The name of the object that counts."""
CLUSTER_LAYER = "ClusterTopologyLayer"
"""Built in: all nodes."""
NODE_LAYER = "NodeTopologyLayer"
"""Built in: one node."""
ANNOTATION_TOPOLOGY_SELECTOR = "scheduling.koordinator.sh/network-topology-selector"
"""Of pods: gangs whose pods have the same value are placed near one another."""
MAX_LAYERS = 16
MAX_MULTIPLE = 1_000_000


class TopologyError(ValueError):
    """Layers or rules that cannot be used; the text states why."""


class GatherStrategy(StrEnum):
    """Whether a gang waits rather than leave a domain of the layer."""

    MUST_GATHER = "MustGather"
    PREFER_GATHER = "PreferGather"


class GatherRule(View, frozen=True, kw_only=True):
    """A layer in which a gang's pods shall be in one domain."""

    layer: str
    strategy: GatherStrategy
    pod_count_multiple: Annotated[int, msgspec.Meta(ge=0, le=MAX_MULTIPLE)] = 0
    """Each domain of the layer gets a multiple of so many pods; 0 or 1: any number."""


class _Rules(View, frozen=True, kw_only=True):
    gather_strategy: list[GatherRule] = []


_RULES = msgspec.json.Decoder(_Rules)


class Layer(msgspec.Struct, frozen=True):
    """A layer above the nodes. `labels`: the first that a node has names its domain."""

    name: str
    labels: tuple[str, ...]


def gather_rules(text: str) -> tuple[GatherRule, ...]:
    """Return the rules in a gang's annotation, none for an empty text. Raises TopologyError."""
    if not text:
        return ()
    try:
        rules = tuple(_RULES.decode(text).gather_strategy)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise TopologyError(f"{ANNOTATION_TOPOLOGY_SPEC}: {error}") from error
    if len(rules) > MAX_LAYERS:
        raise TopologyError(f"{ANNOTATION_TOPOLOGY_SPEC}: {len(rules)} rules; at most {MAX_LAYERS} are allowed")
    return rules


def layers_of(specs: Sequence[TopologyLayerSpec]) -> tuple[Layer, ...]:
    """Return the layers above the nodes, the widest first. Raises TopologyError where they are no chain down to NODE_LAYER."""
    if not specs:
        raise TopologyError("spec.networkTopologySpec: has no layers")
    if len(specs) > MAX_LAYERS:
        raise TopologyError(f"spec.networkTopologySpec: {len(specs)} layers; at most {MAX_LAYERS} are allowed")
    by_name: dict[str, TopologyLayerSpec] = {}
    for index, spec in enumerate(specs):
        place = f"spec.networkTopologySpec[{index}]"
        if not spec.topology_layer or spec.topology_layer == CLUSTER_LAYER:
            raise TopologyError(f"{place}.topologyLayer: must name a layer below {CLUSTER_LAYER}")
        if spec.topology_layer in by_name:
            raise TopologyError(f"{place}.topologyLayer: {spec.topology_layer} is there twice")
        if spec.topology_layer != NODE_LAYER and not any(spec.label_key):
            raise TopologyError(f"{place}.labelKey: layer {spec.topology_layer} needs the node label that names its domains")
        by_name[spec.topology_layer] = spec
    nearest = by_name.pop(NODE_LAYER, None)
    if nearest is None:
        raise TopologyError(f"spec.networkTopologySpec: has no layer {NODE_LAYER}, the lowest")
    found: list[Layer] = []
    parent = nearest.parent_topology_layer
    while parent and parent != CLUSTER_LAYER:
        spec_above = by_name.pop(parent, None)
        if spec_above is None:
            raise TopologyError(f"spec.networkTopologySpec: parent layer {parent} is missing, or is its own ancestor")
        found.append(Layer(parent, tuple(key for key in spec_above.label_key if key)))
        parent = spec_above.parent_topology_layer
    if by_name:
        raise TopologyError(f"spec.networkTopologySpec: layer {min(by_name)} is not above {NODE_LAYER}")
    return tuple(reversed(found))


def path_of(labels: Mapping[str, str], layers: Iterable[Layer]) -> tuple[str, ...] | None:
    """Return the names of a node's domains, the widest first; None where a layer's label is missing: it is in no domain."""
    path = []
    for layer in layers:
        name = next((labels[key] for key in layer.labels if labels.get(key)), "")
        if not name:
            return None
        path.append(name)
    return tuple(path)


def must_layer(rules: Iterable[GatherRule], layers: Sequence[Layer]) -> str:
    """Return the nearest layer in which pods must be together; empty for none. One that does not exist comes first: nothing can
    satisfy it."""
    order = {layer.name: index for index, layer in enumerate(layers)} | {CLUSTER_LAYER: -1, NODE_LAYER: len(layers)}
    asked = sorted({rule.layer for rule in rules if rule.strategy is GatherStrategy.MUST_GATHER})
    unknown = [name for name in asked if name not in order]
    return unknown[0] if unknown else max(asked, key=lambda name: order[name], default="")


def index_of(annotations: Mapping[str, str]) -> int | None:
    """Return a member's place among the pods that talk to one another; None if it states none that can be read."""
    text = annotations.get(ANNOTATION_TOPOLOGY_INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None

"""Typed view of scheduling.koordinator.sh/v1alpha1 ClusterNetworkTopology."""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import ObjectMeta, View


class TopologyLayerSpec(View, frozen=True, kw_only=True):
    """One layer of the network: the layer above it, and the node labels whose value names a node's domain in it."""

    topology_layer: str = ""
    parent_topology_layer: str = ""
    label_key: list[str] = []


class NetworkTopologyLayers(View, frozen=True, kw_only=True):
    """All layers, in any order."""

    network_topology_spec: list[TopologyLayerSpec] = []


class ClusterNetworkTopology(View, frozen=True, kw_only=True):
    """The fields that are read."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkTopologyLayers = NetworkTopologyLayers()


_DECODER = msgspec.json.Decoder(ClusterNetworkTopology)


def decode_network_topology(document: bytes | memoryview | msgspec.Raw) -> ClusterNetworkTopology:
    """Decode a ClusterNetworkTopology. Raises msgspec.DecodeError."""
    return _DECODER.decode(document)

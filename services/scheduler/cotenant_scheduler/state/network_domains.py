"""The domains of the network over the rows of the node table.

In: the ClusterNetworkTopology named `default`, the labels of nodes. Out: by level (0 the cluster, then the layers from the
widest to the nearest, last the nodes) each row's domain, and the sums of a number a row over the domains. A node that lacks a
layer's label is in no domain of a layer, only in the cluster.

Bounds: one table, computed again when nodes or their labels change.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from cotenant.api.objects.network_topology import decode_network_topology
from cotenant.domain.network_topology import CLUSTER_LAYER, NODE_LAYER, Layer, TopologyError, layers_of, path_of
from cotenant_scheduler.state.columns import BoolArray, IntArray
from cotenant_scheduler.state.nodes import NodeTable


class Levels(msgspec.Struct, frozen=True):
    """All domains by level: arrays of a domain number a row, or of something a domain."""

    names: tuple[str, ...]
    ids: tuple[IntArray, ...]
    """By level, each row's domain (int64)."""
    parents: tuple[IntArray, ...]
    """By level, each domain's domain in the level above (int64); none for the cluster."""
    paths: tuple[tuple[str, ...], ...]
    """By level, the names of the domains from the widest layer down."""
    named: tuple[BoolArray, ...]
    """By level, whether a domain has a name, and so has every domain above it. A node without a layer's label has none."""

    def sums(self, of_rows: IntArray, multiples: Mapping[str, int]) -> list[IntArray]:
        """Return by level the sums over domains of a number a row (int64), each domain's rounded down to the multiple that its
        layer has."""
        last = len(self.names) - 1
        found = [_rounded(of_rows, multiples.get(self.names[last], 1))]
        for level in range(last, 0, -1):
            above = np.zeros(len(self.paths[level - 1]), dtype=np.int64)
            np.add.at(above, self.parents[level], found[0])
            found.insert(0, _rounded(above, multiples.get(self.names[level - 1], 1)))
        return found


def _rounded(amounts: IntArray, multiple: int) -> IntArray:
    return amounts if multiple <= 1 else amounts // multiple * multiple


class NetworkTopology:
    """The layers in force, and the domains that they make of the nodes."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self.layers: tuple[Layer, ...] | None = None
        """None: there is no ClusterNetworkTopology named `default` that can be used."""
        self.version = 0
        """Incremented when the layers change."""
        self._levels: tuple[tuple[int, int, int], Levels] | None = None

    def put(self, document: msgspec.Raw | None) -> None:
        """Take over the object; None: it is gone. Raises msgspec.DecodeError for one that cannot be read: it counts as absent.
        """
        found: tuple[Layer, ...] | None = None
        try:
            if document is not None:
                found = layers_of(decode_network_topology(document).spec.network_topology_spec)
        except TopologyError as error:
            raise msgspec.ValidationError(str(error)) from None
        finally:
            if found != self.layers:
                self.layers = found
                self.version += 1

    def levels(self) -> Levels | None:
        """Return the domains as the nodes are now; None without layers."""
        if self.layers is None:
            return None
        stamp = (self._nodes.version, self._nodes.static_changes.position, self.version)
        if self._levels is None or self._levels[0] != stamp:
            self._levels = (stamp, _levels(self._nodes, self.layers))
        return self._levels[1]


def _levels(nodes: NodeTable, layers: tuple[Layer, ...]) -> Levels:
    nowhere = ("",) * len(layers)
    of_nodes = [path_of(labels, layers) for labels in nodes.labels]
    paths = [path or nowhere for path in of_nodes]
    ids = [np.zeros(nodes.size, dtype=np.int64)]
    parents = [np.zeros(0, dtype=np.int64)]
    names: list[tuple[str, ...]] = [("",)]
    named = [np.ones(1, dtype=np.bool_)]
    for depth in range(1, len(layers) + 1):
        numbers: dict[tuple[str, ...], int] = {}
        found = np.fromiter((numbers.setdefault(path[:depth], len(numbers)) for path in paths), np.int64, len(paths))
        above = np.zeros(len(numbers), dtype=np.int64)
        above[found] = ids[-1]
        ids.append(found)
        parents.append(above)
        names.append(tuple("/".join(path) for path in numbers))
        named.append(np.fromiter((bool(path[0]) for path in numbers), np.bool_, len(numbers)))
    parents.append(ids[-1])
    ids.append(np.arange(nodes.size, dtype=np.int64))
    names.append(tuple(nodes.names))
    named.append(np.fromiter((path is not None for path in of_nodes), np.bool_, len(of_nodes)))
    return Levels(
        (CLUSTER_LAYER, *(layer.name for layer in layers), NODE_LAYER), tuple(ids), tuple(parents), tuple(names), tuple(named)
    )

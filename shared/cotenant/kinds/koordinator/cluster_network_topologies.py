"""scheduling.koordinator.sh/v1alpha1 ClusterNetworkTopology: the layers of the network, as node labels name them.

Stored and shown as given; the scheduler reads the object named `default`. Its rules: layers that form one chain from the nodes
upwards (`cotenant.domain.network_topology`). `kubectl get` shows the layers from the widest down. Source: Koordinator's custom
resource.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.network_topology import ClusterNetworkTopology, decode_network_topology
from cotenant.api.snapshots import Snapshot
from cotenant.api.validation.fields import FieldError, invalid
from cotenant.domain.network_topology import TopologyError, layers_of

NETWORK_TOPOLOGIES = Kind(
    "scheduling.koordinator.sh", "v1alpha1", "clusternetworktopologies", "ClusterNetworkTopology", False
)


def network_topology_errors(topology: ClusterNetworkTopology) -> list[FieldError]:
    """Return the errors of the layers."""
    try:
        layers_of(topology.spec.network_topology_spec)
    except TopologyError as error:
        place, _, text = str(error).partition(": ")
        return [invalid(place, [spec.topology_layer for spec in topology.spec.network_topology_spec], text)]
    return []


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = decode_network_topology(snapshot.document)
    try:
        layers = ",".join(layer.name for layer in layers_of(shown.spec.network_topology_spec))
    except TopologyError:
        layers = "<invalid>"
    return snapshot.address.name, layers or "<none>", age(shown.metadata.creation_timestamp, now)


DEFINITION = KindDefinition(
    NETWORK_TOPOLOGIES,
    decode=decode_network_topology,
    errors=lambda topology, _: network_topology_errors(topology),
    layout=Layout((NAME, Column("Layers"), AGE), _cells),
    has_status=True,
)

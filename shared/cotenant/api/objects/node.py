"""Typed view of core/v1 Node."""

from __future__ import annotations

import msgspec

from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.model.bounds import Int64
from cotenant.model.quantities import Scalar


class Taint(View, frozen=True, kw_only=True):
    """A taint; effect is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(View, frozen=True, kw_only=True):
    """A node's spec as users declare it."""

    unschedulable: bool = False
    taints: list[Taint] = []
    provider_id: str = msgspec.field(default="", name="providerID")


class ContainerImage(View, frozen=True, kw_only=True):
    """An image present on the node."""

    names: list[str] = []
    size_bytes: Int64 = 0


class NodeStatus(View, frozen=True, kw_only=True):
    """Capacity and allocatable as declared (simulated and foreign nodes); an executor's report overlays them."""

    capacity: dict[str, Scalar] = {}
    allocatable: dict[str, Scalar] = {}
    images: list[ContainerImage] = []


class Node(View, frozen=True, kw_only=True):
    """A node object."""

    api_version: str = "v1"
    kind: str = "Node"
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


_DECODER = msgspec.json.Decoder(Node)


def decode_node(raw: bytes | memoryview | msgspec.Raw) -> Node:
    """Return the typed view. Raises msgspec.ValidationError with the field's path, or DecodeError."""
    return _DECODER.decode(raw)

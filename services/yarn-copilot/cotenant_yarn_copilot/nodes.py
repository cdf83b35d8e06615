"""The folded state of one node: its object, its batch resources, the pods placed on it, its published event.

In: node objects, NodeResources, placements, the service's own YarnNode events. Out: the host name and NodeManager id that the
node declares, and the batch resources that are available to YARN there:

    for YARN = origin batch of the node - batch requests of the pods placed on it        (not below 0)

The origin is the node's batch capacity before YARN's share is subtracted: that of the node's NodeResources, 0 while batch
resources are withdrawn; without them, as where Koordinator's manager computes batch resources, that of its object.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.metadata import AnyObject
from cotenant.domain.third_party import ThirdPartyError
from cotenant.events.envelope import Event
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.yarn import YarnNode
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement
from cotenant.model.names import BATCH_CPU, BATCH_MEMORY, LABEL_HOSTNAME
from cotenant.model.quantities import QuantityError, Scalar
from cotenant_yarn_copilot.batch_source import batch_of_node
from cotenant_yarn_copilot.capacity import BatchAmounts
from cotenant_yarn_copilot.node_id import ANNOTATION_NODE_ID, LABEL_COMPONENT, NODE_MANAGER, PodLabels


class _Status(msgspec.Struct, frozen=True):
    allocatable: dict[str, Scalar] | None = None


class _Offer(msgspec.Struct, frozen=True):
    status: _Status | None = None


_HEAD = msgspec.json.Decoder(AnyObject)
_OFFER = msgspec.json.Decoder(_Offer)


class BatchPod(msgspec.Struct, frozen=True):
    """A pod on the node: its batch requests, and its labels if it is a NodeManager."""

    batch: BatchAmounts
    node_manager: PodLabels | None = None


class KnownNode(msgspec.Struct):
    """The folded state of one node."""

    exists: bool = False
    hostname: str = ""
    declared_id: str = ""
    stated: BatchAmounts | None = None
    """The batch resources in its object; None where it states none."""
    unreadable: str = ""
    """Why they cannot be read."""
    ref: str = ""
    resources: NodeResources | None = None
    resources_ref: str = ""
    pods: dict[str, BatchPod] = msgspec.field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether no message of the node is left."""
        return not (self.exists or self.resources is not None or self.pods)

    def take_object(self, event: Event, stored: ObjectStored | None) -> None:
        """Fold the node's object; None once it is deleted."""
        self.exists = stored is not None
        self.ref = event.ref if stored is not None else ""
        self.hostname = self.declared_id = self.unreadable = ""
        self.stated = None
        if stored is None:
            return
        try:
            metadata = _HEAD.decode(stored.object).metadata
        except msgspec.DecodeError:
            return  # unreadable metadata counts as absent; the node's name is in the subject
        self.hostname = metadata.labels.get(LABEL_HOSTNAME, "")
        self.declared_id = metadata.annotations.get(ANNOTATION_NODE_ID, "")
        try:
            status = _OFFER.decode(stored.object).status or _Status()
            self.stated = batch_of_node(metadata.annotations, status.allocatable or {})
        except (msgspec.DecodeError, ThirdPartyError, QuantityError) as error:
            self.unreadable = str(error)

    def origin(self) -> BatchAmounts | None:
        """Return the node's batch resources before YARN's share is subtracted; None while none are known."""
        if self.resources is None:
            return self.stated
        if self.resources.withdrawn:
            return BatchAmounts()
        return BatchAmounts(self.resources.origin.cpu_milli, self.resources.origin.memory_bytes)

    def available(self) -> BatchAmounts:
        """Return the batch resources available to YARN on the node, in milli-CPUs and bytes."""
        origin = self.origin() or BatchAmounts()
        for _, pod in sorted(self.pods.items()):
            origin = origin.without(pod.batch)
        return origin


def placed_pod(placement: Placement) -> BatchPod:
    """Return the fields that are read from a placement."""
    batch = BatchAmounts(placement.requests.get(BATCH_CPU, 0), placement.requests.get(BATCH_MEMORY, 0))
    raw = bytes(placement.pod)
    if NODE_MANAGER.encode() not in raw:
        return BatchPod(batch)
    try:
        metadata = _HEAD.decode(raw).metadata
    except msgspec.DecodeError:
        return BatchPod(batch)
    if metadata.labels.get(LABEL_COMPONENT) != NODE_MANAGER:
        return BatchPod(batch)
    return BatchPod(batch, PodLabels(placement.name, placement.node, metadata.labels, metadata.annotations))


def last_published(published: Mapping[str, Event], entity: str) -> YarnNode | None:
    """Return the last event of a node or an unmatched NodeManager, or None."""
    event = published.get(entity)
    return event.data if event is not None and isinstance(event.data, YarnNode) else None

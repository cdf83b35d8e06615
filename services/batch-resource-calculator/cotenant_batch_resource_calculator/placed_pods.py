"""Pods that are placed on a node, as the formulas see them.

In: placements and their manifests. Out: each pod's tier, request and NUMA zones. While a pod is resized in place its request is
what the scheduler counts (`cotenant.domain.resizing.counted_requests`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import QoSClass, priority_default, qos_raw
from cotenant.domain.resizing import counted_requests
from cotenant.events.placements import Placement
from cotenant.log.contract import LOG
from cotenant.model.names import ANNOTATION_RESOURCE_STATUS
from cotenant.model.quantities import QuantityError
from cotenant.model.tiers import PriorityClass
from cotenant_batch_resource_calculator.formulas.amounts import of_mapping
from cotenant_batch_resource_calculator.formulas.batch import PodNeed


class _ZoneAllocation(msgspec.Struct, frozen=True):
    node: int


class _ResourceStatus(msgspec.Struct, frozen=True, rename="camel"):
    numa_node_resources: list[_ZoneAllocation] = []


_RESOURCE_STATUS = msgspec.json.Decoder(_ResourceStatus)


class PlacedPod(msgspec.Struct, eq=False, gc=False):
    """A pod placed on the node. Its manifest is decoded when the formulas first need it, and then dropped."""

    uid: str
    sequence: int
    _need: Placement | PodNeed

    @property
    def ref(self) -> str:
        """The reference of its placement in an event's causes."""
        return f"{LOG}:{self.sequence}"

    @property
    def need(self) -> PodNeed:
        """The formulas' input from the pod."""
        if isinstance(self._need, Placement):
            self._need = placed_need(self._need)
        return self._need


def need_of(pod: Pod, placement: Placement) -> PodNeed:
    """Return the formulas' input from a pod and its placement. Raises QuantityError."""
    return PodNeed(
        key=f"{placement.namespace}/{placement.name}",
        tier=priority_default(pod),
        exclusive=qos_raw(pod) is QoSClass.LSE,
        request=of_mapping(counted_requests(placement, pod_requests(pod))),
        zones=tuple(zones_of(pod)),
    )


def zones_of(pod: Pod) -> Iterable[int]:
    """Return the NUMA ids that the scheduler allocated to the pod; none if the annotation is absent or unreadable."""
    text = pod.metadata.annotations.get(ANNOTATION_RESOURCE_STATUS)
    if text is None:
        return ()
    try:
        return tuple(zone.node for zone in _RESOURCE_STATUS.decode(text).numa_node_resources)
    except msgspec.DecodeError:
        return ()


def placed_need(placement: Placement) -> PodNeed:
    """Return the formulas' input from a placed pod. One with an unreadable manifest counts as a prod pod with the requests in
    its placement."""
    try:
        return need_of(decode_pod(placement.pod), placement)
    except (msgspec.DecodeError, QuantityError):
        key = f"{placement.namespace}/{placement.name}"
        return PodNeed(key, PriorityClass.PROD, False, of_mapping(placement.requests))

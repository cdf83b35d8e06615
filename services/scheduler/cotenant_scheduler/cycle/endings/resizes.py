"""What a placement says of a resize in place, and the amounts that are counted for it.

In: the record of a pod, one of its placements. Out: the resize as the placement shall say it, by the pod's object and the
report of its node (`cotenant.domain.resizing`); its requests.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.api.objects.pod import decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.resizing import next_resize, pod_with_resources, stated
from cotenant.events.resizes import PlacementResize
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.quantities import QuantityError
from cotenant_scheduler.state.pod_records import PlacementRecord, PodRecord


def resize_of(record: PodRecord, node: str, placed: PlacementRecord) -> PlacementResize | None:
    """Return the resize that a placement shall say; None: nothing is being resized. That of a pod whose object cannot be read,
    or that has ended, stays as it is."""
    data, facts, document = placed.data, record.facts, record.document
    if facts is None or document is None or facts.uid != data.uid:
        return data.resize
    same = data.object_sequence == record.object_sequence
    if data.resize is None and (same or (facts.deleting and placed.facts is not None and placed.facts.shape is facts.shape)):
        return None
    run = record.run_of(node, data.uid)
    if run is not None and run[0].phase.terminal:
        return data.resize
    try:
        asked = stated(decode_pod(document).spec)
        had = asked if same else stated(decode_pod(data.pod).spec)
        return next_resize(data.resize, had, asked, record.object_sequence, run[0].resize if run is not None else None)
    except (msgspec.DecodeError, QuantityError):
        return data.resize


def resized_requests(document: msgspec.Raw, resize: PlacementResize, otherwise: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts of a pod that is being resized. `otherwise`: where its manifest cannot be read."""
    try:
        requests = pod_requests(pod_with_resources(decode_pod(document), resize.counted))
    except (msgspec.DecodeError, QuantityError):
        return dict(otherwise)
    requests.pop(RESOURCE_PODS, None)
    return requests

"""Where the volumes of a pod can be.

Inputs: the pod's claims, the claims, volumes and storage classes of the log, labels of nodes, volumes that placements gave.
Filter, the first that applies:

    a claim does not exist, is being deleted, or (a generic ephemeral volume) is not the pod's own: no node
    a claim without a volume whose class does not wait for a pod: no node ("pod has unbound immediate PersistentVolumeClaims")
    a claim whose volume does not exist: no node
    the node affinity of a claim's volume does not hold
    the volume's zone or region (labels, several joined by `__`) is not the node's; a node without such labels has every zone
    a claim that waits for its first pod finds no volume there, nor may one be made (`state.volumes.binding`)

Allocation: the volume of each claim that waits for its first pod. Nothing here binds claims. Source: kube-scheduler's
VolumeBinding and VolumeZone.
"""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
import numpy as np

from cotenant.api.objects.pod import Pod
from cotenant.events.allocations import Allocation, VolumeGiven
from cotenant.model.names import LABEL_REGION, LABEL_ZONE
from cotenant_scheduler.framework.plugin import Refusal
from cotenant_scheduler.state.columns import BoolArray, CodeArray, IntArray, Rows
from cotenant_scheduler.state.label_columns import LabelColumns
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.pod_reader import ShapeError
from cotenant_scheduler.state.reading.pod_volumes import ClaimKey, VolumesAsked, volumes_asked
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.volumes.binding import Choices, VolumeRows, choose, waits_for_pod
from cotenant_scheduler.state.volumes.volumes import READER, Volumes, asked_of

CLAIM, IMMEDIATE, LOST, CONFLICT, ZONE, UNMATCHED = range(1, 7)
_TWINS = {
    LABEL_ZONE: "failure-domain.beta.kubernetes.io/zone",
    LABEL_REGION: "failure-domain.beta.kubernetes.io/region",
}
ZONES = {**_TWINS, **{old: new for new, old in _TWINS.items()}}
"""Labels that say where a volume or node is, each with its other name."""
_TEXTS = {
    IMMEDIATE: "pod has unbound immediate PersistentVolumeClaims",
    LOST: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    CONFLICT: "node(s) had volume node affinity conflict",
    ZONE: "node(s) had no available volume zone",
    UNMATCHED: "node(s) didn't find available persistent volumes to bind",
}


class VolumeBinding:
    """Filter, reader and allocator."""

    name = READER
    static = False
    spanning = True
    """Its objects, and volumes given elsewhere, change the result of every row."""
    in_columns = False
    preemptible = False
    annotations: tuple[str, ...] = ()
    wakes_on = (
        "objects.core.persistentvolumeclaims.>",
        "objects.core.persistentvolumes.>",
        "objects.storage%2Ek8s%2Eio.storageclasses.>",
        "objects.core.nodes._.*",
    )

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self._labels = LabelColumns()
        self._rows = VolumeRows(self._labels)

    def asks(self, pod: Pod) -> Hashable:
        """Return the volumes that a pod uses; None for a pod without any."""
        try:
            return volumes_asked(pod)
        except msgspec.DecodeError as error:
            raise ShapeError(f"spec.volumes: {error}") from None

    def concerns(self, shape: Shape) -> bool:
        asked = asked_of(shape)
        return asked is not None and bool(asked.claims)

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(nodes.size, dtype=np.int32)
        asked = asked_of(shape)
        if asked is None:
            return codes[rows]
        code, _ = self._problem(asked)
        if code:
            codes[:] = code
            return codes[rows]
        unbound = self._unbound(asked)
        if unbound:
            codes[~self._choices(nodes, unbound).fits] = UNMATCHED
        for key in reversed(asked.claims):
            name = self._volumes.volume_of(key)
            if name:
                volume = self._volumes.volumes[name]
                codes[~self._in_zone(nodes, volume.metadata.labels)] = ZONE
                codes[~self._rows.of(nodes, name, volume)] = CONFLICT
        return codes[rows]

    def allocate(self, nodes: NodeTable, shape: Shape, row: int) -> Allocation | None:
        asked = asked_of(shape)
        unbound = self._unbound(asked) if asked is not None else []
        if not unbound:
            return None
        found = sorted(self._choices(nodes, unbound).on(row))
        return Allocation(volumes=tuple(VolumeGiven(claim=key[1], volume=volume) for key, volume in found))

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        asked = asked_of(shape) or VolumesAsked()
        _, text = self._problem(asked)
        text = text or _TEXTS[code]
        claims = ", ".join(name for _, name in asked.claims)
        return Refusal("volume", text, detail=f"claims {claims}: {text}")

    def _problem(self, asked: VolumesAsked) -> tuple[int, str]:
        """What keeps the pod off all nodes: code and text; 0 if nothing does."""
        volumes = self._volumes
        for key in asked.claims:
            claim, name = volumes.claims.get(key), key[1]
            if claim is None and key in asked.ephemeral:
                return CLAIM, f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            if claim is None:
                return CLAIM, f'persistentvolumeclaim "{name}" not found'
            if claim.status.phase == "Lost":
                lost = claim.spec.volume_name
                return CLAIM, f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{lost}"'
            if claim.metadata.deletion_timestamp is not None:
                return CLAIM, f'persistentvolumeclaim "{name}" is being deleted'
        for key in asked.claims:
            if not volumes.volume_of(key) and not waits_for_pod(volumes.class_of(volumes.claims[key])):
                return IMMEDIATE, _TEXTS[IMMEDIATE]
        for key in asked.claims:
            if (volume := volumes.volume_of(key)) and volume not in volumes.volumes:
                return LOST, _TEXTS[LOST]
        return 0, ""

    def _unbound(self, asked: VolumesAsked) -> list[ClaimKey]:
        return [key for key in asked.claims if not self._volumes.volume_of(key)]

    def _choices(self, nodes: NodeTable, unbound: list[ClaimKey]) -> Choices:
        return choose(nodes, self._volumes, self._rows, self._labels, unbound)

    def _in_zone(self, nodes: NodeTable, labels: dict[str, str]) -> BoolArray:
        wanted = {key: frozenset(labels[key].split("__")) for key in ZONES if key in labels}
        if not wanted:
            return np.ones(nodes.size, dtype=np.bool_)
        anywhere = np.ones(nodes.size, dtype=np.bool_)
        for key in ZONES:
            anywhere &= self._labels.where(nodes, key, lambda value: value is None)
        there = np.ones(nodes.size, dtype=np.bool_)
        for key, values in wanted.items():
            own = self._labels.where(nodes, key, values.__contains__)
            lacks = self._labels.where(nodes, key, lambda value: value is None)
            other = self._labels.where(nodes, ZONES[key], values.__contains__)
            there &= own | (lacks & other)
        return anywhere | there

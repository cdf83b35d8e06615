"""Claims that one pod may use at a time.

Inputs: the pod's claims, the pods that use claims. Filter: a claim with the access mode ReadWriteOncePod is used by another
pod, wherever that is; the end of that pod lifts it. Source: kube-scheduler's VolumeRestrictions. Its rules about disks of
single clouds (GCE, EBS, RBD, iSCSI) are not read: their volumes are CSI volumes by now."""

from __future__ import annotations

import numpy as np

from cotenant.api.objects.storage import READ_WRITE_ONCE_POD
from cotenant_scheduler.framework.plugin import Refusal, row_count
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.volumes.volumes import Volumes, asked_of

_USED = 1
_TEXT = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


class VolumeRestrictions:
    """Filter."""

    name = "VolumeRestrictions"
    static = False
    spanning = True
    in_columns = False
    preemptible = True
    wakes_on = ("node.*.placement.>", "node.*.run.>", "objects.core.persistentvolumeclaims.>")

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes

    def concerns(self, shape: Shape) -> bool:
        asked = asked_of(shape)
        return asked is not None and bool(asked.claims)

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:  # noqa: ARG002
        used = _USED if self._in_use(shape) else 0
        return np.full(row_count(rows), used, dtype=np.int32)

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        return Refusal("volume-in-use", _TEXT, detail=f"claim {self._in_use(shape)} is used by another pod")

    def _in_use(self, shape: Shape) -> str:
        asked = asked_of(shape)
        for key in asked.claims if asked is not None else ():
            claim = self._volumes.claims.get(key)
            if claim is not None and READ_WRITE_ONCE_POD in claim.spec.access_modes and self._volumes.users.get(key):
                return key[1]
        return ""

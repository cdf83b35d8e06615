"""How many volumes of a CSI driver a node takes.

Inputs: the pod's claims and its CSI volumes, the drivers of their volumes (of a claim without one: its class' provisioner),
the volumes that pods of the node use, the node's CSINode. Filter: volumes of a driver that are used there, and those of the
pod that are not yet, are more than the CSINode's `allocatable.count` of that driver. Without such a count there is no limit.
Source: kube-scheduler's NodeVolumeLimits. In this cell a volume is counted once for each claim and node; two claims of one
volume are two."""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.framework.plugin import Refusal
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.pod_volumes import ClaimKey
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.volumes.volumes import Volumes, asked_of

_FULL = 1


class NodeVolumeLimits:
    """Filter."""

    name = "NodeVolumeLimits"
    static = False
    spanning = True
    """A claim that is bound elsewhere changes the driver that it is counted under."""
    in_columns = False
    preemptible = True
    wakes_on = (
        "node.*.placement.>",
        "node.*.run.>",
        "objects.storage%2Ek8s%2Eio.csinodes.>",
        "objects.core.persistentvolumeclaims.>",
    )

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes

    def concerns(self, shape: Shape) -> bool:
        return asked_of(shape) is not None

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(nodes.size, dtype=np.int32)
        if self._volumes.csi_nodes:
            for driver, (claims, inline) in self._wanted(shape).items():
                self._mark(codes, nodes, driver, claims, inline)
        return codes[rows]

    def _wanted(self, shape: Shape) -> dict[str, tuple[list[ClaimKey], int]]:
        """By driver the pod's claims, and its own volumes."""
        wanted: dict[str, tuple[list[ClaimKey], int]] = {}
        asked = asked_of(shape)
        if asked is None:
            return wanted
        for key in asked.claims:
            driver = self._volumes.driver_of(key)
            if driver:
                wanted.setdefault(driver, ([], 0))[0].append(key)
        for driver in asked.inline:
            claims, inline = wanted.get(driver, ([], 0))
            wanted[driver] = claims, inline + 1
        return wanted

    def _mark(self, codes: CodeArray, nodes: NodeTable, driver: str, claims: list[ClaimKey], inline: int) -> None:
        """Refuse the rows where the pod's volumes of a driver would be too many."""
        attached = self._volumes.attached(driver)
        for node, found in self._volumes.csi_nodes.items():
            row = nodes.rows.get(node)
            if row is None:
                continue
            for known in found.spec.drivers:
                if known.name != driver or known.allocatable is None or known.allocatable.count is None:
                    continue
                new = inline + sum(row not in self._volumes.users.get(key, ()) for key in claims)
                if new and attached.get(row, 0) + new > known.allocatable.count:
                    codes[row] = _FULL

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        drivers = ", ".join(sorted(self._wanted(shape)))
        return Refusal("volume-limit", "node(s) exceed max volume count", detail=f"no further volumes of {drivers} there")

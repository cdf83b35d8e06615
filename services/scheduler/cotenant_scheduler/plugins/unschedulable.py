"""Unschedulable nodes (`kubectl cordon`).

Inputs: `spec.unschedulable` of the node, the pod's tolerations. Rule: such a node refuses the pod unless it tolerates
`node.kubernetes.io/unschedulable:NoSchedule`. Source: kube-scheduler NodeUnschedulable.
"""

from __future__ import annotations

import numpy as np

from cotenant.api.objects.node import Taint
from cotenant.domain.tolerations import tolerated
from cotenant_scheduler.framework.plugin import Refusal
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable:
    """Filter."""

    name = "NodeUnschedulable"
    static = True
    spanning = False
    in_columns = True
    preemptible = False
    wakes_on = ("objects.core.nodes._.*",)

    def concerns(self, shape: Shape) -> bool:  # noqa: ARG002
        return True

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = nodes.unschedulable[rows].astype(np.int32)
        return np.zeros_like(codes) if tolerated(UNSCHEDULABLE, shape.tolerations) else codes

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        return Refusal("unschedulable", "node(s) were unschedulable", detail="unschedulable")

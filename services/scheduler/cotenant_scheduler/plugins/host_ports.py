"""Ports of the host.

Inputs: the host ports of the pods on the node, and the pod's own. Filter: a port conflicts with one of the same
protocol and number if the addresses are equal or one of them is 0.0.0.0. Source: kube-scheduler NodePorts.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.plugins import Refusal, RowFunction, row_count, row_numbers
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_needs import HostPort
from cotenant_scheduler.state.shapes import Shape

ALL_ADDRESSES = "0.0.0.0"


def conflicts(wanted: HostPort, taken: HostPort) -> bool:
    """Tell whether two host ports exclude each other."""
    same = wanted[:2] == taken[:2]
    return same and (wanted[2] == taken[2] or ALL_ADDRESSES in (wanted[2], taken[2]))


class NodePorts:
    """Filter. The code is 1 + the index of the pod's port that conflicts."""

    name = "NodePorts"
    static = False
    relational = False
    preemptible = True
    wakes_on = ("node.*.placement.>", "node.*.run.>")

    def concerns(self, shape: Shape) -> bool:
        return bool(shape.host_ports)

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(row_count(rows), dtype=np.int32)
        if not shape.host_ports or not nodes.with_ports:
            return codes
        refuses = self.row_filter(nodes, shape)
        for index, row in enumerate(row_numbers(rows)):
            if row in nodes.with_ports:
                codes[index] = refuses(row)
        return codes

    def row_filter(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        ports, host_ports = nodes.ports, shape.host_ports

        def refuses(row: int) -> int:
            taken = ports[row]
            if not taken:
                return 0
            for index, wanted in enumerate(host_ports):
                if any(conflicts(wanted, port) for port in taken):
                    return index + 1
            return 0

        return refuses

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        protocol, number, _ = shape.host_ports[code - 1]
        return Refusal(
            "host-port",
            "node(s) didn't have free ports for the requested pod ports",
            detail=f"host port {number}/{protocol} taken",
        )

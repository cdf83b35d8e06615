"""Ports of the host.

Inputs: the host ports of the pods on the node, and the pod's own. Filter: a port conflicts with one of the same
protocol and number if the addresses are equal or one of them is 0.0.0.0. Source: kube-scheduler NodePorts.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from cotenant_scheduler.framework.plugin import Refusal, row_count, row_numbers
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.counting import CountedPod, PodCounter, PodKey
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.pod_needs import HostPort
from cotenant_scheduler.state.reading.shapes import Shape

ALL_ADDRESSES = "0.0.0.0"


def conflicts(wanted: HostPort, taken: HostPort) -> bool:
    """Return whether two host ports exclude each other."""
    same = wanted[:2] == taken[:2]
    return same and (wanted[2] == taken[2] or ALL_ADDRESSES in (wanted[2], taken[2]))


class NodePorts(PodCounter):
    """Counter and filter. The code is 1 + the index of the pod's port that conflicts."""

    name = "NodePorts"
    static = False
    spanning = False
    in_columns = False
    preemptible = True
    wakes_on = ("node.*.placement.>", "node.*.run.>")

    def __init__(self) -> None:
        self._taken: dict[int, dict[HostPort, int]] = {}
        """By row, without empty ones: each port, and by how many pods it is taken."""

    def counts(self, shape: Shape) -> bool:
        return bool(shape.host_ports)

    def count(self, row: int, key: PodKey, pod: CountedPod) -> None:  # noqa: ARG002
        taken = self._taken.setdefault(row, {})
        for port in pod.shape.host_ports:
            taken[port] = taken.get(port, 0) + 1

    def uncount(self, row: int, key: PodKey, pod: CountedPod) -> None:  # noqa: ARG002
        taken = self._taken[row]
        for port in pod.shape.host_ports:
            left = taken[port] - 1
            if left:
                taken[port] = left
            else:
                del taken[port]
        if not taken:
            del self._taken[row]

    def concerns(self, shape: Shape) -> bool:
        return bool(shape.host_ports)

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:  # noqa: ARG002
        codes = np.zeros(row_count(rows), dtype=np.int32)
        if shape.host_ports and self._taken:
            for index, row in enumerate(row_numbers(rows)):
                taken = self._taken.get(row)
                if taken is not None:
                    codes[index] = _first_conflict(shape.host_ports, taken)
        return codes

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        protocol, number, _ = shape.host_ports[code - 1]
        return Refusal(
            "host-port",
            "node(s) didn't have free ports for the requested pod ports",
            detail=f"host port {number}/{protocol} taken",
        )


def _first_conflict(asked: tuple[HostPort, ...], taken: Iterable[HostPort]) -> int:
    """Return 1 + the index of the first port that conflicts, 0 where none does."""
    for index, port in enumerate(asked):
        if any(conflicts(port, other) for other in taken):
            return index + 1
    return 0

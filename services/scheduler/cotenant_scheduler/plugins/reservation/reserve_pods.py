"""Where a reservation may be placed, beside the requirements of its pod template.

Inputs: the node that a reservation names, its allocate policy, the policies of the reservations that a node has. Filter: a
named node is the only one; Default is compatible with Default alone, Aligned and Restricted with each other. Source:
Koordinator's reservation Filter for reserve pods.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from cotenant.api.objects.pod import Pod
from cotenant.domain.reservations.names import ANNOTATION_RESERVATION_NODE, ANNOTATION_RESERVE_POD, POLICY_ALIGNED
from cotenant.domain.reservations.reserve_pod import ANNOTATION_POLICY
from cotenant_scheduler.framework.plugin import Refusal, row_count, row_numbers
from cotenant_scheduler.plugins.reservation.fitting import OTHER_NODE, POLICY_CONFLICT, refuses_reserve_pod
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.counting import is_reserve
from cotenant_scheduler.state.held_rooms import Use
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

_CODES = {"": 0, OTHER_NODE: 1, POLICY_CONFLICT: 2}
_TEXTS = {code: text for text, code in _CODES.items()}


class ReservePods:
    """Filter and reader."""

    name = "Reservation"
    static = False
    spanning = False
    in_columns = False
    preemptible = False
    wakes_on = ("objects.core.nodes._.*", "node.*.reservation.>")
    annotations: tuple[str, ...] = (ANNOTATION_RESERVE_POD, ANNOTATION_RESERVATION_NODE, ANNOTATION_POLICY)

    def asks(self, pod: Pod) -> Hashable:
        """Return the node that a reserve pod is meant for and its policy; None for other pods."""
        annotations = pod.metadata.annotations
        if annotations.get(ANNOTATION_RESERVE_POD) != "true" or ANNOTATION_POLICY not in annotations:
            return None
        return annotations.get(ANNOTATION_RESERVATION_NODE, ""), annotations[ANNOTATION_POLICY]

    def concerns(self, shape: Shape) -> bool:
        return self.name in shape.asks

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        wanted, policy = _asked(shape)
        codes = np.zeros(row_count(rows), dtype=np.int32)
        for index, row in enumerate(row_numbers(rows)):
            there = [_policy(use) for use in nodes.held.on(row).values() if use.reserve is not None]
            if wanted or there:
                codes[index] = _CODES[refuses_reserve_pod(nodes.names[row], wanted, policy, there)]
        return codes

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        return Refusal("reservation", _TEXTS[code], "", _TEXTS[code].removeprefix("node(s) "))


def _policy(use: Use) -> str:
    assert use.reserve is not None
    return _asked(use.reserve.shape)[1] if is_reserve(use.reserve_key) else POLICY_ALIGNED


def _asked(shape: Shape) -> tuple[str, str]:
    asked = shape.asks.get(ReservePods.name)
    return asked if isinstance(asked, tuple) else ("", "")

"""Nodes that somebody outside has chosen for a pod, by an annotation.

Inputs: the pod's scheduling hint (`cotenant.api.objects.scheduling_hint`), the nodes' names. Filter: where the hint names
nodes, no others. Score: 100 for the first preferred node, one less for each that follows; its weight is above the sum of all
others, so the pod goes to the first preferred node that can take it, and where none can, to the best of all. Source:
Koordinator's schedulinghint plugin, which tries preferred nodes in their order and scores none then.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.scheduling_hint import (
    HINT_ANNOTATIONS,
    PREFERRED_NODES,
    SchedulingHint,
    SchedulingHintError,
    scheduling_hint,
)
from cotenant_scheduler.framework.plugin import MAX_SCORE, Normalise, Refusal, row_count, row_numbers
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.pod_reader import ShapeError
from cotenant_scheduler.state.reading.shapes import Shape

assert PREFERRED_NODES <= MAX_SCORE

_ABSENT = 1
"""Code of a node that the hint does not name."""


class SchedulingHints:
    """Filter, score and reader."""

    name = "SchedulingHint"
    static = True
    spanning = False
    in_columns = True
    preemptible = False
    weight = 1_000_000
    """Reservations score up to 500,000, all other plugins together less than 2,000."""
    normalise = Normalise.PLAIN
    wakes_on = ("objects.core.nodes._.*", "objects.core.pods.>")
    annotations: tuple[str, ...] = HINT_ANNOTATIONS

    def asks(self, pod: Pod) -> Hashable:
        """Return the pod's hint; None for pods without one."""
        try:
            return scheduling_hint(pod.metadata.annotations)
        except SchedulingHintError as error:
            raise ShapeError(str(error)) from None

    def concerns(self, shape: Shape) -> bool:
        return self.name in shape.asks

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        hint = _asked(shape)
        codes = np.zeros(row_count(rows), dtype=np.int32)
        if hint.only:
            only = frozenset(hint.only)
            for index, row in enumerate(row_numbers(rows)):
                codes[index] = 0 if nodes.names[row] in only else _ABSENT
        return codes

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        scores = np.zeros(row_count(rows), dtype=np.int64)
        preferred = {name: MAX_SCORE - place for place, name in enumerate(_asked(shape).preferred)}
        if preferred:
            for index, row in enumerate(row_numbers(rows)):
                scores[index] = preferred.get(nodes.names[row], 0)
        return scores

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        return Refusal(
            "scheduling-hint",
            "node(s) didn't match the pod's scheduling hint",
            detail=f"the hint names {len(_asked(shape).only)} other node(s)",
        )


_NONE = SchedulingHint()


def _asked(shape: Shape) -> SchedulingHint:
    asked = shape.asks.get(SchedulingHints.name)
    return asked if isinstance(asked, SchedulingHint) else _NONE

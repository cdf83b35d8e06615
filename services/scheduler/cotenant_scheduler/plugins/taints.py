"""Taints and tolerations.

Inputs: taints of the node (its own and those of its condition), the pod's tolerations. Filter: every NoSchedule and
NoExecute taint must be tolerated. Score: fewest PreferNoSchedule taints that are not tolerated, normalised so that
none gives 100. A toleration with an empty key and Exists tolerates everything; an empty effect means every effect;
Equal compares the value. A pod that is not best-effort tolerates `node.kubernetes.io/memory-pressure` implicitly. Source:
kube-scheduler TaintToleration, default weight 3.
"""

from __future__ import annotations

import numpy as np

from cotenant.domain.tolerations import tolerated, untolerated
from cotenant_scheduler.framework.plugin import Normalise, Refusal, row_count, row_numbers
from cotenant_scheduler.state.columns import CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape

SHOWN = 3
"""Different taints that a reason names."""


class TaintToleration:
    """Filter and score."""

    name = "TaintToleration"
    static = True
    spanning = False
    in_columns = True
    preemptible = False
    weight = 3
    normalise = Normalise.LOWEST
    wakes_on = ("objects.core.nodes._.*", "node.*.condition")

    def concerns(self, shape: Shape) -> bool:  # noqa: ARG002
        return True

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(row_count(rows), dtype=np.int32)
        for index, row in _tainted(nodes, rows):
            codes[index] = 1 if untolerated(nodes.taints[row], shape.tolerations) else 0
        return codes

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        scores = np.zeros(row_count(rows), dtype=np.int64)
        for index, row in _tainted(nodes, rows):
            scores[index] = sum(
                taint.effect == "PreferNoSchedule" and not tolerated(taint, shape.tolerations) for taint in nodes.taints[row]
            )
        return scores

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        found = {untolerated(taints, shape.tolerations) for taints in {nodes.taints[row] for row in rows.tolist()}}
        texts = sorted(f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}" for t in found if t)
        shown = ", ".join(texts[:SHOWN]) + (" and others" if len(texts) > SHOWN else "")
        return Refusal("taint", "node(s) had untolerated taint(s)", detail=f"taint {shown} not tolerated")


def _tainted(nodes: NodeTable, rows: Rows) -> list[tuple[int, int]]:
    """Return (index within rows, row) of the asked rows that have taints."""
    if not nodes.tainted:
        return []
    return [(index, row) for index, row in enumerate(row_numbers(rows)) if row in nodes.tainted]

"""Balanced allocation: cpu and memory of a node should fill up together.

Inputs: allocatable and requested cpu and memory, the pod's requests. Score: with f = min(1, (requested + request) /
allocatable) of each, (1 - |f_cpu - f_memory| / 2) * 100, cut off to an integer; 100 where only one of the two is
offered. Source: kube-scheduler NodeResourcesBalancedAllocation, default weight 1.
"""

from __future__ import annotations

import numpy as np

from cotenant.model.names import CPU, MEMORY
from cotenant_scheduler.framework.plugin import MAX_SCORE, Normalise, RowFunction
from cotenant_scheduler.state.columns import IntArray, Rows, of_rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape


class NodeResourcesBalancedAllocation:
    """Score."""

    name = "NodeResourcesBalancedAllocation"
    static = False
    in_columns = True
    weight = 1
    normalise = Normalise.PLAIN

    def score(self, nodes: NodeTable, shape: Shape, rows: Rows) -> IntArray:
        # cpu and memory are the first two dimensions of the table. (2 - s) * 50 is (1 - s / 2) * 100 to the last bit, as
        # halving and doubling are exact.
        fractions = (of_rows(nodes.requested[:2], rows) + shape.request_column) / of_rows(nodes.divisor, rows)
        np.minimum(fractions, 1.0, out=fractions)
        spread = fractions[0]
        spread -= fractions[1]
        np.abs(spread, out=spread)
        np.subtract(2, spread, out=spread)
        spread *= MAX_SCORE / 2
        scores: IntArray = spread.astype(np.int64)
        if not nodes.all_offer:
            scores[~of_rows(nodes.allocatable[:2], rows).all(axis=0)] = MAX_SCORE
        return scores

    def row_score(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        cpu, memory = nodes.dims[CPU], nodes.dims[MEMORY]
        offered_cpu, offered_memory = nodes.allocatable[cpu].data, nodes.allocatable[memory].data
        used_cpu, used_memory = nodes.requested[cpu].data, nodes.requested[memory].data
        more_cpu, more_memory = shape.requests.get(CPU, 0), shape.requests.get(MEMORY, 0)

        def balance(row: int) -> int:
            all_cpu, all_memory = offered_cpu[row], offered_memory[row]
            if all_cpu <= 0 or all_memory <= 0:
                return MAX_SCORE
            fraction_cpu = float(used_cpu[row] + more_cpu) / all_cpu
            if fraction_cpu > 1:
                fraction_cpu = 1.0
            fraction_memory = float(used_memory[row] + more_memory) / all_memory
            if fraction_memory > 1:
                fraction_memory = 1.0
            return int((1 - abs(fraction_cpu - fraction_memory) / 2) * MAX_SCORE)

        return balance

"""Spread of pods over topology domains.

Inputs: pods placed per selector and domain, the pod's constraints, its node selector and required node affinity. A node
counts where it has the topology keys of all constraints of the same hardness, matches selector and affinity (unless the
constraint's nodeAffinityPolicy is Ignore), and has no taint that is not tolerated (if its nodeTaintsPolicy is Honor).
Filter (DoNotSchedule): pods in the node's domain + 1 if the pod selects itself - the fewest in any domain must be at most
maxSkew, with the nominated pods and without them; fewer domains than minDomains make the fewest 0; a node without the key
is refused. Score (ScheduleAnyway): sum over constraints of pods * weight + maxSkew - 1, weight = log(domains + 2) in
millionths; normalised as 100 * (highest + lowest - score) // highest over the feasible nodes, 100 where the highest is 0, 0
for nodes without a key. Source: kube-scheduler PodTopologySpread, default weight 2. A pod has the constraints that it states,
or by configuration some of the cluster (`state.reading.default_spread`); the system's own score nodes that lack a key, too.
"""

from __future__ import annotations

import math

import numpy as np

from cotenant.domain.tolerations import untolerated
from cotenant_scheduler.framework.plugin import MAX_SCORE, Refusal
from cotenant_scheduler.plugins.node_affinity import matcher
from cotenant_scheduler.plugins.pod_relations import PodRelations
from cotenant_scheduler.state.columns import BoolArray, CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.relations import SpreadConstraint
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.relation_counts import Tally

MILLIONTHS = 1_000_000


class PodTopologySpread:
    """Filter and score. The filter's code is 1 + 2 * the index of the constraint, plus 1 where the key is missing."""

    name = "PodTopologySpread"
    static = False
    spanning = True
    in_columns = False
    preemptible = True
    weight = 2
    wakes_on = ("node.*.placement.>", "objects.core.nodes._.*")

    def __init__(self, relations: PodRelations) -> None:
        self._relations = relations

    def concerns(self, shape: Shape) -> bool:
        return bool(shape.relations.spread)

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(nodes.size, dtype=np.int32)
        constraints = shape.relations.spread
        eligible = self._eligible(nodes, shape, hard=True)
        for index in range(len(constraints) - 1, -1, -1):
            constraint = constraints[index]
            if not constraint.hard:
                continue
            own = 1 if constraint.selector in shape.selected_by else 0
            included = _included(nodes, shape, constraint, eligible)
            domains, sums, counted = self._sums(nodes, constraint, included)
            for present in (sums, sums + self._held(nodes, constraint, included)):
                fewest = int(present[counted].min()) if np.count_nonzero(counted) >= max(constraint.min_domains, 1) else 0
                codes[np.append(present, 0)[domains] + own - fewest > constraint.max_skew] = 1 + 2 * index
            codes[domains < 0] = 2 + 2 * index
        return codes[rows]

    def score_all(self, nodes: NodeTable, shape: Shape, feasible: BoolArray) -> IntArray:
        raw = np.zeros(nodes.size, dtype=np.int64)
        soft = [constraint for constraint in shape.relations.spread if not constraint.hard]
        if not soft:
            return raw
        eligible = self._eligible(nodes, shape, hard=False)
        scored = feasible.copy()
        for constraint in soft:
            domains, sums, _ = self._sums(nodes, constraint, _included(nodes, shape, constraint, eligible))
            has_key = domains >= 0
            if not constraint.lenient:
                scored &= has_key
            size = np.unique(domains[feasible & has_key]).shape[0]
            weight = round(math.log(size + 2) * MILLIONTHS)
            found = np.append(sums, 0)[domains] * weight + (constraint.max_skew - 1) * MILLIONTHS
            raw += np.where(has_key, found, 0)
        raw = (raw + MILLIONTHS // 2) // MILLIONTHS
        if not scored.any():
            return np.zeros_like(raw)
        lowest, highest = int(raw[scored].min()), int(raw[scored].max())
        if highest == 0:
            return np.where(scored, MAX_SCORE, 0)
        return np.where(scored, MAX_SCORE * (highest + lowest - raw) // highest, 0)

    def _eligible(self, nodes: NodeTable, shape: Shape, *, hard: bool) -> BoolArray:
        eligible: BoolArray = nodes.declared[: nodes.size] > 0
        for constraint in shape.relations.spread:
            if constraint.hard == hard and not constraint.lenient:
                eligible &= self._relations.domains(nodes, constraint.topology)[0] >= 0
        return eligible

    def _sums(
        self, nodes: NodeTable, constraint: SpreadConstraint, eligible: BoolArray
    ) -> tuple[IntArray, IntArray, BoolArray]:
        """Each row's domain, the pods per domain on eligible nodes, and the domains that have such nodes."""
        domains, number = self._relations.domains(nodes, constraint.topology)
        counted = np.zeros(number, dtype=np.bool_)
        counted[domains[eligible]] = True
        return domains, _on_eligible(self._relations.placed.selected(constraint.selector), domains, number, eligible), counted

    def _held(self, nodes: NodeTable, constraint: SpreadConstraint, eligible: BoolArray) -> IntArray:
        """The nominated pods per domain on eligible nodes."""
        domains, number = self._relations.domains(nodes, constraint.topology)
        return _on_eligible(self._relations.nominated.selected(constraint.selector), domains, number, eligible)

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        index, missing = divmod(code - 1, 2)
        key = shape.relations.spread[index].topology
        text = "node(s) didn't match pod topology spread constraints"
        if missing:
            return Refusal("spread", f"{text} (missing required label)", detail=f"label {key} is missing")
        return Refusal("spread", text, detail=f"spread over {key} would be uneven")


def _included(nodes: NodeTable, shape: Shape, constraint: SpreadConstraint, eligible: BoolArray) -> BoolArray:
    """Return which of the rows count for a constraint by its policies."""
    included = eligible.copy()
    if constraint.honour_affinity and (shape.node_selector or shape.affinity):
        matches = matcher(shape)
        for row in np.flatnonzero(included).tolist():
            if not matches(nodes.labels[row], nodes.names[row]):
                included[row] = False
    if constraint.honour_taints:
        for row in nodes.tainted:
            if untolerated(nodes.taints[row], shape.tolerations) is not None:
                included[row] = False
    return included


def _on_eligible(tally: Tally, domains: IntArray, number: int, eligible: BoolArray) -> IntArray:
    """Return the sums over domains of what is on eligible rows."""
    sums = np.zeros(number, dtype=np.int64)
    if tally:
        rows = np.fromiter(tally.rows.keys(), dtype=np.int64, count=len(tally.rows))
        counts = np.fromiter(tally.rows.values(), dtype=np.int64, count=len(tally.rows))
        which = eligible[rows] & (domains[rows] >= 0)
        np.add.at(sums, domains[rows[which]], counts[which])
    return sums

"""Affinity and anti-affinity between pods.

Inputs: pods placed per selector and topology domain, terms that placed pods hold, the pod's own terms. Filter: a node
is refused if (1) a pod in one of its domains holds an anti-affinity term that selects the pod, (2) a pod that one of the
pod's own anti-affinity terms selects is in the domain, (3) a required affinity term finds no pod there that all the
terms select, or the node lacks the topology key; where no pod anywhere is selected by all of them and the pod selects
itself, (3) only asks for the keys. Nominated pods count for (1) and (2); for (3) they never satisfy a term, but the first
pod of its kind must go where such a one is nominated. Score: the sum over domains of weight times pods selected by the
pod's preferred terms, and of the preferred terms (and required ones, weight 1) of placed pods that select it; normalised as
(score - lowest) * 100 // (highest - lowest) over the feasible nodes, 0 where all are equal. Source: kube-scheduler
InterPodAffinity, default weight 2.
"""

from __future__ import annotations

import numpy as np

from cotenant_scheduler.framework.plugin import MAX_SCORE, Refusal, RowFunction
from cotenant_scheduler.plugins.pod_relations import PodRelations
from cotenant_scheduler.state.columns import BoolArray, CodeArray, IntArray, Rows
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.relation_counts import Tally

EXISTING, OWN_ANTI, AFFINITY = 1, 2, 3


class InterPodAffinity:
    """Filter and score."""

    name = "InterPodAffinity"
    static = False
    spanning = True
    in_columns = False
    preemptible = True
    weight = 2
    wakes_on = ("node.*.placement.>", "objects.core.nodes._.*", "objects.core.namespaces._.*")

    def __init__(self, relations: PodRelations) -> None:
        self._relations = relations

    def concerns(self, shape: Shape) -> bool:
        return shape.relational

    def filter(self, nodes: NodeTable, shape: Shape, rows: Rows) -> CodeArray:
        codes = np.zeros(nodes.size, dtype=np.int32)
        counts = self._relations.placed
        affinity = shape.relations.affinity
        if affinity:
            anywhere = counts.selected(affinity[0].selector)
            alone = not anywhere and affinity[0].selector in shape.selected_by
            nominated = self._relations.nominated.selected(affinity[0].selector)
            for term in affinity:
                domains, number = self._relations.domains(nodes, term.topology)
                if alone:
                    codes[domains < 0] = AFFINITY
                    if nominated:
                        codes[nominated.per_domain(term.topology, domains, number)[domains] == 0] = AFFINITY
                else:
                    codes[anywhere.per_domain(term.topology, domains, number)[domains] == 0] = AFFINITY
        for present in (counts, self._relations.nominated):
            for term in shape.relations.anti_affinity:
                self._mark(codes, nodes, present.selected(term.selector), term.topology, OWN_ANTI)
        for present in (counts, self._relations.nominated):
            for term, holders in present.holders(preferred=False):
                if term.selector in shape.selected_by:
                    self._mark(codes, nodes, holders, term.topology, EXISTING)
        return codes[rows]

    # In the array form each evaluation looks at all rows; preemption evaluates one row again and again.
    def row_filter(self, nodes: NodeTable, shape: Shape) -> RowFunction:
        relations, selected_by = shape.relations, shape.selected_by
        presences = (self._relations.placed, self._relations.nominated)

        def there(tally: Tally, topology: str, row: int) -> int:
            domains, number = self._relations.domains(nodes, topology)
            return tally.per_domain(topology, domains, number).item(domains.item(row)) if tally else 0

        def refuses(row: int) -> int:
            for present in presences:
                for term, holders in present.holders(preferred=False):
                    if term.selector in selected_by and there(holders, term.topology, row):
                        return EXISTING
            for present in presences:
                for term in relations.anti_affinity:
                    if there(present.selected(term.selector), term.topology, row):
                        return OWN_ANTI
            for term in relations.affinity:
                placed, nominated = (present.selected(term.selector) for present in presences)
                if placed or term.selector not in selected_by:
                    missing = not there(placed, term.topology, row)
                else:
                    missing = self._relations.domains(nodes, term.topology)[0].item(row) < 0
                    missing = missing or (bool(nominated) and not there(nominated, term.topology, row))
                if missing:
                    return AFFINITY
            return 0

        return refuses

    def score_all(self, nodes: NodeTable, shape: Shape, feasible: BoolArray) -> IntArray:
        raw = np.zeros(nodes.size, dtype=np.int64)
        counts = self._relations.placed
        for term in shape.relations.preferred:
            raw += term.weight * self._in_domains(nodes, counts.selected(term.selector), term.topology)
        for term, holders in counts.holders(preferred=True):
            if term.selector in shape.selected_by:
                raw += term.weight * self._in_domains(nodes, holders, term.topology)
        of_feasible = raw[feasible]
        if not of_feasible.size or (lowest := int(of_feasible.min())) == (highest := int(of_feasible.max())):
            return np.zeros_like(raw)
        scores: IntArray = (raw - lowest) * MAX_SCORE // (highest - lowest)
        return scores

    def reason(self, nodes: NodeTable, shape: Shape, code: int, rows: IntArray) -> Refusal:  # noqa: ARG002
        text, detail = {
            EXISTING: (
                "node(s) didn't satisfy existing pods anti-affinity rules",
                "a pod there keeps this one away",
            ),
            OWN_ANTI: ("node(s) didn't match pod anti-affinity rules", "a pod there is one that this one avoids"),
            AFFINITY: ("node(s) didn't match pod affinity rules", "no pod there is one that this one must be with"),
        }[code]
        return Refusal("pod-affinity", text, detail=detail)

    def _in_domains(self, nodes: NodeTable, tally: Tally, topology: str) -> IntArray:
        """The sum over each row's domain; 0 for rows without one."""
        domains, number = self._relations.domains(nodes, topology)
        found: IntArray = tally.per_domain(topology, domains, number)[domains]
        return found

    def _mark(self, codes: CodeArray, nodes: NodeTable, tally: Tally, topology: str, code: int) -> None:
        """Refuse the rows whose domain has a count above 0."""
        if tally:
            codes[self._in_domains(nodes, tally, topology) > 0] = code

"""Preemption within a quota: the node for a pod that its quota has no room for, and the pods of its quota that leave it.

In: a pod that its quota refuses, the results of its shape, the pods of the quota, the disruption budgets. Out: a
`PreemptionCandidate`, or none. The rules are those of preemption on nodes (`cycle.preemption`), with these differences:

    victims    pods of the same quota only (`cotenant.domain.quota.preemption`)
    room       the quota must have room too; each of its limits counts like a resource of the node
    ending     pods of the quota that are ending already count as gone, wherever they are: no pod is preempted if they make
               room. Pods that leave for other nominated pods count for those

Source: Koordinator ElasticQuota PostFilter. Bound: ROWS nodes are looked at, those first whose most important candidate has the
lowest priority.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Set

from cotenant.domain.quota.preemption import Headroom, may_preempt
from cotenant.model.amounts import add_to
from cotenant_scheduler.cycle.preemption import Preemption, PreemptionCandidate, is_ending
from cotenant_scheduler.cycle.what_if import Asking, RowPod
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge
from cotenant_scheduler.state.pods import PodCache

ROWS = 500


class _QuotaAsking(Asking):
    """A shape that needs room in its quota as well as on a row."""

    def __init__(self, nodes: NodeTable, evaluation: Evaluation, left: Headroom, victims: Collection[PodKey]) -> None:
        super().__init__(nodes, evaluation)
        self._quota_left = [amount for _, amount in left]
        self._counted = [resource for resource, _ in left]
        self._victims = victims
        self._nothing = (0,) * len(left)

    def room(self, row: int) -> list[int]:
        """Return the headroom on a row, then that of the quota."""
        return [*super().room(row), *self._quota_left]

    def gives_back(self, pod: RowPod) -> tuple[int, ...]:
        """Return what ending a pod adds to the headroom: to the quota's only if it is a candidate."""
        on_row = super().gives_back(pod)
        if pod.key not in self._victims:
            return (*on_row, *self._nothing)
        return (*on_row, *(pod.shape.requests.get(resource, 0) for resource in self._counted))

    def kinds(self, pods: list[RowPod]) -> list[Hashable]:
        """Return for each pod what `gives_back` depends on."""
        return [(pod.shape, pod.key in self._victims) for pod in pods]


class QuotaPreemption:
    """Chooses a node and its victims. A function of the state."""

    def __init__(
        self,
        nodes: NodeTable,
        pods: PodCache,
        admission: QuotaAdmission,
        preemption: Preemption,
        leaving: Mapping[str, Set[str]],
        *,
        protect_default: bool,
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._admission = admission
        self._preemption = preemption
        self._leaving = leaving
        self._protect_default = protect_default

    def may_help(self, charge: Charge) -> bool:
        """Return whether the quota has any pod that the pod may preempt."""
        return any(self._may_end(charge, held) for held in self._pods.charged.charges_of(charge.membership))

    def _may_end(self, charge: Charge, held: Charge) -> bool:
        quota = charge.membership.quota if charge.membership is not None else ""
        return may_preempt(
            quota,
            charge.shape.priority,
            quota,
            held.shape.priority,
            victim_preemptible=held.preemptible,
            protect_default=self._protect_default,
        )

    def choose(self, charge: Charge, evaluation: Evaluation) -> PreemptionCandidate | None:
        """Return the best node for a pod with this charge; None if preemption within its quota helps on none."""
        membership = charge.membership
        assert membership is not None
        left = self._admission.headroom(charge.shape, membership, charge.preemptible)
        if left is None:
            return None
        rows: dict[int, int] = {}
        victims: set[PodKey] = set()
        ending: dict[str, int] = {}
        for held in self._pods.charged.charges_of(membership):
            may_end = self._may_end(charge, held)
            for key in self._pods.charged.held_with(held):
                record = self._pods.records[key]
                for node, placed in record.placements.items():
                    if placed.charge != held or placed.data.uid in self._leaving.get(node, ()):
                        continue
                    row = self._nodes.rows.get(node)
                    if is_ending(record, placed):
                        add_to(ending, held.shape.requests, 1)
                    elif may_end and row is not None:
                        victims.add(key)
                        rows[row] = max(held.shape.priority, rows.get(row, held.shape.priority))
        left = [(resource, amount + ending.get(resource, 0)) for resource, amount in left]
        if all(amount >= 0 for _, amount in left):
            return None
        names = self._nodes.names
        order = sorted(rows, key=lambda row: (rows[row], names[row]))[:ROWS]
        useful = evaluation.preemptibility.within(order)
        if not useful:
            return None
        asking = _QuotaAsking(self._nodes, evaluation, left, victims)
        return self._preemption.best_of(asking, useful, victims)

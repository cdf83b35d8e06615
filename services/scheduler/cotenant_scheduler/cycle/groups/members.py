"""Which members of a group do not fit: what its waiting events say beside the first of them.

In: a group that waits, and the state at the end of a decision. Out: its members that do not fit beside those before them, from
a trial of the group that does not end at the first. They are given by kind, as members that are charged alike and have the
same demands on reservations are refused alike: the names, the reasons of the nodes, and the node that is nearest to taking
them; of a group that must be in one domain of the network, in the domain that has the most room for it, with the multiples of
pods that its layers get. What the trial places is taken back.

Cost: one more trial of the group, and one evaluation for each kind that does not fit, in a decision that stores a waiting
event of the group (`WaitingPods.decide`); nothing in others, and nothing for a group that is placed. Bounds: KINDS are
described, with NAMED names each; behind the first member that does not fit, TRIED are tried. Further members are counted only.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime

import msgspec
import numpy as np

from cotenant.events.allocations import Gathered
from cotenant.events.envelope import Event
from cotenant.events.placements import RefusedMembers, WaitingReason
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.gathering.confined import NetworkDomain
from cotenant_scheduler.cycle.gathering.gathering import Gathering
from cotenant_scheduler.cycle.gathering.plans import GatheringPlan
from cotenant_scheduler.cycle.groups.trials import GroupTrial, GroupTrials
from cotenant_scheduler.cycle.ordering.queue_head import QueueHead
from cotenant_scheduler.cycle.queue import GroupClass, QueueEntry, WaitingTemplate
from cotenant_scheduler.cycle.waiting import OF_TOPOLOGY, WaitingPods
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.state.counting import PodKey, shown_name
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PodRecord

KINDS = 6
NAMED = 8
TRIED = 64

_Kind = tuple[Charge, Hashable]


class MembersThatDoNotFit:
    """Finds them; see the module."""

    def __init__(
        self,
        nodes: NodeTable,
        trials: GroupTrials,
        gathering: Gathering,
        results: CachedResults,
        assumed: Assumed,
        waiting: WaitingPods,
        head: QueueHead,
    ) -> None:
        self._nodes = nodes
        self._trials = trials
        self._gathering = gathering
        self._results = results
        self._assumed = assumed
        self._waiting = waiting
        self._head = head

    def of(self, group: GroupClass, now: datetime) -> tuple[tuple[RefusedMembers, ...], int]:
        """Return the members that do not fit, and how many further ones were not tried."""
        with nullcontext() if group.beside_rooms else self._head.ignored():
            return self._of(group, now)

    def _of(self, group: GroupClass, now: datetime) -> tuple[tuple[RefusedMembers, ...], int]:
        entry = group.first()
        if entry is None:
            return (), 0
        records = tuple(record for record in entry.records if not self._assumed.holds(record.key))
        plan: GatheringPlan | None = None
        multiples: Mapping[str, int] = {}
        attempt = self._gathering.attempt(QueueEntry(entry.order, records), group, now) if records else None
        if attempt is not None and attempt.must:
            if attempt.confined is None or not attempt.confined.domains:
                return (), 0  # no domain comes into question, whatever the members request
            domain, multiples = attempt.confined.domains[0], attempt.confined.multiples
            plan = attempt.confined.fullest(domain) if multiples else self._anywhere_in(domain, attempt.must)
            records = attempt.members
        bound: list[Event] = []
        trial = self._trials.start(bound)
        try:
            return self._refused(trial, group, records, now, bound, plan, multiples)
        finally:
            self._trials.take_back(trial, bound)

    def _anywhere_in(self, domain: NetworkDomain, layer: str) -> GatheringPlan:
        """Return a plan that has each member on the first node of a domain, by name, that takes it."""
        rows = domain.rows[np.argsort(-self._nodes.tie[domain.rows])].tolist()
        gathered = Gathered(layer=layer, domain=domain.path)
        return GatheringPlan(rows, [0] * len(rows), gathered, exact=False)

    def _refused(
        self,
        trial: GroupTrial,
        group: GroupClass,
        records: Sequence[PodRecord],
        now: datetime,
        bound: list[Event],
        plan: GatheringPlan | None,
        multiples: Mapping[str, int],
    ) -> tuple[tuple[RefusedMembers, ...], int]:
        kinds: dict[_Kind, _Refused] = {}
        index = one_by_one = tried = left = 0
        while index < len(records):
            record = records[index]
            charge = group.charge_of(record)
            kind = kinds.get((charge, record.ask))
            if kind is not None and not charge.shape.wanted:
                # No pod that was placed since makes room for it.
                kind.members.append(record.key)
                index += 1
                continue
            if len(kinds) >= KINDS or tried >= TRIED:
                left += 1
                index += 1
                continue
            if plan is None and index >= one_by_one:
                at_once, one_by_one = self._trials.place_alike(group, records, index, now, bound)
                index += at_once
                if at_once:
                    continue
            index += 1
            trial.by_quota = False
            refused = self._trials.place_member(trial, group, record, now, bound, plan, None)
            tried += bool(kinds) or refused is not None
            if refused is not None:
                if kind is None:
                    reason = self._reason(record, charge, plan, multiples, refused, trial)
                    kind = kinds[charge, record.ask] = _Refused([], reason)
                kind.members.append(record.key)
        return tuple(kind.told() for kind in kinds.values()), left

    def _reason(
        self,
        record: PodRecord,
        charge: Charge,
        plan: GatheringPlan | None,
        multiples: Mapping[str, int],
        refused: WaitingTemplate,
        trial: GroupTrial,
    ) -> RefusedMembers:
        """Return why a member does not fit, without the names."""
        waiting = refused.waiting
        if trial.by_quota:
            return RefusedMembers(reasons=waiting.reasons, wakes_on=waiting.wakes_on)
        evaluation = self._results.evaluation(charge.shape)
        among = plan.rows if plan is not None else None
        reasons, _, wakes_on = self._waiting.refusals_of_nodes(evaluation, record.ask, among, nearest=True)
        where, nodes = "", waiting.nodes
        if plan is not None:
            nodes = len(plan.rows)
            where = f"{plan.gathered.layer} {plan.gathered.domain}".rstrip()
            taking = int(np.count_nonzero(evaluation.keys[plan.rows] >= 0))
            if multiples and taking:
                reasons = (*reasons, _left_over(taking, multiples))
                wakes_on = tuple(sorted({*wakes_on, *OF_TOPOLOGY}))
        return RefusedMembers(where=where, nodes=nodes, reasons=reasons, wakes_on=wakes_on)


def _left_over(nodes: int, multiples: Mapping[str, int]) -> WaitingReason:
    """Why nodes that have room for a member do not take it."""
    more = " or ".join(f"for {multiple} more pods in one {layer}" for layer, multiple in multiples.items())
    return WaitingReason(code="network-topology", count=nodes, detail=f"with room, but not {more} (podCountMultiple)")


class _Refused(msgspec.Struct):
    """The members of a kind, in the order in which they were tried."""

    members: list[PodKey]
    reason: RefusedMembers

    def told(self) -> RefusedMembers:
        names = tuple(map(shown_name, self.members[:NAMED]))
        return msgspec.structs.replace(self.reason, names=names, count=len(self.members))

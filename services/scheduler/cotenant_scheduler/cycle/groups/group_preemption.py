"""Preemption for a group of pods: its members are nominated to nodes that pods of lower priority leave, all
that its rules require or none.

In: the group, the failed attempt to place it, the current nominations. Out: the waiting events of its members, each
with its nominated node, in one batch; or nothing, and the reason in the template of the group. The rules:

    who         groups of pods that may preempt, whose quotas admit all of them; others wait
    one by one  members in queue order: one that fits, on a node or in a reservation, is nominated without victims, to reserve
                its room; one that does not gets the node that costs least (`cycle.preemption`), or the reservation there
                (`cycle.reservation_preemption`), beside those chosen for the members before it. Pods that leave for an earlier
                member cost nothing again, so a cleared node is filled first
    together    a group that must be in one domain of a layer of the network: in the domain where its victims weigh least
    whole       fewer members than the group needs: none is nominated, none is preempted
    patience    the nominations of a group last as long as each of its nodes exists, no pod of a higher priority is nominated to
                one, and victims have time left or are ending on any of them; then all are chosen again, and a member that
                gets none any more loses the one it had. They do not count for the group itself, which is placed as soon as it
                fits, there or elsewhere
descheduler-arbiter evicts the victims. Source: Koordinator's job-level preemption (CoschedulingArgs.enablePreemption), which
ignores disruption budgets; here they count as they do for single pods.

Groups whose members have affinity to one another do not preempt: a reserved room does not count for affinity.
Bounds: MEMBERS; a larger group does not preempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.domain.quota.membership import Membership
from cotenant.events.envelope import Event
from cotenant.events.placements import Nomination
from cotenant_scheduler.cycle.groups.trials import GroupTrial
from cotenant_scheduler.cycle.nominations import Nominations, nomination_of
from cotenant_scheduler.cycle.preempting import Preempting, nomination_to, patience
from cotenant_scheduler.cycle.preemption import PreemptionCandidate, Rank
from cotenant_scheduler.cycle.queue import GroupClass, QueueEntry
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.columns import IntArray
from cotenant_scheduler.state.counting import PodKey, is_reserve
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord

MEMBERS = 749
"""The nominations that fit into a decision of usual size."""


class GroupPreemption:
    """Nominates groups."""

    def __init__(
        self,
        nodes: NodeTable,
        results: CachedResults,
        admission: QuotaAdmission,
        nominations: Nominations,
        preempting: Preempting,
        reserving: Reserving,
        waiting: WaitingPods,
    ) -> None:
        self._reserving = reserving
        self._nodes = nodes
        self._results = results
        self._admission = admission
        self._preemption = preempting.preemption
        self._nominations = nominations
        self._preempting = preempting
        self._waiting = waiting

    def refused(
        self, group: GroupClass, entry: QueueEntry, trial: GroupTrial, now: datetime, domains: Sequence[IntArray] | None = None
    ) -> list[Event]:
        """Return the waiting events of a group that is nominated now; none: it stays nominated, or just waits. `domains`: the
        rows of each domain of the network that it may be in; None: it may be anywhere."""
        before = {record.key: found for record in entry.records if (found := nomination_of(record)) is not None}
        group.keeps_nominations = False
        if trial.refused is None:
            return []
        if before and not trial.by_quota and self._are_kept(entry, before, now):
            group.keeps_nominations = True
            return []
        chosen = {}
        if not trial.by_quota and self._may_preempt(group, entry):
            chosen = self._choose(group, entry, now) if domains is None else self._cheapest(group, entry, now, domains)
        if not chosen:
            for key in before:
                self._nominations.end(key)
            return []
        attempts = 1 + max((found.attempts for found in before.values()), default=0)
        trial.refused = self._waiting.of_preempting_group(
            group,
            trial.refused,
            sum(len(choice.victims) for choice in chosen.values()),
            len({choice.node for choice in chosen.values() if choice.victims}),
        )
        events = []
        for record in entry.records:
            choice = chosen.get(record.key)
            if choice is None:
                if record.key in before:
                    self._preempting.end(record)
                    events.append(self._waiting.event(record, trial.refused, None))
                continue
            nomination = nomination_to(choice, now, attempts)
            self._preempting.note(record, nomination, group.charge_of(record).shape)
            template = msgspec.structs.replace(trial.refused, causes=self._preempting.causes(choice))
            events.append(self._waiting.event(record, template, nomination))
        group.keeps_nominations = True
        return events

    def _may_preempt(self, group: GroupClass, entry: QueueEntry) -> bool:
        if len(entry.records) > MEMBERS:
            return False
        if not self._preempting.for_reservations and any(is_reserve(record.key) for record in entry.records):
            return False
        shapes = {group.charge_of(record).shape for record in entry.records}
        selected = frozenset[int]().union(*(shape.selected_by for shape in shapes))
        return all(shape.preempts and selected.isdisjoint(shape.wanted) for shape in shapes) and any(
            self._preemption.may_help(shape) for shape in shapes
        ) and self._is_admitted(group, entry)

    def _is_admitted(self, group: GroupClass, entry: QueueEntry) -> bool:
        """Return whether the quotas admit all members."""
        requests: dict[tuple[Membership, bool], dict[str, int]] = {}
        for record in entry.records:
            charge = group.charge_of(record)
            if charge.membership is not None:
                total = requests.setdefault((charge.membership, charge.preemptible), {})
                for name, amount in charge.shape.requests.items():
                    total[name] = total.get(name, 0) + amount
        return all(
            self._admission.admits(total, membership, preemptible)
            for (membership, preemptible), total in requests.items()
        )

    def _are_kept(self, entry: QueueEntry, before: dict[PodKey, Nomination], now: datetime) -> bool:
        """Return whether the nominations that the members have are kept."""
        nominated = [(record, before[record.key]) for record in entry.records if record.key in before]
        if not all(self._preempting.may_keep(found.node, record) for record, found in nominated):
            return False
        if any(now < found.at + patience(found.attempts) for found in before.values()):
            return True
        nodes = {found.node: record for record, found in nominated}
        return any(self._preempting.ends_on(node, record) for node, record in nodes.items())

    def _cheapest(
        self, group: GroupClass, entry: QueueEntry, now: datetime, domains: Sequence[IntArray]
    ) -> dict[PodKey, PreemptionCandidate]:
        """Choose in the domain where the victims weigh least: as single nodes are compared, then the first domain."""
        mark = self._nominations.mark()
        found: list[tuple[tuple[int, int, int, int], int]] = []
        for index, rows in enumerate(domains):
            chosen = self._choose(group, entry, now, rows)
            if chosen:
                ranks = [choice.rank for choice in chosen.values() if choice.victims]
                found.append((_together(ranks), index))
                self._nominations.restore(mark)
        return self._choose(group, entry, now, domains[min(found)[1]]) if found else {}

    def _choose(
        self, group: GroupClass, entry: QueueEntry, now: datetime, rows: IntArray | None = None
    ) -> dict[PodKey, PreemptionCandidate]:
        """Return a node for as many members as the group needs, each with its victims; none if there are not so many. `rows`:
        on no others."""
        mark = self._nominations.mark()
        members = [record.key for record in entry.records]
        chosen: dict[PodKey, PreemptionCandidate] = {}
        own = frozenset(members)
        for record in entry.records:
            shape = group.charge_of(record).shape
            self._nominations.hold(shape.priority, own)
            evaluation = self._results.evaluation(shape)
            choice = self._free(record, evaluation, rows) or self._preempting.choose(record, evaluation, rows)[0]
            if choice is None:
                if group.together.gives_up(record.key):
                    break
                continue
            chosen[record.key] = choice
            own -= {record.key}
            self._nominations.nominate(record.key, nomination_to(choice, now), shape)
            self._nominations.hold_also(record.key, shape.priority, own)
        if not any(choice.victims for choice in chosen.values()) or not group.together.enough(list(chosen), members):
            self._nominations.restore(mark)
            return {}
        return chosen

    def _free(self, record: PodRecord, evaluation: Evaluation, rows: IntArray | None) -> PreemptionCandidate | None:
        """Return where a member fits as the nodes are, in a reservation or beside them; None: nowhere."""
        ask = record.ask
        reserved = self._reserving.choose(evaluation, ask, rows) if isinstance(ask, Ask) else None
        used = None
        if reserved is not None:
            row, allocation = reserved.row, reserved.allocation
            used = allocation.reservation if allocation is not None else None
        elif isinstance(ask, Ask) and (ask.required or ask.problem):
            row = -1
        else:
            row = evaluation.best() if rows is None else evaluation.best_of(rows)
        return PreemptionCandidate((0, 0, 0, 0, 0, ""), self._nodes.names[row], (), used) if row >= 0 else None


def _together(ranks: Sequence[Rank]) -> tuple[int, int, int, int]:
    """Return violations, the highest priority of a victim, the sum of priorities and the number of victims over nodes."""
    violations, highest, priorities, victims, *_ = zip(*ranks, strict=True)
    return sum(violations), max(highest), sum(priorities), sum(victims)

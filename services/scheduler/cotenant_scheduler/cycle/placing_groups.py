"""Placing a group of pods: as many as its rules require in one batch, or none.

In: the entry of a group at the head of the queue. Out: the events of its placements, or of the nominations by which it makes
room (`cycle.group_preemption`), or why it waits. Its members are tried in queue order under a savepoint. Waiting events of a
group that a decision of usual size cannot hold end in the decisions behind it (`cycle.endings`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import takewhile

from cotenant.events.envelope import Event
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.cycle.group_preemption import GroupPreemption, Trial
from cotenant_scheduler.cycle.nominations import Nominations
from cotenant_scheduler.cycle.ordering.queue_head import REFUSED_OTHERWISE
from cotenant_scheduler.cycle.ordering.walk import Walk
from cotenant_scheduler.cycle.queue import Entry, EquivalenceClass, GroupClass, WaitingTemplate
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.framework.series import WORTHWHILE
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.counting import is_reserve
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PodRecord
from cotenant_scheduler.state.quotas.cache import Quotas


class PlacingGroups:
    """Places groups; see the module. `usual`: events that a decision has for one together with the ends of its waiting events;
    `most`: members that it may have in any case."""

    def __init__(
        self,
        nodes: NodeTable,
        results: CachedResults,
        binding: Binding,
        quotas: Quotas,
        admission: QuotaAdmission,
        assumed: Assumed,
        waiting: WaitingPods,
        nominations: Nominations,
        reserving: Reserving,
        preemption: GroupPreemption,
        refused_by_nodes: Callable[[Walk, Entry, EquivalenceClass, datetime], None],
        usual: int,
        most: int,
    ) -> None:
        self._reserving = reserving
        self._nodes = nodes
        self._results = results
        self._binding = binding
        self._quotas = quotas
        self._admission = admission
        self._assumed = assumed
        self._waiting = waiting
        self._nominations = nominations
        self._preemption = preemption
        self._refused_by_nodes = refused_by_nodes
        self._usual = usual
        self._most = most

    def decide(self, walk: Walk, entry: Entry, group: GroupClass, now: datetime, bound: list[Event]) -> None:
        """Place as many of a group as its rules require, in one batch, or record why it waits."""
        if any(self._reserving.is_over(record) for record in entry.records):
            walk.close()  # this decision states how that reservation ended
            return
        # The status of a reservation ends with its share.
        if sum(2 if is_reserve(record.key) else 1 for record in entry.records) > self._most:
            group.template = self._waiting.group_too_large(group, len(entry.records), self._most)
            group.kept = REFUSED_OTHERWISE
            walk.close()
            return
        self._binding.ends_waiting = entry.event_count <= self._usual
        trial = Trial(self._assumed.savepoint(), len(bound))
        self._try(trial, group, entry, now, bound)
        self._binding.ends_waiting = True
        if group.together.enough(trial.placed, [record.key for record in entry.records]):
            self._placed(walk, entry, group, trial)
            return
        self._assumed.rollback(trial.savepoint)
        del bound[trial.begun :]
        events = self._preemption.refused(group, entry, trial, now)
        group.template = trial.refused
        if not events:
            if trial.by_quota or trial.refused is None:
                group.kept = REFUSED_OTHERWISE
                walk.close(by_nodes=True)
            else:
                self._refused_by_nodes(walk, entry, group, now)
            return
        walk.wake()
        bound += events
        walk.advance()

    def _placed(self, walk: Walk, entry: Entry, group: GroupClass, trial: Trial) -> None:
        walk.wake()
        group.stamp = None
        group.template = trial.refused
        for key in trial.placed:
            self._nominations.end(key)
        walk.advance()
        selected_by = {number for record in entry.records for number in group.charge_of(record).shape.selected_by}
        if selected_by:
            walk.reopen(tuple(sorted(selected_by)))

    def _try(self, trial: Trial, group: GroupClass, entry: Entry, now: datetime, bound: list[Event]) -> None:
        """Assume as many members on nodes as the group's rules require."""
        members = [record.key for record in entry.records]
        placed = trial.placed
        index = one_by_one = 0
        while index < len(entry.records):
            record = entry.records[index]
            if index >= one_by_one:
                alike = self._run_of_group(group, entry, index)
                one_by_one = index + len(alike)
                at_once = self._place_members(group, alike, group.charge_of(record), now, bound)
                placed += members[index : index + at_once]
                index += at_once
                if at_once:
                    continue
            index += 1
            found = self._place_member(trial, group, record, now, bound)
            if found is None:
                placed.append(record.key)
                continue
            trial.refused = trial.refused or self._waiting.of_member(group, record, len(placed), found)
            if group.together.gives_up(record.key) or group.together.enough(placed, members):
                break

    def _run_of_group(self, group: GroupClass, entry: Entry, index: int) -> list[PodRecord]:
        """The members of one gang from here on that are charged alike."""
        first = entry.records[index]
        charge, gang = group.charge_of(first), group.together.gang_of(first.key)

        def like_first(record: PodRecord) -> bool:
            alike = group.charge_of(record) == charge and record.ask == first.ask
            return alike and group.together.gang_of(record.key) == gang

        return list(takewhile(like_first, entry.records[index:]))

    def _place_members(
        self, group: GroupClass, alike: list[PodRecord], charge: Charge, now: datetime, bound: list[Event]
    ) -> int:
        """Place equal members at once where that pays; return how many were placed."""
        if len(alike) < WORTHWHILE or alike[0].ask is not None or is_reserve(alike[0].key):
            return 0
        self._nominations.hold(charge.shape.priority, group.own_rooms)
        evaluation = self._results.evaluation(charge.shape)
        if not evaluation.in_columns or self._nodes.counters_of(charge.shape) or evaluation.best() < 0:
            return 0
        if charge.membership is not None:
            admitted = self._admission.one_after_the_other(charge.shape)
            alike = list(takewhile(lambda _: admitted.admits(charge), alike))
        if len(alike) < WORTHWHILE:
            return 0
        gang = group.together.gang_of(alike[0].key)
        return self._binding.place_series(alike, [charge] * len(alike), evaluation, now, bound, [gang] * len(alike))

    def _place_member(
        self, trial: Trial, group: GroupClass, record: PodRecord, now: datetime, bound: list[Event]
    ) -> WaitingTemplate | None:
        """Place one pod of a group; else return why it cannot be."""
        charge = group.charge_of(record)
        group.stamp = None
        if charge.membership is not None:
            refusal = self._admission.check(charge.shape, charge.membership, charge.preemptible)
            if refusal is not None:
                trial.by_quota = True
                return self._waiting.refused_by_quota(group, refusal, self._quotas.causes(charge.membership))
        self._nominations.hold(charge.shape.priority, group.own_rooms)
        evaluation = self._results.evaluation(charge.shape)
        ask = record.ask
        reserved = self._reserving.choose(evaluation, ask) if isinstance(ask, Ask) else None
        if reserved is not None:
            row = reserved.row
        else:
            row = -1 if isinstance(ask, Ask) and (ask.required or ask.problem) else evaluation.best()
        if row < 0:
            return self._waiting.refused_by_nodes(group, evaluation, "", record=record)
        gang = group.together.gang_of(record.key)
        self._binding.place(bound, record, row, evaluation, charge, now, gang, reserved)
        return None

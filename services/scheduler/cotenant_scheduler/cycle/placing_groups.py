"""Placing a group of pods: as many as its rules require in one batch, or none.

In: the entry of a group at the head of the queue. Out: the events of its placements, or of the nominations by which it makes
room (`cycle.group_preemption`), or why it waits. Its members are tried in queue order under a savepoint, each where its score
is best; if they do not fit so, where rooms are held for them, which were chosen for one another; those of a group
that shall be near to one another in the network, in one domain after the other (`cycle.gathering`). Waiting events of a group
that a decision of usual size cannot hold end in the decisions behind it (`cycle.endings`).

Over 300 lines: all ways to try a group place its members by the same steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import takewhile

from cotenant.events.allocations import Allocation, Gathered, ReservationUsed
from cotenant.events.envelope import Event
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.cycle.equal_groups import EqualGroups
from cotenant_scheduler.cycle.gathering.confined import Confined
from cotenant_scheduler.cycle.gathering.gathering import Attempt, Gathering
from cotenant_scheduler.cycle.gathering.plans import GatheringPlan
from cotenant_scheduler.cycle.group_preemption import GroupPreemption, GroupTrial
from cotenant_scheduler.cycle.nominations import Nominations, nomination_of
from cotenant_scheduler.cycle.ordering.queue_head import REFUSED_OTHERWISE, held_for
from cotenant_scheduler.cycle.ordering.walk import Walk
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, QueueEntry, WaitingTemplate
from cotenant_scheduler.cycle.reservations.reserving import Reserving, SelectedNode
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.framework.series import WORTHWHILE
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.counting import PodKey, is_reserve
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PodRecord
from cotenant_scheduler.state.quotas.cache import Quotas

HeldRoom = tuple[str, ReservationUsed | None]
"""A node, and the reservation there that the room is in."""

NO_ROOMS: Mapping[PodKey, HeldRoom] = {}


class PlacingGroups:
    """Places groups; see the module. `usual`: events that a decision has for one together with the ends of its waiting events;
    `most`: members that it may have in any case."""

    def __init__(
        self,
        nodes: NodeTable,
        equal_groups: EqualGroups,
        results: CachedResults,
        binding: Binding,
        quotas: Quotas,
        admission: QuotaAdmission,
        assumed: Assumed,
        waiting: WaitingPods,
        nominations: Nominations,
        reserving: Reserving,
        preemption: GroupPreemption,
        gathering: Gathering,
        refused_by_nodes: Callable[[Walk, QueueEntry, EquivalenceClass, datetime, Confined | None], None],
        usual: int,
        most: int,
    ) -> None:
        self._nodes = nodes
        self._reserving = reserving
        self._equal_groups = equal_groups
        self._results = results
        self._binding = binding
        self._quotas = quotas
        self._admission = admission
        self._assumed = assumed
        self._waiting = waiting
        self._nominations = nominations
        self._preemption = preemption
        self._gathering = gathering
        self._refused_by_nodes = refused_by_nodes
        self._usual = usual
        self._most = most

    def decide(self, walk: Walk, entry: QueueEntry, group: GroupClass, now: datetime, bound: list[Event]) -> None:
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
        attempt = self._gathering.attempt(entry, group, now)
        if attempt is None:
            trial = self._tried(group, entry.records, now, bound)
        else:
            trial = self._gathered(attempt, group, now, bound)
        if not trial.enough and not trial.by_quota:
            trial = self._in_rooms(attempt, entry, group, now, bound) or trial
        self._binding.ends_waiting = True
        if trial.enough:
            self._placed(walk, entry, group, trial)
            return
        confined = attempt.confined if attempt is not None else None
        nowhere = attempt is not None and bool(attempt.must) and (confined is None or not confined.domains)
        domains = () if nowhere else [domain.rows for domain in confined.domains] if confined is not None else None
        events = self._preemption.refused(group, entry, trial, now, domains)
        group.template = trial.refused
        if not events:
            if nowhere or trial.by_quota or trial.refused is None:
                group.kept = REFUSED_OTHERWISE
                walk.close(by_nodes=True)
            else:
                self._refused_by_nodes(walk, entry, group, now, confined)
            return
        walk.wake()
        bound += events
        walk.advance()

    def _placed(self, walk: Walk, entry: QueueEntry, group: GroupClass, trial: GroupTrial) -> None:
        walk.wake()
        group.stamp = None
        group.template = trial.refused
        for key in trial.placed:
            self._nominations.end(key)
        walk.advance()
        selected_by = {number for record in entry.records for number in group.charge_of(record).shape.selected_by}
        if selected_by:
            walk.reopen(tuple(sorted(selected_by)))

    def _in_rooms(
        self, attempt: Attempt | None, entry: QueueEntry, group: GroupClass, now: datetime, bound: list[Event]
    ) -> GroupTrial | None:
        """Try a group where rooms are held for its members; None if it does not fit there."""
        rooms = _rooms_of(entry)
        if not rooms:
            return None
        plan: GatheringPlan | None = None
        if attempt is not None and attempt.must:
            rows = [self._nodes.rows.get(node, -1) for node, _ in rooms.values()]
            domain = attempt.confined.domain_of(rows) if attempt.confined is not None else None
            if domain is None:
                return None
            gathered = Gathered(layer=attempt.must, domain=domain.path, pods=len(rooms), slots=domain.slots)
            plan = GatheringPlan((), (), gathered, exact=True)
        trial = self._tried(group, entry.records, now, bound, plan, rooms)
        return trial if trial.enough else None

    def _gathered(self, attempt: Attempt, group: GroupClass, now: datetime, bound: list[Event]) -> GroupTrial:
        """Try a group in one domain of the network after the other."""
        first: GroupTrial | None = None
        for plan in attempt.plans:
            trial = self._tried(group, attempt.members, now, bound, plan)
            first = first or trial
            if trial.enough or trial.by_quota:
                return trial
        trial = first or GroupTrial(self._assumed.savepoint(), len(bound))
        if attempt.reason:
            trial.refused = self._waiting.of_topology(group, attempt.reason)
        elif first is None:
            record = attempt.members[0]
            evaluation = self._results.evaluation(group.charge_of(record).shape)
            found = self._waiting.refused_by_nodes(group, evaluation, "", record=record)
            trial.refused = self._waiting.of_member(group, record, 0, found)
        return trial

    def _tried(
        self,
        group: GroupClass,
        records: Sequence[PodRecord],
        now: datetime,
        bound: list[Event],
        plan: GatheringPlan | None = None,
        rooms: Mapping[PodKey, HeldRoom] = NO_ROOMS,
    ) -> GroupTrial:
        """Assume as many members on nodes as the group's rules require, or none. `rooms`: those that are held for members, who
        go there."""
        trial = GroupTrial(self._assumed.savepoint(), len(bound))
        self._try(trial, group, records, now, bound, plan, rooms)
        trial.enough = group.together.enough(trial.placed, [record.key for record in records])
        if not trial.enough:
            self._assumed.rollback(trial.savepoint)
            del bound[trial.begun :]
        return trial

    def _try(
        self,
        trial: GroupTrial,
        group: GroupClass,
        records: Sequence[PodRecord],
        now: datetime,
        bound: list[Event],
        plan: GatheringPlan | None,
        rooms: Mapping[PodKey, HeldRoom],
    ) -> None:
        """Assume as many members on nodes as the group's rules require."""
        members = [record.key for record in records]
        placed = trial.placed
        where = f" in {plan.gathered.layer} {plan.gathered.domain}" if plan is not None and plan.gathered.domain else ""
        index = one_by_one = 0
        while index < len(records):
            record = records[index]
            if plan is None and not rooms and index >= one_by_one:
                alike = self._run_of_group(group, records, index)
                one_by_one = index + len(alike)
                at_once = self._place_members(group, alike, group.charge_of(record), now, bound)
                placed += members[index : index + at_once]
                index += at_once
                if at_once:
                    continue
            index += 1
            found = self._place_member(trial, group, record, now, bound, plan, rooms.get(record.key))
            if found is None:
                placed.append(record.key)
                continue
            trial.refused = trial.refused or self._waiting.of_member(group, record, len(placed), found, where)
            if group.together.gives_up(record.key) or group.together.enough(placed, members):
                break

    def _run_of_group(self, group: GroupClass, records: Sequence[PodRecord], index: int) -> list[PodRecord]:
        """The members of one gang from here on that are charged alike."""
        first = records[index]
        charge, gang = group.charge_of(first), group.together.gang_of(first.key)

        def like_first(record: PodRecord) -> bool:
            alike = group.charge_of(record) == charge and record.ask == first.ask
            return alike and group.together.gang_of(record.key) == gang

        return list(takewhile(like_first, records[index:]))

    def _place_members(
        self, group: GroupClass, alike: list[PodRecord], charge: Charge, now: datetime, bound: list[Event]
    ) -> int:
        """Place equal members at once where that pays; return how many were placed."""
        if len(alike) < WORTHWHILE or alike[0].ask is not None or is_reserve(alike[0].key):
            return 0
        self._nominations.hold(charge.shape.priority, group.own_rooms)
        gang = group.together.gang_of(alike[0].key)
        return self._equal_groups.place_pods(alike, charge, [gang] * len(alike), now, bound, WORTHWHILE)

    def _place_member(
        self,
        trial: GroupTrial,
        group: GroupClass,
        record: PodRecord,
        now: datetime,
        bound: list[Event],
        plan: GatheringPlan | None,
        room: HeldRoom | None,
    ) -> WaitingTemplate | None:
        """Place one pod of a group, where a plan has it or in its room if there is one; else return why it cannot be."""
        charge = group.charge_of(record)
        group.stamp = None
        if charge.membership is not None:
            reserves = is_reserve(record.key)
            refusal = self._admission.check(charge.shape, charge.membership, charge.preemptible, reserves=reserves)
            if refusal is not None:
                trial.by_quota = True
                return self._waiting.refused_by_quota(group, refusal, self._quotas.causes(charge.membership))
        self._nominations.hold(charge.shape.priority, group.own_rooms)
        evaluation = self._results.evaluation(charge.shape)
        ask = record.ask
        if room is not None:
            row, reserved = self._held_row(room, evaluation, ask)
        elif plan is not None:
            row, reserved = self._planned_row(plan, evaluation, ask)
        else:
            reserved = self._reserving.choose(evaluation, ask) if isinstance(ask, Ask) else None
            if reserved is not None:
                row = reserved.row
            elif isinstance(ask, Ask) and (ask.required or ask.problem):
                row = -1
            else:
                row = evaluation.best()
        if row < 0:
            return self._waiting.refused_by_nodes(group, evaluation, "", record=record)
        gang, gathered = group.together.gang_of(record.key), plan.gathered if plan is not None else None
        allocation = Allocation(gang=gang, gathered=gathered) if gang else None
        self._binding.place(bound, record, row, evaluation, charge, now, allocation, reserved)
        return None

    def _planned_row(self, plan: GatheringPlan, evaluation: Evaluation, ask: object) -> tuple[int, SelectedNode | None]:
        """Return the row that a plan has for a pod, else -1, and the reservation there that it uses."""
        if not isinstance(ask, Ask):
            return plan.row_for(evaluation), None
        reserved = self._reserving.rows(evaluation, ask)
        row = plan.row_for(evaluation, reserved, beside=not (ask.required or ask.problem))
        return row, self._reserving.choose_at(evaluation, ask, row)

    def _held_row(self, room: HeldRoom, evaluation: Evaluation, ask: object) -> tuple[int, SelectedNode | None]:
        """Return the row of a room if a pod fits into it, else -1, and the reservation that the room is in."""
        node, used = room
        row = self._nodes.rows.get(node, -1)
        if row < 0:
            return -1, None
        if used is not None:
            reserved = self._reserving.choose_on(evaluation, ask, row, used.uid) if isinstance(ask, Ask) else None
            return (row, reserved) if reserved is not None else (-1, None)
        beside = not (isinstance(ask, Ask) and (ask.required or ask.problem))
        return (row, None) if beside and evaluation.keys.item(row) >= 0 else (-1, None)


def _rooms_of(entry: QueueEntry) -> dict[PodKey, HeldRoom]:
    """The rooms that are held for members of a group: for nominated ones, and for those of the queue's head."""
    rooms: dict[PodKey, HeldRoom] = {}
    for record in entry.records:
        nomination, hold = nomination_of(record), held_for(record)
        if nomination is not None:
            rooms[record.key] = nomination.node, nomination.reservation
        elif hold is not None:
            rooms[record.key] = hold.node, hold.reservation
    return rooms

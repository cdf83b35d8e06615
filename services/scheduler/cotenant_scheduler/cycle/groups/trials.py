"""Trying a group: as many of its members on nodes as its rules require, or none.

In: members in the order in which they are tried, and where: each on its best node, as a plan has it (`cycle.gathering`), or in
the room that is held for it. Out: their placements, assumed on the nodes and charged to their quotas, or all of it taken back,
and why the first member does not fit that is refused. Members that are alike are placed at once where that pays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import takewhile

import msgspec

from cotenant.events.allocations import Allocation, ReservationUsed
from cotenant.events.envelope import Event
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.cycle.gathering.plans import GatheringPlan
from cotenant_scheduler.cycle.groups.equal_groups import EqualGroups
from cotenant_scheduler.cycle.nominations import Nominations
from cotenant_scheduler.cycle.queue import GroupClass, WaitingTemplate
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


class GroupTrial(msgspec.Struct):
    """An attempt to place a group: its start in the journal and among the events, and its outcome."""

    savepoint: int
    begun: int
    placed: list[PodKey] = []
    refused: WaitingTemplate | None = None
    """Why the first refused member was refused."""
    by_quota: bool = False
    """Whether a quota refused any."""
    enough: bool = False
    """Whether what was placed may be stored; else it has been taken back."""


class GroupTrials:
    """Tries groups; see the module."""

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
    ) -> None:
        self._nodes = nodes
        self._equal_groups = equal_groups
        self._results = results
        self._binding = binding
        self._quotas = quotas
        self._admission = admission
        self._assumed = assumed
        self._waiting = waiting
        self._nominations = nominations
        self._reserving = reserving

    def start(self, bound: list[Event]) -> GroupTrial:
        """Return a trial that has placed nothing yet."""
        return GroupTrial(self._assumed.savepoint(), len(bound))

    def take_back(self, trial: GroupTrial, bound: list[Event]) -> None:
        """Undo what a trial has placed."""
        self._assumed.rollback(trial.savepoint)
        del bound[trial.begun :]

    def tried(
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
        trial = self.start(bound)
        self._try(trial, group, records, now, bound, plan, rooms)
        trial.enough = group.together.enough(trial.placed, [record.key for record in records])
        if not trial.enough:
            self.take_back(trial, bound)
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
                at_once, one_by_one = self.place_alike(group, records, index, now, bound)
                placed += members[index : index + at_once]
                index += at_once
                if at_once:
                    continue
            index += 1
            found = self.place_member(trial, group, record, now, bound, plan, rooms.get(record.key))
            if found is None:
                placed.append(record.key)
                continue
            trial.refused = trial.refused or self._waiting.of_member(group, record, len(placed), found, where)
            if group.together.gives_up(record.key) or group.together.enough(placed, members):
                break

    def place_alike(
        self, group: GroupClass, records: Sequence[PodRecord], index: int, now: datetime, bound: list[Event]
    ) -> tuple[int, int]:
        """Place the equal members of one gang from here on at once where that pays; return how many were placed, and the index
        behind the last of them all."""
        alike = self._run_of_group(group, records, index)
        return self._place_members(group, alike, group.charge_of(records[index]), now, bound), index + len(alike)

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

    def place_member(
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

"""Placing a group of pods: as many as its rules require in one batch, or none.

In: the entry of a group at the head of the queue. Out: the events of its placements, or of the nominations by which it makes
room (`cycle.groups.group_preemption`), or why it waits. Its members are tried (`cycle.groups.trials`) in queue order, each on
its best node; if they do not fit so, where rooms are held for them, which were chosen for one another; those of a group
that shall be near to one another in the network, in one domain after the other (`cycle.gathering`). Waiting events of a group
that a decision of usual size cannot hold end in the decisions behind it (`cycle.endings`).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from cotenant.events.allocations import Gathered
from cotenant.events.envelope import Event
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.cycle.gathering.confined import Confined
from cotenant_scheduler.cycle.gathering.gathering import Attempt, Gathering
from cotenant_scheduler.cycle.gathering.plans import GatheringPlan
from cotenant_scheduler.cycle.groups.group_preemption import GroupPreemption
from cotenant_scheduler.cycle.groups.trials import GroupTrial, GroupTrials, HeldRoom
from cotenant_scheduler.cycle.nominations import Nominations, nomination_of
from cotenant_scheduler.cycle.ordering.queue_head import REFUSED_OTHERWISE, held_for
from cotenant_scheduler.cycle.ordering.walk import Walk
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, QueueEntry
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.state.counting import PodKey, is_reserve
from cotenant_scheduler.state.nodes import NodeTable


class PlacingGroups:
    """Places groups; see the module. `usual`: events that a decision has for one together with the ends of its waiting events;
    `most`: members that it may have in any case."""

    def __init__(
        self,
        nodes: NodeTable,
        trials: GroupTrials,
        results: CachedResults,
        binding: Binding,
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
        self._trials = trials
        self._results = results
        self._binding = binding
        self._waiting = waiting
        self._nominations = nominations
        self._reserving = reserving
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
            trial = self._trials.tried(group, entry.records, now, bound)
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
        group.keeps_nominations = False
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
        trial = self._trials.tried(group, entry.records, now, bound, plan, rooms)
        return trial if trial.enough else None

    def _gathered(self, attempt: Attempt, group: GroupClass, now: datetime, bound: list[Event]) -> GroupTrial:
        """Try a group in one domain of the network after the other."""
        first: GroupTrial | None = None
        for plan in attempt.plans:
            trial = self._trials.tried(group, attempt.members, now, bound, plan)
            first = first or trial
            if trial.enough or trial.by_quota:
                return trial
        trial = first or self._trials.start(bound)
        if attempt.reason:
            trial.refused = self._waiting.of_topology(group, attempt.reason, attempt.slots)
        elif first is None:
            record = attempt.members[0]
            group.stamp = None  # its template is about the group: it is not one to use again for a member
            evaluation = self._results.evaluation(group.charge_of(record).shape)
            found = self._waiting.refused_by_nodes(group, evaluation, "", record=record)
            trial.refused = self._waiting.of_member(group, record, 0, found)
        return trial


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

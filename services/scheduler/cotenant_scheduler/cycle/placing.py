"""Placing queued pods: one decision's pass over the queue.

In: the queue, the node table, quotas, nominations. Out: the events of placements, in queue order, each pod on the feasible node
with the highest total score (the first name among equals), assumed on the node and charged to the quota before the next one is
evaluated; and why the others wait. Equal pods in a row are placed at once (`framework.series`). A group of pods is tried under
a savepoint: all of them are placed, in one batch, or none is.

Over 300 lines: entries of one pod, of many equal pods and of a group share one walk and what it assumes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import takewhile

import msgspec

from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.events.allocations import Allocation
from cotenant.events.envelope import Event
from cotenant.events.placements import Figure, Placement, Waiting
from cotenant.model.subjects import placement_subject
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.endings import Endings
from cotenant_scheduler.cycle.nominations import Nominations
from cotenant_scheduler.cycle.preempting import Preempting
from cotenant_scheduler.cycle.queue import Entry, EquivalenceClass, GroupClass, PodQueue, WaitingTemplate
from cotenant_scheduler.cycle.quotas import Quotas
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.cycle.walk import States, Walk
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.figures import FigureCache
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.framework.series import WORTHWHILE, Series
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.load.load_estimate import microseconds
from cotenant_scheduler.state.node_cache import NodeCache
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PodRecord
from cotenant_scheduler.state.pods import PodCache

ENDINGS_SHARE = 250
"""Events of a decision that are left to endings while pods are queued."""

MOST_EVENTS = MAX_EVENTS_PER_DECISION - ENDINGS_SHARE
"""What a decision always has for placements: a group that takes more is never placed."""


class Placing:
    """Makes placements; what it changes is assumed (`cycle.assumed`)."""

    def __init__(
        self,
        profile: Profile,
        nodes: NodeTable,
        node_cache: NodeCache,
        pods: PodCache,
        queue: PodQueue,
        quotas: Quotas,
        admission: QuotaAdmission,
        assumed: Assumed,
        endings: Endings,
        waiting: WaitingPods,
        nominations: Nominations,
        preempting: Preempting,
        states: Callable[[], States],
    ) -> None:
        self._profile = profile
        self._nodes = nodes
        self._node_cache = node_cache
        self._pods = pods
        self._queue = queue
        self._quotas = quotas
        self._admission = admission
        self._assumed = assumed
        self._endings = endings
        self._waiting = waiting
        self._nominations = nominations
        self._preempting = preempting
        self._states = states
        self._results = CachedResults(nodes, profile)
        self._figures = FigureCache(profile, nodes.load.resources)

    def decide(self, now: datetime, limit: int) -> tuple[list[Event], list[Event]]:
        """Return the placements and, if the whole queue was looked at, the waiting events; at most `limit`. What is placed
        stays assumed until it is stored or rolled back."""
        now_us = microseconds(now)
        self._preempting.begin()
        self._nodes.rank()
        self._nodes.expire(now_us)
        bound: list[Event] = []
        # While any pod is nominated, its room counts for some pods and not for others, and it may end by time alone.
        walk = Walk(self._queue, None if self._nominations else self._states)
        previous: EquivalenceClass | None = None
        evaluation: Evaluation | None = None
        follows: int | None = None
        """The only row that has changed since the evaluation was current."""
        while (top := self._top(walk)) is not None:
            entry, alike = top
            left = limit - len(bound)
            if left < 2 * len(entry.records) and left < entry.event_count <= MOST_EVENTS:
                break
            if isinstance(alike, GroupClass):
                previous = None
                self._decide_group(walk, entry, alike, now, bound)
                continue
            record, charge = entry.records[0], alike.charge
            shape, membership = charge.shape, charge.membership
            if membership is not None:
                refusal = self._admission.check(shape, membership, charge.preemptible)
                if refusal is not None:
                    previous = None
                    self._refused_by_quota(walk, record, alike, refusal, now, bound)
                    continue
            if self._nominations.hold(shape.priority, alike.nominated):
                previous = None
            if alike is previous and evaluation is not None and follows is not None:
                evaluation.follow(follows)
            else:
                evaluation = self._results.evaluation(shape)
            previous, follows = alike, None
            row = evaluation.best()
            if row < 0:
                nominated = self._preempting.refused(record, alike, evaluation, now)
                if nominated is None:
                    walk.close(by_nodes=True)
                else:
                    walk.wake()
                    bound.append(nominated)
                    walk.advance()
                continue
            walk.wake()
            alike.template = alike.stamp = None
            placed = 0
            if len(alike.live) >= WORTHWHILE and evaluation.in_columns and not self._nodes.counters_of(shape):
                placed = self._place_run(walk, charge, evaluation, now, now_us, bound, left)
            if not placed:
                self._place(bound, record, row, evaluation, charge, now, now_us)
                placed, follows = 1, row
            self._nominations.end(record.key, self._nodes.names[row])
            walk.advance(placed)
            if shape.selected_by:
                walk.reopen(shape.selected_by)
        walk.finish()
        waiting = self._waiting.decide(now, limit - len(bound), self._preempting.nominated) if top is None else []
        return bound, waiting

    def _refused_by_quota(
        self, walk: Walk, record: PodRecord, alike: EquivalenceClass, refusal: Waiting, now: datetime, bound: list[Event]
    ) -> None:
        """Nominate a pod that its quota refuses, or record why it waits."""
        charge = alike.charge
        assert charge.membership is not None
        causes = self._quotas.causes(charge.membership)
        if not self._preempting.may_preempt_in_quota(record, alike):
            alike.template = self._waiting.refused_by_quota(alike, refusal, causes)
            walk.close()
            return
        self._nominations.hold(charge.shape.priority, alike.nominated)
        evaluation = self._results.evaluation(charge.shape)
        nominated = self._preempting.refused_by_quota(record, alike, refusal, causes, evaluation, now)
        if nominated is None:
            walk.close(by_nodes=True)
        else:
            walk.wake()
            bound.append(nominated)
            walk.advance()

    def _top(self, walk: Walk) -> tuple[Entry, EquivalenceClass] | None:
        """The entry to try next: the first of those that nodes refused earlier in this pass if a room has been released
        since."""
        if self._nominations.freed:
            self._nominations.freed = False
            walk.reopen_all()
        return walk.top()

    # -- groups --------------------------------------------------------------------------------------------------

    def _decide_group(self, walk: Walk, entry: Entry, group: GroupClass, now: datetime, bound: list[Event]) -> None:
        """Place as much of a group as its rules ask for, in one batch, or record why it waits. Groups do not preempt."""
        if entry.event_count > MOST_EVENTS:
            group.template = self._waiting.group_too_large(group, entry.event_count, MOST_EVENTS)
            walk.close()
            return
        savepoint, begun = self._assumed.savepoint(), len(bound)
        members = [record.key for record in entry.records]
        placed: list[PodKey] = []
        refused: WaitingTemplate | None = None
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
            found = self._place_member(group, record, now, bound)
            if found is None:
                placed.append(record.key)
                continue
            refused = refused or self._waiting.of_member(group, record, len(placed), found)
            if group.together.gives_up(record.key) or group.together.enough(placed, members):
                break
        if not group.together.enough(placed, members):
            self._assumed.rollback(savepoint)
            del bound[begun:]
            group.template = refused
            walk.close(by_nodes=True)
            return
        walk.wake()
        group.stamp = None
        group.template = refused
        walk.advance()
        selected_by = {number for record in entry.records for number in group.charge_of(record).shape.selected_by}
        if selected_by:
            walk.reopen(tuple(sorted(selected_by)))

    def _run_of_group(self, group: GroupClass, entry: Entry, index: int) -> list[PodRecord]:
        """The members of one gang from here on that are charged alike."""
        first = entry.records[index]
        charge, gang = group.charge_of(first), group.together.gang_of(first.key)

        def like_first(record: PodRecord) -> bool:
            return group.charge_of(record) == charge and group.together.gang_of(record.key) == gang

        return list(takewhile(like_first, entry.records[index:]))

    def _place_members(
        self, group: GroupClass, alike: list[PodRecord], charge: Charge, now: datetime, bound: list[Event]
    ) -> int:
        """Place equal members at once where that pays; return how many were placed."""
        if len(alike) < WORTHWHILE:
            return 0
        self._nominations.hold(charge.shape.priority, None)
        evaluation = self._results.evaluation(charge.shape)
        if not evaluation.in_columns or self._nodes.counters_of(charge.shape) or evaluation.best() < 0:
            return 0
        if charge.membership is not None:
            alike = alike[: self._admission.room(charge.shape, charge.membership, charge.preemptible, len(alike))]
        if len(alike) < WORTHWHILE:
            return 0
        gang = group.together.gang_of(alike[0].key)
        return self._place_series(alike, charge, evaluation, now, microseconds(now), bound, gang)

    def _place_member(self, group: GroupClass, record: PodRecord, now: datetime, bound: list[Event]) -> WaitingTemplate | None:
        """Place one pod of a group; else return why it cannot be."""
        charge = group.charge_of(record)
        if charge.membership is not None:
            refusal = self._admission.check(charge.shape, charge.membership, charge.preemptible)
            if refusal is not None:
                return self._waiting.refused_by_quota(group, refusal, self._quotas.causes(charge.membership))
        self._nominations.hold(charge.shape.priority, None)
        evaluation = self._results.evaluation(charge.shape)
        row = evaluation.best()
        if row < 0:
            group.stamp = None
            return self._waiting.refused_by_nodes(group, evaluation, "")
        gang = group.together.gang_of(record.key)
        self._place(bound, record, row, evaluation, charge, now, microseconds(now), gang)
        return None

    # -- pods ----------------------------------------------------------------------------------------------------

    def _place(
        self,
        bound: list[Event],
        record: PodRecord,
        row: int,
        evaluation: Evaluation,
        charge: Charge,
        now: datetime,
        now_us: int,
        gang: str = "",
    ) -> None:
        """Place a pod on a row. `gang`: that it is placed with."""
        assert record.facts is not None
        figures = self._figures.of_row(evaluation, row)
        allocation = self._profile.allocate(self._nodes, charge.shape, row)
        if gang:
            allocation = msgspec.structs.replace(allocation or Allocation(), gang=gang)
        data = self._bind(bound, record, row, figures, charge, now, allocation)
        assigned = self._pods.assigned.of(record.facts, charge.shape, now_us)
        self._assumed.place(row, record.key, charge, assigned, data)

    def _place_run(
        self,
        walk: Walk,
        charge: Charge,
        evaluation: Evaluation,
        now: datetime,
        now_us: int,
        bound: list[Event],
        left: int,
    ) -> int:
        """Place the run of equal pods at the head of the queue if it is long enough; return how many were placed."""
        run = _fitting(walk.run(left), left)
        if charge.membership is not None and len(run) >= WORTHWHILE:
            run = run[: self._admission.room(charge.shape, charge.membership, charge.preemptible, len(run))]
        return self._place_series(run, charge, evaluation, now, now_us, bound) if len(run) >= WORTHWHILE else 0

    def _place_series(
        self,
        run: list[PodRecord],
        charge: Charge,
        evaluation: Evaluation,
        now: datetime,
        now_us: int,
        bound: list[Event],
        gang: str = "",
    ) -> int:
        """Place equal pods that follow each other as far as one evaluation decides them; return how many. `gang`: that they are
        placed with."""
        allocation = Allocation(gang=gang) if gang else None
        series = Series(evaluation, len(run))
        reports, assigned_as = self._nodes.load.reports, self._pods.assigned.of
        keys: list[PodKey] = []
        placements: list[Placement] = []
        facts = run[0].facts
        assert facts is not None
        assigned = assigned_as(facts, charge.shape, now_us)
        for record, row, figures in zip(run, series.rows, series.figures(self._figures), strict=False):
            key = record.key
            assert record.facts is not None
            if reports(row, key) or assigned_as(record.facts, charge.shape, now_us) != assigned:
                break
            placements.append(self._bind(bound, record, row, figures, charge, now, allocation))
            keys.append(key)
        if keys:
            self._assumed.place_series(series.rows[: len(keys)], keys, charge, assigned, placements)
        return len(keys)

    def _bind(
        self,
        bound: list[Event],
        record: PodRecord,
        row: int,
        figures: tuple[Figure, ...],
        charge: Charge,
        now: datetime,
        allocation: Allocation | None,
    ) -> Placement:
        """Add the events that give a pod its node; return the placement."""
        facts, document, membership = record.facts, record.document, charge.membership
        assert facts is not None
        assert document is not None
        node = self._nodes.names[row]
        causes = (f"LOG:{record.object_sequence}", *self._node_cache.facts[node].causes)
        if membership is not None:
            causes += self._quotas.causes(membership)
        data = Placement(
            node=node,
            namespace=facts.namespace,
            name=facts.name,
            uid=facts.uid,
            pod=document,
            requests=charge.shape.requests,
            quota=membership.quota if membership else "",
            quota_tree=membership.tree if membership else "",
            bound_at=now,
            grace_period_seconds=facts.grace_seconds,
            figures=figures,
            object_sequence=record.object_sequence,
            allocation=allocation,
        )
        namespace, name = record.key
        bound.append(Event(subject=placement_subject(node, namespace, name), data=data, causes=causes))
        if record.waiting is not None:
            bound.append(self._endings.waiting_over(record))
        return data


def _fitting(run: Iterable[PodRecord], events: int) -> list[PodRecord]:
    """The first pods of a run whose placements fit into so many events. Ending a waiting event takes one more."""
    found = []
    for record in run:
        events -= 1 if record.waiting is None else 2
        if events < 0:
            break
        found.append(record)
    return found

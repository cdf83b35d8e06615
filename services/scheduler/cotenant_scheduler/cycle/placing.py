"""Placing queued pods: one decision's pass over the queue.

In: the queue, the node table, quotas, nominations. Out: the events of placements, in queue order, each pod on the feasible node
with the highest total score (the first name among equals), assumed on the node and charged to the quota before the next one is
evaluated; and why the others wait. Equal pods in a row are placed at once (`framework.series`); groups: `cycle.placing_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from cotenant.engine.core import MAX_EVENTS_PER_DECISION, MAX_EVENTS_TOGETHER
from cotenant.events.envelope import Event
from cotenant.events.placements import Waiting
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.cycle.endings import Endings
from cotenant_scheduler.cycle.group_preemption import GroupPreemption
from cotenant_scheduler.cycle.nominations import Nominations
from cotenant_scheduler.cycle.placing_groups import PlacingGroups
from cotenant_scheduler.cycle.preempting import Preempting
from cotenant_scheduler.cycle.queue import Entry, EquivalenceClass, GroupClass, PodQueue
from cotenant_scheduler.cycle.quotas import Quotas
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.cycle.walk import States, Walk
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.framework.series import WORTHWHILE
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.state.load.load_estimate import microseconds
from cotenant_scheduler.state.node_cache import NodeCache
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import Charge, PodRecord
from cotenant_scheduler.state.pods import PodCache

ENDINGS_SHARE = 250
"""Events of a decision that are left to endings while pods are queued."""

MOST_EVENTS = MAX_EVENTS_PER_DECISION - ENDINGS_SHARE
"""What a decision always has for placements."""

MOST_TOGETHER = MAX_EVENTS_TOGETHER - ENDINGS_SHARE
"""What a decision has for placements that must be stored together: a group that takes more is never placed."""


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
        self._nodes = nodes
        self._queue = queue
        self._quotas = quotas
        self._admission = admission
        self._waiting = waiting
        self._nominations = nominations
        self._preempting = preempting
        self._states = states
        self._results = CachedResults(nodes, profile)
        self._binding = Binding(profile, nodes, node_cache, pods, quotas, assumed, endings)
        self._groups = PlacingGroups(
            nodes,
            self._results,
            self._binding,
            quotas,
            admission,
            assumed,
            waiting,
            nominations,
            GroupPreemption(nodes, self._results, admission, nominations, preempting, waiting),
            MOST_EVENTS,
            MOST_TOGETHER,
        )

    def decide(self, now: datetime, limit: int) -> tuple[list[Event], list[Event]]:
        """Return the placements and, if the whole queue was looked at, the waiting events; at most `limit`. What is placed
        stays assumed until it is stored or rolled back."""
        self._preempting.begin()
        self._nodes.rank()
        self._nodes.expire(microseconds(now))
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
            if left < 2 * len(entry.records) and left < entry.event_count and not _may_exceed(entry, len(bound)):
                break
            if isinstance(alike, GroupClass):
                previous = None
                self._groups.decide(walk, entry, alike, now, bound)
                continue
            record, charge = entry.records[0], alike.charge
            shape, membership = charge.shape, charge.membership
            if membership is not None:
                known, refusal = alike.admitted
                version = self._quotas.ledger.version_of(membership)
                if known != version:
                    refusal = self._admission.check(shape, membership, charge.preemptible)
                    alike.admitted = version, refusal
                if refusal is not None:
                    previous = None
                    self._refused_by_quota(walk, record, alike, refusal, now, bound)
                    continue
            if self._nominations.hold(shape.priority, alike.own_rooms):
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
                placed = self._place_run(walk, charge, evaluation, now, bound, left)
            if not placed:
                self._binding.place(bound, record, row, evaluation, charge, now)
                placed, follows = 1, row
            self._nominations.end(record.key, self._nodes.names[row])
            walk.advance(placed)
            if shape.selected_by:
                walk.reopen(shape.selected_by)
        walk.finish()
        waiting = self._waiting.decide(now, max(0, limit - len(bound)), self._preempting.nominated) if top is None else []
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
        self._nominations.hold(charge.shape.priority, alike.own_rooms)
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

    def _place_run(
        self,
        walk: Walk,
        charge: Charge,
        evaluation: Evaluation,
        now: datetime,
        bound: list[Event],
        left: int,
    ) -> int:
        """Place the run of equal pods at the head of the queue if it is long enough; return how many were placed."""
        run = _fitting(walk.run(left), left)
        if charge.membership is not None and len(run) >= WORTHWHILE:
            run = run[: self._admission.room(charge.shape, charge.membership, charge.preemptible, len(run))]
        return self._binding.place_series(run, charge, evaluation, now, bound) if len(run) >= WORTHWHILE else 0


def _may_exceed(entry: Entry, bound: int) -> bool:
    """Whether a group is tried behind so many events though a decision of usual size has no room for it: such a decision never
    has, and a batch has; or no batch has, which is said then."""
    members = len(entry.records)
    return entry.event_count > MOST_EVENTS and (bound + members <= MOST_TOGETHER or members > MOST_TOGETHER)


def _fitting(run: Iterable[PodRecord], events: int) -> list[PodRecord]:
    """The first pods of a run whose placements fit into so many events. Ending a waiting event takes one more."""
    found = []
    for record in run:
        events -= 1 if record.waiting is None else 2
        if events < 0:
            break
        found.append(record)
    return found

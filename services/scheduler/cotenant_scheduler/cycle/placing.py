"""Placing queued pods: one decision's pass over the queue.

In: the queue, the node table, quotas, nominations. Out: the events of placements, in queue order, each pod on the feasible node
with the highest total score (the first name among equals), assumed on the node and charged to the quota before the next one is
evaluated; and why the others wait. Equal pods in a row are placed at once (`framework.series`); groups: `cycle.groups`.

Over 300 lines: the pass, and its end conditions.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from cotenant.engine.core import MAX_EVENTS_PER_DECISION, MAX_EVENTS_TOGETHER
from cotenant.events.envelope import Event
from cotenant.events.placements import Waiting
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.binding import Binding
from cotenant_scheduler.cycle.endings.endings import Endings
from cotenant_scheduler.cycle.gathering.confined import Confined
from cotenant_scheduler.cycle.gathering.gathering import Gathering
from cotenant_scheduler.cycle.gathering.reserved_slots import ReservedSlots
from cotenant_scheduler.cycle.groups.equal_groups import EqualGroups
from cotenant_scheduler.cycle.groups.group_preemption import GroupPreemption
from cotenant_scheduler.cycle.groups.members import MembersThatDoNotFit
from cotenant_scheduler.cycle.groups.placing_groups import PlacingGroups
from cotenant_scheduler.cycle.groups.trials import GroupTrials
from cotenant_scheduler.cycle.nominations import Nominations, nomination_of
from cotenant_scheduler.cycle.ordering.fair_walk import FairWalk
from cotenant_scheduler.cycle.ordering.queue_head import REFUSED_OTHERWISE, QueueHead
from cotenant_scheduler.cycle.ordering.shares import Shares
from cotenant_scheduler.cycle.ordering.walk import PodRun, States, Walk, fitting
from cotenant_scheduler.cycle.preempting import Preempting
from cotenant_scheduler.cycle.queue import EquivalenceClass, GroupClass, PodQueue, QueueEntry, events_of
from cotenant_scheduler.cycle.reservations.pre_allocation import MOST_TAKEN, PreAllocation, TakesPods
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.framework.queue_args import QueueArgs, QueueOrder
from cotenant_scheduler.framework.results import CachedResults
from cotenant_scheduler.framework.series import WORTHWHILE
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.plugins.reservation.matching import Ask
from cotenant_scheduler.state.counting import is_reserve
from cotenant_scheduler.state.gangs import GangCache
from cotenant_scheduler.state.load.load_estimate import microseconds
from cotenant_scheduler.state.network_domains import NetworkTopology
from cotenant_scheduler.state.node_cache import NodeCache
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.quotas.cache import Quotas
from cotenant_scheduler.state.reading.shapes import Shape
from cotenant_scheduler.state.reservations.records import ReserveRecord

ENDINGS_SHARE = 250
"""Events of a decision that are left to endings while pods are queued."""

MOST_EVENTS = MAX_EVENTS_PER_DECISION - ENDINGS_SHARE
"""Events that a decision always has for placements."""

MOST_TOGETHER = MAX_EVENTS_TOGETHER - ENDINGS_SHARE
"""Events that a decision has for placements that must be stored together: a group that takes more is never placed."""


class Placing:
    """Makes placements; its changes are assumed (`cycle.assumed`)."""

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
        reserving: Reserving,
        pre_allocation: PreAllocation,
        states: Callable[[], States],
        queue_args: QueueArgs,
        gangs: GangCache,
        topology: NetworkTopology,
    ) -> None:
        self._pre_allocation = pre_allocation
        self._reserving = reserving
        self._nodes = nodes
        self._queue = queue
        self._quotas = quotas
        self._admission = admission
        self._waiting = waiting
        self._nominations = nominations
        self._preempting = preempting
        self._states = states
        self._results = CachedResults(nodes, profile)
        self._binding = Binding(profile, nodes, node_cache, pods, quotas, assumed, endings, reserving)
        self._shares = Shares(quotas.ledger) if queue_args.order is QueueOrder.FAIR else None
        self.head = QueueHead(
            nodes, pods.records, queue, self._results, reserving, timedelta(seconds=queue_args.hold_after_seconds)
        )
        self._keeps_nominated = queue_args.order is not QueueOrder.PRIORITY
        """Whether room is kept for a nominated pod, too: its nomination does not count against those of a higher priority."""
        waiting.holds = self.head.holds
        self._reach = MOST_EVENTS
        """How many pods are looked at ahead to be placed at once between owners of reservations: no more than lately were."""
        self._pause = WORTHWHILE
        """How many pods are placed one by one once owners of reservations and others got in each other's way."""
        self.cut_short = False
        """Whether the last decision ended before it had tried the whole queue."""
        reserved_slots = ReservedSlots(nodes, reserving, pods.assigned)
        gathering = Gathering(nodes, topology, gangs, pods.records, self._results, nominations, reserved_slots)
        head, gathers = lambda: self.head.alike, gathering.gathers
        self._equal_groups = EqualGroups(
            nodes, self._results, self._binding, admission, assumed, nominations, head, gathers, MOST_EVENTS
        )
        trials = GroupTrials(
            nodes, self._equal_groups, self._results, self._binding, quotas, admission, assumed, waiting, nominations, reserving
        )
        self._groups = PlacingGroups(
            nodes,
            trials,
            self._results,
            self._binding,
            waiting,
            nominations,
            reserving,
            GroupPreemption(nodes, self._results, admission, nominations, preempting, reserving, waiting),
            gathering,
            self._refused_by_nodes,
            MOST_EVENTS,
            MOST_TOGETHER,
        )
        members = MembersThatDoNotFit(nodes, trials, gathering, self._results, assumed, waiting, self.head)
        waiting.members_that_do_not_fit = members.of

    def evaluation(self, shape: Shape) -> Evaluation:
        """Return the evaluation of all nodes for a shape; nothing is decided."""
        return self._results.evaluation(shape)

    def decide(self, now: datetime, limit: int) -> tuple[list[Event], list[Event]]:
        """Return the placements and, if the whole queue was looked at, the waiting events; at most `limit`. What is placed
        stays assumed until it is stored or rolled back."""
        self._preempting.begin()
        self._pre_allocation.begin()
        self._waiting.now = now
        self._nodes.rank()
        self._nodes.expire(microseconds(now))
        self._equal_groups.begin()
        bound: list[Event] = []
        # While any pod is nominated, its room counts for some pods and not for others, and it may end by time alone.
        self.head.begin(now)
        states = None if self._nominations else self._with_rooms
        walk = Walk(self._queue, states) if self._shares is None else FairWalk(self._queue, states, self._shares)
        previous: EquivalenceClass | None = None
        evaluation: Evaluation | None = None
        follows: int | None = None
        """The only row that has changed since the evaluation was current."""
        one_by_one = 0
        """The number of next pods in a run that is too short to be placed at once."""
        while (top := self._top(walk)) is not None:
            entry, alike = top
            left = limit - len(bound)
            if left < 4 * len(entry.records) and left < entry.event_count and not _may_exceed(entry, len(bound)):
                break
            if isinstance(alike, GroupClass):
                previous = None
                alike.beside_rooms = self.head.alike is not None
                if not self._equal_groups.place(walk, left, now, bound):
                    self._groups.decide(walk, entry, alike, now, bound)
                continue
            record, charge = entry.records[0], alike.charge
            if self._reserving.is_over(record):
                walk.advance()
                continue
            shape, membership = charge.shape, charge.membership
            if membership is not None:
                known, refusal = alike.admitted
                version = self._quotas.ledger.version_of(membership)
                if known != version:
                    reserves = is_reserve(record.key)
                    refusal = self._admission.check(shape, membership, charge.preemptible, reserves=reserves)
                    alike.admitted = version, refusal
                if refusal is not None:
                    previous = None
                    self._refused_by_quota(walk, record, alike, refusal, now, bound)
                    continue
            if self._nominations.hold(shape.priority, alike.own_rooms):
                previous = None
            if previous is not None and previous.charge.shape is shape and evaluation is not None and follows is not None:
                evaluation.follow(follows)
            else:
                evaluation = self._results.evaluation(shape)
            previous, follows = alike, None
            ask = alike.ask
            reserved = self._reserving.choose(evaluation, ask) if isinstance(ask, Ask) else None
            if reserved is not None:
                row = reserved.row
            else:
                row = -1 if isinstance(ask, Ask) and (ask.required or ask.problem) else evaluation.best()
            taken: tuple[PodRecord, ...] = ()
            if ask is not None and isinstance(ask, TakesPods) and isinstance(record, ReserveRecord):
                if left < MOST_TAKEN + 2:
                    break
                row, taken = self._pre_allocation.room(record, ask, evaluation, row)
                if row < 0 and ask.only:
                    alike.template = self._waiting.takes_pods_only(alike)
                    walk.close(by_nodes=True)
                    continue
            if row < 0:
                nominated = self._preempting.refused(record, alike, evaluation, now)
                if nominated is None:
                    self._refused_by_nodes(walk, entry, alike, now)
                else:
                    walk.wake()
                    bound.append(nominated)
                    walk.advance()
                continue
            walk.wake()
            alike.template = alike.stamp = None
            placed = 0
            # A pod that will act as a reservation has that in its own placement.
            plain = reserved is None and not (isinstance(ask, Ask) and ask.acts)
            run: PodRun | None = None
            if one_by_one:
                one_by_one -= 1
            elif plain and evaluation.in_columns and not self._nodes.counters_of(shape):
                run = self._run(walk, alike, left)
                if len(run.records) < WORTHWHILE or (run.owners and run.plain < WORTHWHILE):
                    one_by_one = max(len(run.records) - 1, 0)
                    self._reach = MOST_EVENTS
                else:
                    charges = [each.charge for each in run.classes]
                    if not run.owners:
                        placed = self._binding.place_series(run.records, charges, evaluation, now, bound)
                    else:
                        placed = self._binding.place_with_owners(run.records, charges, evaluation, now, bound)
                        self._reach = min(max(2 * placed, 4 * WORTHWHILE), MOST_EVENTS)
                        self._pause = WORTHWHILE if placed >= WORTHWHILE else min(2 * self._pause, MOST_EVENTS)
                        one_by_one = 0 if placed >= WORTHWHILE else self._pause
            if run is not None and placed:
                for each in run.classes[:placed]:
                    each.template = each.stamp = None
                walk.follow(run, placed)
            else:
                self._binding.place(bound, record, row, evaluation, charge, now, reserved=reserved)
                bound += self._pre_allocation.owners(record, row, taken)
                walk.advance()
                follows = row
            self._nominations.end(record.key, self._nodes.names[row])
            if shape.selected_by:
                walk.reopen(shape.selected_by)
        self.cut_short = top is not None
        waiting = self._waiting.decide(now, max(0, limit - len(bound)), self._preempting.nominated) if top is None else []
        self.head.release()
        walk.finish()
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
            alike.kept = REFUSED_OTHERWISE
            walk.close()
            return
        self._nominations.hold(charge.shape.priority, alike.own_rooms)
        evaluation = self._results.evaluation(charge.shape)
        nominated = self._preempting.refused_by_quota(record, alike, refusal, causes, evaluation, now)
        if nominated is None:
            alike.kept = REFUSED_OTHERWISE
            walk.close(by_nodes=True)
        else:
            walk.wake()
            bound.append(nominated)
            walk.advance()

    def _top(self, walk: Walk) -> tuple[QueueEntry, EquivalenceClass] | None:
        """The entry to try next: the first of those that nodes refused earlier in this pass if a room has been released
        since."""
        if self._nominations.freed:
            self._nominations.freed = False
            self.head.restart()
            walk.reopen_all()
        top = walk.top()
        if top is None:
            return walk.top() if self.head.has_changed() and walk.try_skipped() else None
        if top[1] is self.head.alike:
            self.head.restart()  # pods that it has affinity to were placed: it does not see its own rooms
        return top

    def _refused_by_nodes(
        self, walk: Walk, entry: QueueEntry, alike: EquivalenceClass, now: datetime, confined: Confined | None = None
    ) -> None:
        """Close the top entry's class, which nodes refuse; if it is the queue's head, its rooms count from now on. `confined`:
        where a gang must be."""
        nominated = nomination_of(entry.records[0]) is not None
        if (not nominated or self._keeps_nominated) and self.head.refused(entry, alike, now, confined):
            if walk.try_skipped():
                self.head.restart()  # those before it may have been refused beside the rooms of another head
                return
            walk.wake()
        walk.close(by_nodes=True)

    def _with_rooms(self) -> States:
        """The states, with the rooms that are kept for the queue's head. In fair order all quotas say who is tried first."""
        states = self._states()
        quotas, of_quota = ((), self._quotas.ledger.version_of) if self._shares is None else (states.quotas, None)
        return States(states.quotas, (*quotas, *states.nodes, self.head.version), of_quota)

    def _run(self, walk: Walk, alike: EquivalenceClass, left: int) -> PodRun:
        """Return the run of pods of one shape at the head of the queue that their quotas admit, in so many events; empty where
        it is too short to be placed at once."""
        mixed = walk.is_mixed()
        owners = not mixed and self._reserving.any and walk.is_mixed(owners=True)
        if not (mixed or owners) and len(alike.live) < WORTHWHILE:
            return PodRun([], [])
        admitted = self._admission.one_after_the_other(alike.charge.shape)
        if not mixed:
            charge = alike.charge
            run = fitting(walk.run(left), left)
            if not owners or len(run) >= WORTHWHILE:
                if charge.membership is not None:
                    del run[admitted.count(charge, len(run)) :]
                return PodRun(run, [alike] * len(run))
        events = left

        def takes(record: PodRecord, of: EquivalenceClass) -> bool:
            nonlocal events
            events -= events_of(record)
            return events >= 0 and admitted.admits(of.charge)

        return walk.mixed_run(left if mixed else min(left, self._reach), takes, owners=owners)


def _may_exceed(entry: QueueEntry, bound: int) -> bool:
    """Whether a group is tried after this many events though a decision of usual size has no room for it: such a decision never
    has, but a batch has; or no batch has, which is then the reason."""
    members = len(entry.records)
    return entry.event_count > MOST_EVENTS and (bound + members <= MOST_TOGETHER or members > MOST_TOGETHER)

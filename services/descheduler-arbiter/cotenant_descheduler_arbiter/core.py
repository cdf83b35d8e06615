"""The core of descheduler-arbiter: what to move, and which moves may run now.

In: nodes, pods, placements, runs, waiting pods, executors, metrics, migration jobs, the gateway's answers, and its own
events. Out, in this order:

    node.<node>.condition   readiness, and taints by the rate of the zone  (node_lifecycle)
    migrations.<job>        evictions by taint whose cause is gone         (node_lifecycle)
    migrations.<job>        victims of preemption                          (preemptions)
    migrations.<job>        users' jobs accepted, arbitration, phases      (jobs)
    migrations.<job>        pods that a NoExecute taint evicts now         (node_lifecycle)
    descheduling.cycles.<p> the plugins' cycle, followed by                (descheduling)
    migrations.<job>        the moves that its plugins want
    descheduling.<node>     hot nodes with their streaks, each followed by
    migrations.<job>        the moves that relieve it                      (balancing)

and, as requests to the gateway, the evictions that are ordered and not answered, and the reservations of pods that move only to
a place that is held. A decision has at most 999 events: the next
one returns the rest from the same state; a judgement and its moves are in the same decision.

An empty decision is not computed again until an event arrives or time changes the result: the next cycle's slot begins, a
metric expires, a job is unfinished or due for removal, a zone's rate allows the next taint, a pod's toleration ends. Events of
pods are ignored while the decision does not depend on pods: no NoExecute taint is in force, no node is hot, and no pod is
nominated. Conditions and jobs are evaluated only for nodes and jobs with an event folded since they last had nothing to
publish. A job on a node whose condition changes in the same decision waits for the next one, which includes the condition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

from cotenant.engine.agenda import IdleSpan
from cotenant.engine.core import MAX_EVENTS_PER_DECISION, Request
from cotenant.events.envelope import Event
from cotenant.events.migrations import NodeLoadJudged
from cotenant.model.subjects import tokens
from cotenant.model.times import EPOCH, NEVER
from cotenant_descheduler_arbiter.config.policy import DeschedulerPolicy
from cotenant_descheduler_arbiter.descheduling import Descheduling, end_removed_profiles
from cotenant_descheduler_arbiter.low_node_load.balancing import Balancing, end_deleted_nodes
from cotenant_descheduler_arbiter.low_node_load.hot_node_check import HotNodeCheck
from cotenant_descheduler_arbiter.migration.evictions import outstanding_evictions
from cotenant_descheduler_arbiter.migration.job_decisions import JobDecisions
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters
from cotenant_descheduler_arbiter.migration.places import outstanding_places
from cotenant_descheduler_arbiter.migration.preemptions import decide_preemptions
from cotenant_descheduler_arbiter.migration.slots import slot_of, start_of_slot
from cotenant_descheduler_arbiter.node_lifecycle.eviction_jobs import Occupied
from cotenant_descheduler_arbiter.node_lifecycle.lifecycle import NodeLifecycle
from cotenant_descheduler_arbiter.node_lifecycle.zones import ZoneHealth
from cotenant_descheduler_arbiter.state.fold import ClusterFold

CORE_VERSION = "5"
"""Version of the decision rules; increased when the same state gives other decisions."""


class DeschedulerArbiterCore:
    """Pure; see the module."""

    def __init__(self, policy: DeschedulerPolicy) -> None:
        self.policy = policy
        self.fold = ClusterFold()
        args = policy.low_node_load
        self._hot_nodes = HotNodeCheck(self.fold, policy, args) if args is not None else None
        self._lifecycle = NodeLifecycle(self.fold, policy) if policy.lifecycle else None
        self._jobs_idle = IdleSpan()
        """For which version of the jobs."""
        self._expiry = EPOCH
        """The earliest expiry of a metric that is still fresh."""
        self._idle = IdleSpan()
        """Of `_version`."""
        self._pods_matter = True
        """Whether the last empty decision depended on pods."""
        self._may_be_hot = False
        """The result of the last check of all nodes."""

    def apply(self, event: Event) -> None:
        """Fold one event."""
        self.fold.apply(event)

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return the events that are due."""
        if self._idle.holds(self._version, now):
            return ()
        self._note_changes()
        events = list(self._bounded(self._decisions(now)))
        if not events:
            evicts = self._lifecycle is not None and self._lifecycle.evicts
            self._pods_matter = bool(evicts or self.fold.nominated) or self._may_be_hot
            self._idle.begin(self._version, now, self._next_look(now))
        return events

    @property
    def _version(self) -> int:
        """The version of the state for which nothing is due."""
        return self.fold.version + self.fold.pods.version if self._pods_matter else self.fold.version

    def requests(self, now: datetime) -> Sequence[Request]:
        """Return the ordered and unanswered evictions, then the reservations to be created or deleted, each by job name."""
        return [*outstanding_evictions(self.fold, self.policy, now), *outstanding_places(self.fold, self.policy, now)]

    def _note_changes(self) -> None:
        changed, pods_on = self.fold.take_changed_nodes(), self.fold.pods.take_changed()
        if self._lifecycle is not None:
            self._lifecycle.note(changed, pods_on)
            self._lifecycle.refresh()
        if self._hot_nodes is not None:
            self._hot_nodes.mark_changed(changed)
        for node in changed:
            self._expiry = min(self._expiry, self._expires(node))

    def _decisions(self, now: datetime) -> Iterator[list[Event]]:
        """Yield events in groups that belong together."""
        conditions = list(self._lifecycle.conditions(now)) if self._lifecycle is not None else []
        yield from ([event] for event in conditions)
        changing = frozenset(tokens(event.subject)[1] for event in conditions)
        filters = JobFilters(self.fold, self.policy)
        jobs = self._jobs(filters, changing, now)
        yield from ([event] for event in jobs)
        if self._lifecycle is not None:
            occupied = Occupied(changing, frozenset(event.subject for event in jobs))
            yield from ([event] for event in self._lifecycle.evictions(filters, occupied, now))
        yield from ([event] for event in end_deleted_nodes(self.fold))
        yield from ([event] for event in end_removed_profiles(self.fold, self.policy))
        cycle = Descheduling(self.fold, self.policy, filters, now).decide()
        if cycle:
            # LowNodeLoad shares the limits of the cycle: it waits for the next decision, which includes these jobs.
            yield cycle
            return
        args = self.policy.low_node_load
        self._may_be_hot = self._hot_nodes is not None and self._hot_nodes.may_be_hot(now)
        if args is not None and self._may_be_hot:
            yield from _grouped(Balancing(self.fold, self.policy, filters, now).decide(args))

    def _jobs(self, filters: JobFilters, changing: Collection[str], now: datetime) -> Sequence[Event]:
        if self._jobs_idle.holds(self.fold.job_version, now):
            return ()
        settled = self._lifecycle.settled(changing, now) if self._lifecycle is not None else []
        held = self._lifecycle.held(changing) if self._lifecycle is not None else frozenset()
        preemptions = list(decide_preemptions(self.fold, filters, now))
        decided = held.union(event.subject for event in (*settled, *preemptions))
        jobs = JobDecisions(self.fold, self.policy, filters, now, decided)
        events = [*settled, *preemptions, *jobs.decide()]
        if not events:
            # Preemption depends on pods, so nominations are evaluated again after any event.
            self._jobs_idle.begin(-1 if self.fold.nominated else self.fold.job_version, now, jobs.idle_until())
        return events

    def _bounded(self, groups: Iterable[list[Event]]) -> Iterator[Event]:
        room = MAX_EVENTS_PER_DECISION
        for group in groups:
            if len(group) > room:
                return
            room -= len(group)
            yield from group

    def _next_look(self, now: datetime) -> datetime:
        """Return when a state without due events may have one by the passing of time alone."""
        if self._expiry <= now:
            self._expiry = min((at for at in map(self._expires, self.fold.metrics) if at > now), default=NEVER)
        slot_ends = start_of_slot(slot_of(now, self.policy.interval) + 1, self.policy.interval)
        lifecycle = self._lifecycle.next_look(now) if self._lifecycle is not None else NEVER
        return min(slot_ends, self._expiry, self._jobs_idle.until, lifecycle)

    def _expires(self, node: str) -> datetime:
        """Return when the node's metric becomes stale."""
        metric = self.fold.metrics.get(node)
        updated = metric.value.update_time if metric is not None else None
        return updated + self.policy.metric_expiration if updated is not None else NEVER

    def zones(self) -> Sequence[ZoneHealth]:
        """Return the state of each zone as of the last decision, by name."""
        return self._lifecycle.zones() if self._lifecycle is not None else ()


def _grouped(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield each judgement together with its moves."""
    group: list[Event] = []
    for event in events:
        if isinstance(event.data, NodeLoadJudged) and group:
            yield group
            group = []
        group.append(event)
    if group:
        yield group

"""The core of descheduler-arbiter: what to move, and which moves may run now.

In: nodes, pods, placements, runs, waiting pods, executors, metrics, migration jobs, the gateway's answers, and its own
events. Out, in this order:

    node.<node>.condition   readiness and its taints                       (lifecycle)
    migrations.<job>        victims of preemption                          (preemptions)
    migrations.<job>        users' jobs accepted, arbitration, phases      (jobs)
    migrations.<job>        pods of lost nodes that are overdue            (taint_eviction)
    descheduling.<node>     hot nodes with their streaks, each followed by
    migrations.<job>        the moves that relieve it                      (balancing)

and, as requests to the gateway, the evictions that are ordered and not answered. A decision has at most 999 events: the next
one returns the rest from the same state; a judgement and its moves are never separated.

An empty decision is not computed again until an event arrives or time changes the result: the next cycle's slot begins, a
metric expires, a job is unfinished or due for removal, a lost node's pod is overdue. Events of pods are ignored while the
decision does not depend on pods: no node is lost or hot, and no pod is nominated. Conditions and jobs are evaluated only for
nodes and jobs with an event folded since they last had nothing to publish.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from cotenant.engine.agenda import Agenda, IdleSpan
from cotenant.engine.core import MAX_EVENTS_PER_DECISION, Request
from cotenant.events.envelope import Event
from cotenant.events.migrations import NodeLoadJudged
from cotenant.model.subjects import migration_subject
from cotenant.model.times import NEVER
from cotenant_descheduler_arbiter.config.policy import Policy
from cotenant_descheduler_arbiter.low_node_load.balancing import Balancing, end_deleted_nodes, slot_of, start_of_slot
from cotenant_descheduler_arbiter.low_node_load.quick_look import QuickLook
from cotenant_descheduler_arbiter.migration.evictions import outstanding_evictions
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters
from cotenant_descheduler_arbiter.migration.jobs import JobDecisions
from cotenant_descheduler_arbiter.migration.preemptions import decide_preemptions
from cotenant_descheduler_arbiter.migration.reconcile import TAINT_EVICTION, arbitrated_job
from cotenant_descheduler_arbiter.node_lifecycle.readiness import changed_condition
from cotenant_descheduler_arbiter.node_lifecycle.taint_eviction import lost_nodes, tolerated_pods
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold

CORE_VERSION = "1"
"""Version of the decision rules; increased when the same state gives other decisions."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DeschedulerArbiterCore:
    """Pure; see the module."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.fold = ClusterFold()
        args = policy.low_node_load
        self._look = QuickLook(self.fold, policy, args) if args is not None else None
        self._conditions_due = Agenda()
        """Nodes with an event folded since their condition was last up to date."""
        self._jobs_idle = IdleSpan()
        """For which version of the jobs."""
        self._expiry = _EPOCH
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
        lost = lost_nodes(self.fold) if self.policy.lifecycle else []
        tolerated = list(tolerated_pods(self.fold, lost, self.policy.default_toleration))
        events = list(self._bounded(self._decisions(tolerated, now)))
        if not events:
            self._pods_matter = bool(lost or self.fold.nominated) or self._may_be_hot
            self._idle.begin(self._version, now, self._next_look(tolerated, now))
        return events

    @property
    def _version(self) -> int:
        """The version of what was looked at to find that nothing follows."""
        return self.fold.version + self.fold.pods.version if self._pods_matter else self.fold.version

    def requests(self, now: datetime) -> Sequence[Request]:
        """Return the ordered and unanswered evictions, by job name."""
        return outstanding_evictions(self.fold, self.policy, now)

    def _note_changes(self) -> None:
        changed = self.fold.take_changed_nodes()
        self._conditions_due.mark_all(changed)
        if self._look is not None:
            self._look.doubt(changed)
        for node in changed:
            self._expiry = min(self._expiry, self._expires(node))

    def _decisions(self, tolerated: Iterable[tuple[PodFacts, timedelta, datetime]], now: datetime) -> Iterator[list[Event]]:
        """Yield events in groups that belong together."""
        if self.policy.lifecycle:
            yield from ([event] for event in self._conditions(now))
        filters = JobFilters(self.fold, self.policy)
        yield from ([event] for event in self._jobs(filters, now))
        for pod, allowed, until in tolerated:
            if until <= now and filters.active_job(pod) is None and not filters.evicted(pod):
                yield [self._taint_eviction(pod, allowed, now)]
        yield from ([event] for event in end_deleted_nodes(self.fold))
        args = self.policy.low_node_load
        self._may_be_hot = self._look is not None and self._look.may_be_hot(now)
        if args is not None and self._may_be_hot:
            yield from _grouped(Balancing(self.fold, self.policy, filters, now).decide(args))

    def _conditions(self, now: datetime) -> Iterator[Event]:
        for node in self._conditions_due.due(now):
            event = changed_condition(self.fold, node, now)
            if event is None:
                self._conditions_due.settle(node)
            else:
                yield event

    def _jobs(self, filters: JobFilters, now: datetime) -> Sequence[Event]:
        if self._jobs_idle.holds(self.fold.job_version, now):
            return ()
        preemptions = list(decide_preemptions(self.fold, filters, now))
        jobs = JobDecisions(self.fold, self.policy, filters, now, frozenset(event.subject for event in preemptions))
        events = [*preemptions, *jobs.decide()]
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

    def _next_look(self, tolerated: Iterable[tuple[PodFacts, timedelta, datetime]], now: datetime) -> datetime:
        """Return when a state without due events may have one by the passing of time alone."""
        if self._expiry <= now:
            self._expiry = min((at for at in map(self._expires, self.fold.metrics) if at > now), default=NEVER)
        slot_ends = start_of_slot(slot_of(now, self.policy.interval) + 1, self.policy.interval)
        overdue = (until for _, _, until in tolerated if until > now)
        return min(slot_ends, self._expiry, self._jobs_idle.until, *overdue)

    def _expires(self, node: str) -> datetime:
        """Return when the node's metric becomes stale."""
        metric = self.fold.metrics.get(node)
        updated = metric.value.update_time if metric is not None else None
        return updated + self.policy.metric_expiration if updated is not None else NEVER

    def _taint_eviction(self, pod: PodFacts, tolerated: timedelta, now: datetime) -> Event:
        condition = self.fold.conditions[pod.node]
        taints = ", ".join(key for key, _, effect in condition.value.taints if effect == "NoExecute")
        reason = (
            f"node {pod.node} has {taints} since {condition.value.since:%Y-%m-%dT%H:%M:%SZ}, "
            f"the pod tolerates it for {int(tolerated.total_seconds())} s"
        )
        job = arbitrated_job(pod, TAINT_EVICTION, pod.key, reason, now, ignore_budgets=True)
        known = self.fold.pods.objects.get(pod.key)
        causes = (condition.ref, *((known.ref,) if known is not None else ()))
        return Event(subject=migration_subject(job.job), data=job, causes=causes)


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

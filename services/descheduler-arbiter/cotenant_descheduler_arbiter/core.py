"""The core of descheduler-arbiter: what to move, and which moves may run now.

In: nodes, pods, placements, runs, waiting pods, executors, metrics, migration jobs, the gateway's answers, and its own
events. Out, in this order:

    node.<node>.condition   readiness and its taints                       (lifecycle)
    migrations.<job>        victims of preemption                          (preemptions)
    migrations.<job>        users' jobs accepted, arbitration, phases      (jobs)
    migrations.<job>        pods of lost nodes that are overdue            (taint_eviction)
    descheduling.<node>     hot nodes with their streaks, each followed by
    migrations.<job>        the moves that relieve it                      (balancing)

and, as requests to the gateway, the evictions that are ordered and not answered. At most 999 events a decision: what
does not fit follows from the same state in the next one; a judgement and its moves are never parted.

A decision that found nothing is not computed again until an event arrives or time makes a difference: the next cycle's
slot begins, or a metric expires, or there are jobs or lost nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from cotenant.core import MAX_EVENTS_PER_DECISION, Request
from cotenant.events.envelope import Event
from cotenant.events.migrations import NodeLoadJudged
from cotenant.subjects import migration_subject
from cotenant_descheduler_arbiter.balancing import Balancing, forget_gone_nodes, judged_in_slot, slot_of
from cotenant_descheduler_arbiter.facts import PodFacts
from cotenant_descheduler_arbiter.fold import ClusterFold
from cotenant_descheduler_arbiter.job_filters import JobFilters
from cotenant_descheduler_arbiter.jobs import JobDecisions, outstanding_evictions
from cotenant_descheduler_arbiter.lifecycle import decide_conditions
from cotenant_descheduler_arbiter.low_node_load import LowNodeLoad
from cotenant_descheduler_arbiter.policy import Policy
from cotenant_descheduler_arbiter.preemptions import decide_preemptions
from cotenant_descheduler_arbiter.quick_look import may_be_hot
from cotenant_descheduler_arbiter.reconcile import TAINT_EVICTION, arbitrated_job
from cotenant_descheduler_arbiter.taint_eviction import overdue_pods

CORE_VERSION = "1"
"""Changes when the same state leads to other decisions."""

class DeschedulerArbiterCore:
    """Pure; see the module."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.fold = ClusterFold()
        self._quiet_version = -1
        self._quiet_slot = -1
        self._calm = (-1, -1)
        self._conditions_stand = -1
        self._nodes: tuple[int, bool, list[datetime]] = (-1, False, [])
        """Of this version: whether a node is lost, and when the metrics expire, in order."""

    def apply(self, event: Event) -> None:
        """Fold one fact."""
        self.fold.apply(event)

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return what follows from the state."""
        slot = slot_of(now, self.policy.interval)
        if self.fold.version == self._quiet_version and slot == self._quiet_slot:
            return ()
        events = list(self._bounded(self._decisions(now)))
        if not events and not self._time_matters(now):
            self._quiet_version, self._quiet_slot = self.fold.version, slot
        return events

    def requests(self, now: datetime) -> Sequence[Request]:
        """Return the evictions that are ordered and not answered, by job name."""
        return outstanding_evictions(self.fold, self.policy, now)

    def _decisions(self, now: datetime) -> Iterator[list[Event]]:
        """Yield events in groups that belong together."""
        yield from ([event] for event in self._conditions(now))
        filters = JobFilters(self.fold, self.policy)
        preemptions = list(decide_preemptions(self.fold, filters, now)) if self.fold.nominated or self.fold.jobs else []
        yield from ([event] for event in preemptions)
        if self.fold.jobs or self.fold.job_objects:
            decided = frozenset(event.subject for event in preemptions)
            yield from ([event] for event in JobDecisions(self.fold, self.policy, filters, now, decided).decide())
        if self.policy.lifecycle and self._known_of_nodes()[0]:
            for pod, tolerated in overdue_pods(self.fold, self.policy.default_toleration, now):
                if filters.active_job(pod) is None and not filters.evicted(pod):
                    yield [self._taint_eviction(pod, tolerated, now)]
        yield from ([event] for event in forget_gone_nodes(self.fold))
        args = self.policy.low_node_load
        if args is not None and self._may_be_hot(args, now):
            yield from _grouped(Balancing(self.fold, self.policy, filters, now).decide(args))

    def _conditions(self, now: datetime) -> Sequence[Event]:
        """Conditions that change; that none does holds until something is heard of a node."""
        if not self.policy.lifecycle or self._conditions_stand == self.fold.load_version:
            return ()
        events = list(decide_conditions(self.fold, now))
        if not events:
            self._conditions_stand = self.fold.load_version
        return events

    def _may_be_hot(self, args: LowNodeLoad, now: datetime) -> bool:
        """Take the quick look; its "no" holds for the rest of the slot, as metrics that grow old only leave nodes out."""
        look = self.fold.load_version, slot_of(now, self.policy.interval)
        if look == self._calm:
            return False
        hot = may_be_hot(self.fold, self.policy, args, judged_in_slot(self.fold, self.policy, now), now)
        if not hot:
            self._calm = look
        return hot

    def _bounded(self, groups: Iterable[list[Event]]) -> Iterator[Event]:
        room = MAX_EVENTS_PER_DECISION
        for group in groups:
            if len(group) > room:
                return
            room -= len(group)
            yield from group

    def _time_matters(self, now: datetime) -> bool:
        """Tell whether the passing of time alone may lead to a decision before the next slot."""
        if self.fold.jobs:
            return True
        lost, expiring = self._known_of_nodes()
        following = bisect_left(expiring, now)
        return lost or (following < len(expiring) and expiring[following] - now <= self.policy.interval)

    def _known_of_nodes(self) -> tuple[bool, list[datetime]]:
        """Whether a node is lost, and when the metrics expire; all nodes are looked through when something is heard of one."""
        version, lost, expiring = self._nodes
        if version != self.fold.load_version:
            lost = any(not known.value.ready for known in self.fold.conditions.values())
            updates = (known.value.update_time for known in self.fold.metrics.values())
            expiring = sorted(updated + self.policy.metric_expiration for updated in updates if updated is not None)
            self._nodes = (self.fold.load_version, lost, expiring)
        return lost, expiring

    def _taint_eviction(self, pod: PodFacts, tolerated: timedelta, now: datetime) -> Event:
        condition = self.fold.conditions[pod.node]
        taints = ", ".join(key for key, _, effect in condition.value.taints if effect == "NoExecute")
        reason = (
            f"node {pod.node} has {taints} since {condition.value.since:%Y-%m-%dT%H:%M:%SZ}, "
            f"the pod tolerates it for {int(tolerated.total_seconds())} s"
        )
        job = arbitrated_job(pod, TAINT_EVICTION, pod.key, reason, now, ignore_budgets=True)
        known = self.fold.pods.get(pod.key)
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

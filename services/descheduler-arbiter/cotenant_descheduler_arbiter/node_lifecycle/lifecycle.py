"""The lifecycle of nodes over one fold: conditions, taints, and the evictions that follow from them.

In: the fold, the nodes that changed, the time. Out: NodeCondition events, then Migration events. Caches derived state of
the fold to save work: the zones' counts, the lost nodes, the pods to evict. All of it follows from the last messages.

A node's condition is evaluated again after an event of the node; the lost nodes as a whole when one of them or a count of
zones changed, or when a zone's rate allows the next taint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from cotenant.engine.agenda import Agenda, IdleSpan
from cotenant.events.envelope import Event
from cotenant.model.subjects import tokens
from cotenant.model.times import NEVER
from cotenant_descheduler_arbiter.config.policy import DeschedulerPolicy
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters
from cotenant_descheduler_arbiter.node_lifecycle.eviction_jobs import Occupied, begin_jobs, held_jobs, settle_jobs
from cotenant_descheduler_arbiter.node_lifecycle.readiness import changed_condition
from cotenant_descheduler_arbiter.node_lifecycle.taint_eviction import TaintEvictions
from cotenant_descheduler_arbiter.node_lifecycle.tainting import Tainting
from cotenant_descheduler_arbiter.node_lifecycle.zones import ZoneHealth, Zones, zone_of
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.node_views import is_ready, node_labels


class NodeLifecycle:
    """See the module."""

    def __init__(self, fold: ClusterFold, policy: DeschedulerPolicy) -> None:
        self._fold = fold
        self._policy = policy
        self._due = Agenda()
        """Nodes with an event folded since their condition was last up to date."""
        self._zones = Zones(policy.node_evictions)
        self._lost: set[str] = set()
        self._evictions = TaintEvictions(fold, policy.default_toleration)
        self._version = 0
        """Increases with every change that the taints of lost nodes depend on."""
        self._settled = IdleSpan()
        """Of `_version`: no lost node's condition changes."""

    def note(self, nodes: Collection[str], pods_on: Collection[str]) -> None:
        """Note that nodes, or pods on nodes, have changed."""
        self._due.mark_all(nodes)
        self._evictions.note(nodes)
        self._evictions.note(pods_on)
        for node in nodes:
            self._count(node)

    def _count(self, node: str) -> None:
        fold = self._fold
        exists = node in fold.nodes or node in fold.executors
        lost = exists and not is_ready(fold, node)
        if lost or node in self._lost:
            self._version += 1
        (self._lost.add if lost else self._lost.discard)(node)
        before = self._zones.counted(node)
        if exists and node in fold.metrics:
            self._zones.set_node(node, zone_of(node_labels(fold, node)), lost)
        else:
            self._zones.drop_node(node)
        if before != self._zones.counted(node):
            self._version += 1

    def refresh(self) -> None:
        """Update the pods to evict."""
        self._evictions.refresh()

    @property
    def evicts(self) -> bool:
        """Whether a NoExecute taint is in force on some node."""
        return self._evictions.any_tainted

    def zones(self) -> tuple[ZoneHealth, ...]:
        """Return the state of each zone, by name."""
        return self._zones.all_health()

    def conditions(self, now: datetime) -> Iterator[Event]:
        """Yield the conditions that change, at most one a node."""
        changing: set[str] = set()
        for node in self._due.due(now):
            event = changed_condition(self._fold, node, now)
            if event is None:
                self._due.settle(node)
            else:
                changing.add(node)
                yield event
        if not self._lost or self._settled.holds(self._version, now):
            return
        look = Tainting(self._fold, self._zones, now)
        events = [event for event in look.decide(self._lost) if tokens(event.subject)[1] not in changing]
        if not events and not changing:
            self._settled.begin(self._version, now, look.until)
        yield from events

    def settled(self, changing: Collection[str], now: datetime) -> list[Event]:
        """Return the ends of eviction jobs whose cause is gone."""
        return list(settle_jobs(self._fold, self._evictions, changing, now))

    def held(self, changing: Collection[str]) -> frozenset[str]:
        """Return the subjects of eviction jobs that wait for the next decision."""
        return held_jobs(self._fold, changing)

    def evictions(self, filters: JobFilters, occupied: Occupied, now: datetime) -> Iterator[Event]:
        """Yield the jobs of pods that are due."""
        return begin_jobs(self._fold, self._policy, self._evictions, filters, occupied, now)

    def next_look(self, now: datetime) -> datetime:
        """Return when a state without due events may have one by the passing of time alone."""
        taints = self._settled.until if self._lost else NEVER
        return min(taints, self._evictions.next_due(now))

"""A descheduling cycle: the profiles' plugins over one state, once per interval.

In: the state, the policy, the time. Out: for each profile with plugins a DeschedulingCycle, and the jobs of the pods to evict,
all in one batch; nothing if the cycle of this interval has run. LowNodeLoad has its own events (`low_node_load`).

    1  nodes of a profile: ready and selected; with fewer than two nothing runs, without any nothing is recorded
    2  the deschedule plugins of all profiles, in the order of the document and of their lists
    3  the balance plugins of all profiles
    limits   per node, namespace and in all, counted over the whole cycle
    filters  those of migration jobs (`migration.movable`); with MigrationController's nodeFit the pod has to fit another node

A profile that is no longer configured has its DeschedulingCycle removed.

Source: koord-descheduler's cycle. There profiles run in random order, and an error of one plugin keeps the balance plugins from
running; here plugins do not fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from cotenant.domain.selectors import selects
from cotenant.events.descheduling import DeschedulingCycle, PluginCycle, StayingPod
from cotenant.events.envelope import Event
from cotenant.model.subjects import descheduling_cycle_subject, migration_subject
from cotenant_descheduler_arbiter.config.policy import DeschedulerPolicy, PluginRun, ProfilePlan
from cotenant_descheduler_arbiter.migration.job_filters import JobFilters
from cotenant_descheduler_arbiter.migration.movable import Movable
from cotenant_descheduler_arbiter.migration.new_jobs import (
    ANNOTATION_CYCLE,
    LABEL_DESCHEDULER_PROFILE,
    JobContext,
    job_name,
    new_job,
)
from cotenant_descheduler_arbiter.migration.slots import slot_of, start_of_slot
from cotenant_descheduler_arbiter.plugins.cycle_evictor import MAX_EVICTIONS, CycleEvictor, Evicted
from cotenant_descheduler_arbiter.plugins.registry import RUN
from cotenant_descheduler_arbiter.plugins.view import ClusterView
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.fold import ClusterFold
from cotenant_descheduler_arbiter.state.known import end
from cotenant_descheduler_arbiter.state.node_views import cycle_nodes, node_facts

MAX_NAMED = 100
"""Of the pods that a dry run would move."""
MAX_CAUSES = 10
"""Of the nodes that a cycle names as its causes, beside the cycle before."""
_FEW_NODES = "fewer than two nodes are ready and selected: no plugin ran"


def due_profiles(fold: ClusterFold, policy: DeschedulerPolicy, now: datetime) -> list[ProfilePlan]:
    """Return the profiles whose cycle of this interval has not run."""
    slot = slot_of(now, policy.interval)

    def ran(name: str) -> bool:
        known = fold.cycles.get(name)
        return known is not None and slot_of(known.value.ran_at, policy.interval) >= slot

    return [plan for plan in policy.profiles if not ran(plan.name)]


def end_removed_profiles(fold: ClusterFold, policy: DeschedulerPolicy) -> Iterator[Event]:
    """Yield the end of the records of profiles that are not configured any more."""
    configured = {plan.name for plan in policy.profiles}
    for name, known in sorted(fold.cycles.items()):
        if name not in configured:
            yield end(descheduling_cycle_subject(name), known)


class _ProfileCycle:
    """One profile in one cycle."""

    def __init__(
        self, fold: ClusterFold, policy: DeschedulerPolicy, plan: ProfilePlan, movable: Movable, now: datetime, most: int
    ) -> None:
        names = cycle_nodes(fold, plan.node_selector)
        pods = {name: tuple(fold.pods.all_on(name)) for name in names}
        nodes = tuple(node_facts(fold, name, [pod for pod in pods[name] if not pod.ended]) for name in names)
        fitting = [node for node in nodes if selects(policy.fit_selector, node.labels, absent=True)]

        def why_not(pod: PodFacts) -> str | None:
            return movable.why_not(pod) or movable.why_exhausted(pod)

        self.plan = plan
        self.view = ClusterView(nodes, pods, now)
        self.ran: list[PluginCycle] = []
        self.evictor = CycleEvictor(
            why_not,
            movable.counts,
            fitting,
            node_fit=policy.node_fit,
            count_evicted=movable.count,
            most=most,
            dry_run=policy.dry_run,
        )

    def run(self, plugins: Sequence[PluginRun]) -> None:
        """Run plugins in turn."""
        if len(self.view.nodes) < 2:
            return
        for plugin in plugins:
            before = len(self.evictor.evicted)
            self.evictor.plugin = plugin.name
            RUN[plugin.name](plugin.args, self.view, self.evictor)
            self.ran.append(PluginCycle(plugin=plugin.name, evicted=len(self.evictor.evicted) - before))


class Descheduling:
    """The cycle over one state."""

    def __init__(self, fold: ClusterFold, policy: DeschedulerPolicy, filters: JobFilters, now: datetime) -> None:
        self.fold = fold
        self.policy = policy
        self.filters = filters
        self.now = now
        self.slot = slot_of(now, policy.interval)

    def decide(self) -> list[Event]:
        """Return the events, all for one batch."""
        due = due_profiles(self.fold, self.policy, self.now)
        if not due:
            return []
        movable = Movable(self.fold, self.policy, self.filters, self.now)
        most = MAX_EVICTIONS // len(due)
        cycles = [_ProfileCycle(self.fold, self.policy, plan, movable, self.now, most) for plan in due]
        for cycle in cycles:
            cycle.run(cycle.plan.deschedule)
        for cycle in cycles:
            cycle.run(cycle.plan.balance)
        events: list[Event] = []
        for cycle in cycles:
            if not cycle.view.nodes:
                continue
            events.append(self._record(cycle))
            events += [self._job(cycle.plan.name, each) for each in cycle.evictor.jobs]
        return events

    def _record(self, cycle: _ProfileCycle) -> Event:
        evictor, notes = cycle.evictor, []
        if len(cycle.view.nodes) < 2:
            notes.append(_FEW_NODES)
        if self.policy.dry_run and evictor.evicted:
            notes.append("dry run: would move " + ", ".join(each.pod.key for each in evictor.evicted[:MAX_NAMED]))
        known = self.fold.cycles.get(cycle.plan.name)
        record = DeschedulingCycle(
            profile=cycle.plan.name,
            ran_at=self.now,
            nodes=len(cycle.view.nodes),
            pods=sum(len(pods) for pods in cycle.view.pods.values()),
            plugins=tuple(cycle.ran),
            kept=tuple(
                StayingPod(namespace=each.pod.namespace, name=each.pod.name, plugin=each.plugin, reason=each.reason)
                for each in evictor.kept
            ),
            kept_count=evictor.kept_count,
            message="; ".join(notes),
        )
        nodes = (self.fold.nodes[node.name].ref for node in cycle.view.nodes[:MAX_CAUSES])
        causes = (*((known.ref,) if known is not None else ()), *nodes)
        return Event(subject=descheduling_cycle_subject(cycle.plan.name), data=record, causes=causes)

    def _job(self, profile: str, evicted: Evicted) -> Event:
        pod = evicted.pod
        began = start_of_slot(self.slot, self.policy.interval)
        context = JobContext(
            labels={LABEL_DESCHEDULER_PROFILE: profile}, annotations={ANNOTATION_CYCLE: f"{began:%Y-%m-%dT%H:%M:%SZ}"}
        )
        name = job_name(pod, f"{evicted.plugin}/{pod.uid}/{pod.key}/{self.slot}")
        job = new_job(name, pod, evicted.plugin, evicted.reason, self.policy.job_defaults, context, self.now)
        known, node = self.fold.pods.objects.get(pod.key), self.fold.nodes.get(pod.node)
        causes = tuple(each.ref for each in (known, node) if each is not None)
        return Event(subject=migration_subject(name), data=job, causes=causes)

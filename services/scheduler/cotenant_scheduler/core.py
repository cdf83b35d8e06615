"""The scheduler's core: from pods, nodes, namespaces, metrics, resources, quotas and runs to placements.

Folds the subjects of FILTERS (`cycle.folding`). Decides, in this order:

1. bound: pods of the queue, in queue order (`cycle.placing`);
2. consequences of changed pods (`cycle.endings`): placements terminating, gone, stored again with a new manifest, pods
   whose node the user has named, waiting events that are over;
3. the status of PodGroups (`cycle.pod_groups`);
4. waiting: why the others are not placed (`cycle.waiting`).

A decision's changes of the state before it is stored are assumed (`cycle.assumed`). Results kept per shape are caches: rows
that changed are computed again. Bounds: at most MAX_EVENTS_PER_DECISION events a call, of which ENDINGS_SHARE are kept for
endings while pods are queued.

Over 300 lines: the wiring of all parts reads top to bottom in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from cotenant.domain.quota.hooks import QuotaHook
from cotenant.domain.quota.membership import Membership
from cotenant.domain.reservations.of_migrations import job_of
from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.model.quantities import QuantityError
from cotenant_scheduler.cycle.assumed import Assumed
from cotenant_scheduler.cycle.endings.endings import Endings
from cotenant_scheduler.cycle.endings.room_taken import taking_room
from cotenant_scheduler.cycle.folding import StateFolding
from cotenant_scheduler.cycle.nominations import Nominations
from cotenant_scheduler.cycle.ordering.walk import States
from cotenant_scheduler.cycle.placing import ENDINGS_SHARE, Placing
from cotenant_scheduler.cycle.pod_groups import STATUSES_SHARE, PodGroups, member_of
from cotenant_scheduler.cycle.preempting import Preempting
from cotenant_scheduler.cycle.preemption import Preemption
from cotenant_scheduler.cycle.queue import EquivalenceClass, PodQueue
from cotenant_scheduler.cycle.quota_preemption import QuotaPreemption
from cotenant_scheduler.cycle.reservation_preemption import ReservationPreemption
from cotenant_scheduler.cycle.reservations.endings import ReservationEndings
from cotenant_scheduler.cycle.reservations.pre_allocation import PreAllocation, takes_pods
from cotenant_scheduler.cycle.reservations.reserving import Reserving
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.plugin import Grouping
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.framework.queue_args import QueueOrder
from cotenant_scheduler.monitor import EVENTS_A_REPORT, SchedulerMonitor, warnings
from cotenant_scheduler.plugins.default_profile import SchedulerConfig, default_profile
from cotenant_scheduler.plugins.quota import NO_HOOKS, QuotaAdmission
from cotenant_scheduler.plugins.reservation.matching import ask_of
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.disruption_budgets import DisruptionBudgets
from cotenant_scheduler.state.gangs import GangCache
from cotenant_scheduler.state.network_domains import NetworkTopology
from cotenant_scheduler.state.node_cache import NodeCache
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_records import PodRecord
from cotenant_scheduler.state.pods import PodCache
from cotenant_scheduler.state.quotas.cache import Quotas
from cotenant_scheduler.state.quotas.quota_demands import QuotaDemands
from cotenant_scheduler.state.reading.pod_reader import PodReader
from cotenant_scheduler.state.reservations.cache import ReservationCache
from cotenant_scheduler.state.reservations.operating import OperatingPods
from cotenant_scheduler.state.reservations.records import ReserveRecord
from cotenant_scheduler.state.volumes.volumes import volumes_among


class SchedulerCore:
    """Pure; see the module."""

    def __init__(
        self,
        config: SchedulerConfig | None = None,
        profile: Profile | None = None,
        quota_hooks: Mapping[str, QuotaHook] = NO_HOOKS,
    ) -> None:
        """`profile`: plugins instead of the default ones; they hold state, so it belongs to this core alone."""
        self.config = config or SchedulerConfig()
        self.profile = profile or default_profile(self.config)
        args = self.config.load_aware.defaulted()
        self.monitor = SchedulerMonitor(self.config.scheduling_timeout_seconds)
        self._changed: dict[PodKey, PodRecord] = {}
        """Pods that changed since the last decision."""
        self.refused: dict[str, str] = {}
        """By subject, why its message is not used."""
        self._sequences = LastSequences()
        self.nodes = NodeTable(args, self.profile.counters)
        rules, late = self.config.quota_rules(), self.config.dynamic_scheduler_check
        self._quotas = Quotas(rules)
        self.ledger = self._quotas.ledger
        self._node_cache = NodeCache(self.nodes, args, self._look_at_pods_of)
        self.gangs = GangCache(self.config.coscheduling)
        self._grouping: Grouping = self.profile.grouping or self.gangs
        reader = PodReader(args, self.profile.readers, self.config.default_preemption_policy, self.config.pod_topology_spread)
        self.pods = PodCache(self.nodes, self.ledger, reader, self._note_changed, self.gangs.of_pod)
        self.reservations = ReservationCache(self.pods)
        self._operating = OperatingPods(self.pods, self.reservations)
        of_reservations = ReservationEndings(self.reservations, self.nodes, self.pods.records, self._uid_of)
        self._nominations = Nominations(self.nodes)
        self._endings = Endings(
            self._node_cache.facts, self.ledger, of_reservations, self.pods.acting, self.pods.stops, checks_scheduler=late
        )
        self._reserving = Reserving(self.nodes, self.reservations, self.config.reservation, self.config.weights)
        self.queue = PodQueue(by_priority=self.config.queue.order is not QueueOrder.FIFO)
        self._assumed = Assumed(self.nodes, self.ledger, self._sequences)
        self._budgets = DisruptionBudgets()
        self._pod_groups = PodGroups(self.gangs, self.pods.records)
        self._topology = NetworkTopology(self.nodes)
        self._demands = QuotaDemands(self.ledger.demands, rules)
        self._state = StateFolding(
            self.pods,
            self._node_cache,
            self._quotas,
            self._budgets,
            self.gangs,
            self._pod_groups,
            self.reservations,
            self._assumed,
            volumes_among(self.profile.counters),
            self._topology,
        )
        self._waiting = WaitingPods(self.queue, self.nodes, self.reservations, self._reserving, self._assumed.holds)
        self._preemption = Preemption(self.nodes, self.pods.records, self._budgets, self._nominations.leaving)
        admission = QuotaAdmission(
            self.ledger,
            runtime_limits=self.config.quota_runtime_limits,
            check_ancestors=self.config.quota_check_ancestors,
            hooks=quota_hooks,
        )
        within_quota = QuotaPreemption(
            self.nodes,
            self.pods,
            admission,
            self._preemption,
            self._nominations.leaving,
            protect_default=self.config.disable_default_quota_preemption,
        )
        preempting = Preempting(
            self.nodes,
            self._node_cache.facts,
            self.pods,
            self._waiting,
            self._preemption,
            self._nominations,
            within_quota,
            ReservationPreemption(self.nodes, self._reserving, self._preemption),
            for_reservations=self.config.reservation.enable_preemption,
        )
        self.placing = Placing(
            self.profile,
            self.nodes,
            self._node_cache,
            self.pods,
            self.queue,
            self._quotas,
            admission,
            self._assumed,
            self._endings,
            self._waiting,
            self._nominations,
            preempting,
            self._reserving,
            PreAllocation(self.nodes, self.pods, self._endings.attention, self._endings.given),
            self._states,
            self.config.queue,
            self.gangs,
            self._topology,
        )

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one fact; a repeated or overtaken one changes nothing."""
        if not self._sequences.is_new(event):
            return
        try:
            self._state.fold(event, event.sequence)
            if self.refused:
                self.refused.pop(event.subject, None)
        except (msgspec.DecodeError, QuantityError) as error:
            # The gateway refuses such an object; one from another writer must not affect the others.
            self.refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"

    def _look_at_pods_of(self, node: str) -> None:
        records = self.pods.records
        self._endings.look_at([records[key] for key in sorted(self.pods.on_node.get(node, ()))])

    def _uid_of(self, key: PodKey) -> str:
        """The uid of the placed pod of a name; of its object, if two are placed."""
        record = self.pods.records[key]
        return min(placed.data.uid for placed in record.placements.values()) if record.placements else ""

    def _note_changed(self, record: PodRecord) -> None:
        """Defer the rest to the next decision: a load folds most pods twice."""
        known = self._changed.setdefault(record.key, record)
        if known is not record:
            # That record was dropped meanwhile, and another pod has its name: it must not stay in the queue.
            self._pod_changed(known)
            self._changed[record.key] = record

    def _pod_changed(self, record: PodRecord) -> None:
        """Count the pod in its quota, put it into the queue or remove it, and have it inspected."""
        if self._demands.counting:
            self._demands.note(record)
        facts = record.facts
        if (facts is not None and facts.traits.acts) or (self.pods.acting and record.key in self.pods.acting):
            self._operating.note(record)
        if not record.placements and facts is not None and facts.shape is not None and self._endings.wants_node(record):
            self._enqueue(record).reported = None
            self.monitor.note(record)
        elif record.queued_in is not None:
            self.queue.take(record)
        self._nominations.pod_changed(record)
        self._preemption.pod_changed(record)
        if record.placements:
            self.placing.head.placed_changed += 1
        self._endings.pod_changed(record)

    def _note_gangs(self) -> None:
        """Update the gangs of changed pods; this concerns only pods that are or were in one."""
        members = self.gangs.of_pod
        for record in self._changed.values():
            facts = record.facts
            concerned = (facts is not None and facts.traits.gang) or (members and record.key in members)
            if concerned:
                namespace = facts.namespace if facts is not None and isinstance(record, ReserveRecord) else ""
                self.gangs.put(record.key, member_of(record), namespace)

    def _enqueue(self, record: PodRecord) -> EquivalenceClass:
        facts = record.facts
        assert facts is not None
        traits = facts.traits
        if isinstance(record, ReserveRecord):
            together = self._grouping.together(record.key, facts) if traits.gang else None
            record.ask = takes_pods(record) if together is None else None
            # Its quota must have room for it, and is charged nothing: its owners are. A migration's pod is charged already.
            moves = record.reservation is not None and job_of(record.reservation.metadata.annotations)
            membership = None if moves else self.ledger.member(facts.namespace, traits.quota_label)
            return self.queue.put(record, facts, membership, traits.preemptible, together)
        owners = self.reservations.index.meaning(record, facts) if self.reservations.index else ()
        if owners or traits.of_reservations:
            record.ask = ask_of(traits.labels, traits.annotations, owners)
        elif record.ask is not None:
            record.ask = None
        membership = self.ledger.member(facts.namespace, traits.quota_label)
        together = self._grouping.together(record.key, facts) if traits.gang or self.profile.grouping is not None else None
        return self.queue.put(record, facts, membership, traits.preemptible, together)

    # -- own events that are being stored ------------------------------------------------------------------------

    def assume(self, events: Sequence[Event]) -> None:
        """Fold own events as if they were stored."""
        self._assumed.fold(events, self._state)

    def confirm(self, first: int) -> None:
        """They are stored, from sequence `first` on."""
        self._assumed.stored(first)

    def withdraw(self) -> None:
        """They are not stored, nor is the batch decided after them."""
        self._assumed.refused(self._state)

    # -- deciding ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Finish folding: work that many messages share is done once."""
        if not self.queue.classes:
            self.reservations.index.changed.clear()
        self.pods.forget_selectors()
        self.pods.stops.forget(self.pods.records)
        self.pods.charged.move_from(self._quotas.settle())
        if self._quotas.regroup and not self._demands.counting:
            self._demands.begin(self.pods.records.values())
        self._note_gangs()
        for key in self.gangs.settle():
            # Its group or its rules changed: cached results no longer hold.
            self.queue.take(self.pods.records[key])
            self._changed.setdefault(key, self.pods.records[key])
        if self._changed:
            for record in self._changed.values():
                self._pod_changed(record)
            self._changed.clear()
        if self._node_cache.undescribed:
            self.refused.update(self._node_cache.settle())
        self.ledger.demands.offer(self._node_cache.totals.total)
        self.pods.charged.settle()
        self.nodes.settle()

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return the events that follow from the state at a moment."""
        self.settle()
        self._demands.expire(now)
        self.take_back()
        if self._quotas.regroup or self.reservations.index.changed:
            self._regroup_pods()
        self.monitor.look(self.queue.classes.values(), now)
        statuses = self._pod_groups.decide(now, STATUSES_SHARE)
        left = MAX_EVENTS_PER_DECISION - len(statuses)
        if not self.queue.classes:
            return [*self._endings.decide(now, left), *statuses]
        classes = self.queue.classes.values()
        backlog = self.queue.exceeds(MAX_EVENTS_PER_DECISION // 4)
        reports = MAX_EVENTS_PER_DECISION // EVENTS_A_REPORT if backlog and self.monitor.has_overdue(classes, now) else 0
        endings = self._endings.decide(now, ENDINGS_SHARE - len(statuses) - reports)
        with self._assumed.counted(taking_room(endings, self.pods.records), self._state, self.settle):
            bound, waiting = self.placing.decide(now, left - len(endings) - reports)
        if reports and self.placing.cut_short:
            waiting = self.monitor.reports(classes, self._waiting, self._assumed.holds, now, reports)
        return [*bound, *endings, *statuses, *waiting]

    def warnings(self, events: Sequence[Event]) -> list[str]:
        """Return lines for the log of the process about events that are stored now: pods that were not tried for too long."""
        return warnings(events)

    def runtimes(self, now: datetime) -> dict[Membership, dict[str, int]]:
        """Return the runtime of each quota in the folded state: the basis of a decision at this moment."""
        self.settle()
        self._demands.expire(now)
        forest = self.ledger.demands.forest
        return {Membership(name, tree): forest.runtime(name) for name, tree in sorted(forest.tree_ids.items())}

    def take_back(self) -> None:
        """Undo the last decision's assumptions that were not stored since."""
        self._assumed.rollback()

    def _states(self) -> States:
        """Return the versions of all that refusals depend on: quotas with what is charged to them and their messages, and how
        many nodes there are; for those by nodes also the nodes with what is counted on them and how old their reports are,
        pods that end on them, disruption budgets, the layers of the network."""
        quotas = self.ledger.version, self.nodes.count
        changed = self.reservations.changed.position, self._topology.version
        nodes = (self.nodes.count, *self.nodes.state, *self._preemption.state, *changed)
        return States(quotas, nodes)

    def _regroup_pods(self) -> None:
        """The quotas that pods belong to, or the reservations that match some, may have changed."""
        everybody, owners = self._quotas.regroup, self.reservations.index
        for alike in list(self.queue.classes.values()):
            for _, record in list(alike.pods()):
                if everybody or (record.facts is not None and owners.concerns(record, record.facts)):
                    self._enqueue(record)
        self._quotas.regroup = False
        owners.changed.clear()

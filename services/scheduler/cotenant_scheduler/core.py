"""The scheduler's core: from pods, nodes, namespaces, metrics, resources, quotas and runs to placements.

Folds the subjects of FILTERS; the state is a function of the last message of each. Decides, in this order:

1. bound: pods of the queue, in queue order, each on the feasible node with the highest total score (the first name
   among equals), assumed on the node and charged to the quota before the next one is looked at;
2. what follows from changed pods (`endings`): placements terminating, gone, stored again with a new manifest, pods
   whose node the user has named, waiting events that are over;
3. waiting: why the others are not placed.

Placements made within one decision are assumed in the node table and the ledger. What is folded as it was decided holds;
the rest is taken back when the next decision begins (`assumptions`), so that the state only changes by what is stored.
Equal pods that follow each other are placed at once (`series`). Results kept per shape are caches: rows that changed are
computed anew.
Bounds: at most MAX_EVENTS_PER_DECISION events a call, of which ENDINGS_SHARE are kept for endings while pods are
queued.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.objects.metadata import AnyObject
from cotenant.api.objects.policies import PriorityClassObject
from cotenant.domain.quota.ledger import QuotaLedger
from cotenant.domain.quota.membership import Membership, is_preemptible
from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Figure, Placement, Waiting
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.runs import RunStatus
from cotenant.model.quantities import QuantityError
from cotenant.model.subjects import placement_subject, tokens
from cotenant_scheduler.cycle.assumptions import Assumptions
from cotenant_scheduler.cycle.being_stored import BeingStored
from cotenant_scheduler.cycle.endings import Endings
from cotenant_scheduler.cycle.nominations import Nominations
from cotenant_scheduler.cycle.preempting import Preempting
from cotenant_scheduler.cycle.preemption import Preemption
from cotenant_scheduler.cycle.queue import Group, PodQueue, States, Walk
from cotenant_scheduler.cycle.waiting import WaitingPods
from cotenant_scheduler.framework.evaluation import Evaluation
from cotenant_scheduler.framework.figures import Figures
from cotenant_scheduler.framework.profile import Profile
from cotenant_scheduler.framework.results import KeptResults
from cotenant_scheduler.framework.series import WORTHWHILE, Series
from cotenant_scheduler.plugins.default_profile import SchedulerConfig, default_profile
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.state.counting import PodKey
from cotenant_scheduler.state.disruption_budgets import DisruptionBudgets
from cotenant_scheduler.state.load_estimate import microseconds
from cotenant_scheduler.state.node_cache import NodeBook
from cotenant_scheduler.state.nodes import NodeTable
from cotenant_scheduler.state.pod_reader import PodReader
from cotenant_scheduler.state.pods import Counted, Placed, PodBook, PodRecord
from cotenant_scheduler.state.stored_placements import PlacementView

FILTERS = (
    "objects.core.pods.>",
    "objects.core.nodes.>",
    "objects.core.namespaces.>",
    "objects.scheduling%2Ek8s%2Eio.priorityclasses.>",
    "objects.policy.poddisruptionbudgets.>",
    "node.*.executor",
    "node.*.resources",
    "node.*.condition",
    "node.*.placement.>",
    "node.*.run.>",
    "metrics.*",
    "quotas.>",
    "waiting.>",
)
"""What the service reads from LOG."""

VIEWS = (PlacementView,)
"""What it decodes in the place of payloads."""

ENDINGS_SHARE = 250

_NAMESPACE = msgspec.json.Decoder(AnyObject)
_PRIORITY_CLASS = msgspec.json.Decoder(PriorityClassObject)


class SchedulerCore:
    """Pure; see the module."""

    def __init__(self, config: SchedulerConfig | None = None, profile: Profile | None = None) -> None:
        """`profile`: plugins in place of the default ones; they keep state, so it is this core's alone."""
        self.config = config or SchedulerConfig()
        self.profile = profile or default_profile(self.config)
        args = self.config.load_aware.defaulted()
        self._changed: dict[PodKey, PodRecord] = {}
        """Pods that changed since the last decision."""
        self.refused: dict[str, str] = {}
        """Subject to why its message is not used."""
        self.nodes = NodeTable(args, self.profile.counters)
        self.ledger = QuotaLedger()
        self._node_book = NodeBook(self.nodes, args, self._look_at_pods_of)
        self._endings = Endings(self._node_book.facts, self.ledger)
        self.pods = PodBook(self.nodes, self.ledger, PodReader(args, self.profile.readers), self._note_changed)
        self.queue = PodQueue()
        self._quota = QuotaAdmission(
            self.ledger,
            runtime_limits=self.config.quota_runtime_limits,
            check_ancestors=self.config.quota_check_ancestors,
        )
        self._quota_sequences: dict[tuple[str, str], int] = {}
        self._causes_of_quota: dict[Membership, tuple[str, ...]] = {}
        """By quota, the messages about it and its ancestors."""
        self._sequences = LastSequences()
        self._regroup = False
        self._figures = Figures(self.profile, self.nodes.load.resources)
        self._assumed = Assumptions(self.nodes, self.ledger)
        self._results = KeptResults(self.nodes, self.profile)
        self._waiting = WaitingPods(self.queue, self.nodes, self._assumed.holds)
        self._budgets = DisruptionBudgets()
        self._nominations = Nominations(self.nodes)
        self._preemption = Preemption(self.nodes, self.pods.records, self._budgets, self._nominations.leaving)
        self._preempting = Preempting(
            self.nodes, self._node_book.facts, self.pods, self._waiting, self._preemption, self._nominations
        )
        self._being_stored = BeingStored(self.pods, self._sequences, self._fold_placement)

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one fact; a repeated or overtaken one changes nothing."""
        if not self._sequences.is_new(event):
            return
        try:
            self._fold(event)
            if self.refused:
                self.refused.pop(event.subject, None)
        except (msgspec.DecodeError, QuantityError) as error:
            # The gateway refuses such an object; one that came another way must not stop the others.
            self.refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"

    def _fold(self, event: Event) -> None:
        match tokens(event.subject):
            case ("node", node, "run", namespace, name):
                if not event.tombstone and isinstance(event.data, RunStatus):
                    self.pods.store_run(event.data, event.sequence)
                else:
                    self.pods.drop_run(node, (namespace, name))
            case ("objects", "core", "pods", namespace, name):
                if not event.tombstone and isinstance(event.data, ObjectStored):
                    self.pods.store_object((namespace, name), event.data.object, event.sequence)
                else:
                    self.pods.drop_object((namespace, name))
            case ("node", node, "placement", namespace, name):
                if not event.tombstone and isinstance(event.data, PlacementView | Placement):
                    self._fold_placement((event.data.namespace, event.data.name), event.data, event.sequence)
                else:
                    self.pods.drop_placement(node, (namespace, name))
            case ("waiting", namespace, name):
                if not event.tombstone and isinstance(event.data, Waiting):
                    self.pods.store_waiting(event.data, event.time)
                else:
                    self.pods.drop_waiting((namespace, name))
            case ("metrics", node):
                self._node_book.fold_metric(node, event)
            case ("node", node, "resources" | "executor" | "condition" as part):
                self._node_book.fold_part(node, part, event)
            case ("objects", "core", "nodes", _, node):
                self._node_book.fold_object(node, event)
            case ("objects", "core", "namespaces", _, name):
                self._fold_namespace(name, event)
            case ("quotas", tree, quota):
                self._fold_quota(event, "" if tree == "_" else tree, quota)
            case ("objects", "scheduling.k8s.io", "priorityclasses", _, name):
                self._fold_priority_class(name, event)
            case ("objects", "policy", "poddisruptionbudgets", namespace, name):
                if not event.tombstone and isinstance(event.data, ObjectStored):
                    self._budgets.set(namespace, name, event.data.object)
                else:
                    self._budgets.drop(namespace, name)

    def _fold_placement(self, key: PodKey, data: Placement | PlacementView, sequence: int) -> Placed:
        record = self.pods.records.get(key)
        first = record is not None and not record.placements and not record.runs
        return self.pods.store_placement(key, data, sequence, self._assumed.confirm(key, data, first))

    def _fold_quota(self, event: Event, tree: str, quota: str) -> None:
        self._causes_of_quota.clear()
        if event.tombstone or not isinstance(event.data, QuotaRuntime):
            self.ledger.end(tree, quota)
            self._quota_sequences.pop((tree, quota), None)
            self._regroup = True
            return
        data = event.data
        before = self.ledger.published(Membership(data.quota, data.tree))
        if before is None or (before.namespace, before.namespaces) != (data.namespace, data.namespaces):
            self._regroup = True
        self.ledger.publish(data)
        self._quota_sequences[(data.tree, data.quota)] = event.sequence

    def _fold_namespace(self, name: str, event: Event) -> None:
        labels: dict[str, str] = {}
        try:
            if not event.tombstone and isinstance(event.data, ObjectStored):
                labels = _NAMESPACE.decode(event.data.object).metadata.labels
        finally:
            # One whose object cannot be read is as one without: earlier labels do not stay.
            self.pods.label_namespace(name, labels)

    def _fold_priority_class(self, name: str, event: Event) -> None:
        if event.tombstone or not isinstance(event.data, ObjectStored):
            changed = self.pods.priorities.drop(name)
        else:
            changed = self.pods.priorities.set(name, _PRIORITY_CLASS.decode(event.data.object))
        if changed:
            self.pods.reprioritise()

    def _look_at_pods_of(self, node: str) -> None:
        records = self.pods.records
        self._endings.look_at([records[key] for key in sorted(self.pods.on_node.get(node, ()))])

    def _note_changed(self, record: PodRecord) -> None:
        """Leave the rest to the next decision: a load folds most pods twice."""
        known = self._changed.setdefault(record.key, record)
        if known is not record:
            # That one is forgotten by now, another pod of its name has come: it must not stay in the queue.
            self._pod_changed(known)
            self._changed[record.key] = record

    def _pod_changed(self, record: PodRecord) -> None:
        """Put the pod into the queue or take it out, and have it looked at."""
        facts = record.facts
        if facts is not None and facts.shape is not None and self._endings.wants_node(record):
            membership = self.ledger.associate(facts.namespace, facts.labels)
            self.queue.put(record, facts, membership, is_preemptible(facts.labels)).said = None
        elif record.group is not None:
            self.queue.take(record)
        self._nominations.pod_changed(record)
        self._preemption.pod_changed(record)
        self._endings.pod_changed(record)

    # -- own events that are being stored ------------------------------------------------------------------------

    def assume(self, events: Sequence[Event]) -> None:
        """Fold own events as if they were stored."""
        self._being_stored.assume(events)

    def confirm(self, first: int) -> None:
        """They are stored, at `first` and behind it."""
        self._being_stored.confirm(first)

    def withdraw(self) -> None:
        """They are not stored, and neither is what was decided behind them."""
        self.take_back()
        self._being_stored.withdraw()

    # -- deciding ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Finish folding: what many messages share is done once."""
        self.pods.forget_selectors()
        if self._changed:
            for record in self._changed.values():
                self._pod_changed(record)
            self._changed.clear()
        if self._node_book.undescribed:
            self.refused.update(self._node_book.settle())
        self.pods.settle()
        self.nodes.settle()

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return what follows from the state at a moment."""
        self.settle()
        self.take_back()
        if self._regroup:
            self._regroup_pods()
        if not self.queue.groups:
            return self._endings.decide(now, MAX_EVENTS_PER_DECISION)
        endings = self._endings.decide(now, ENDINGS_SHARE)
        bound, waiting = self._place(now, MAX_EVENTS_PER_DECISION - len(endings))
        return [*bound, *endings, *waiting]

    def take_back(self) -> None:
        """Undo what the last decision assumed and what was not stored since."""
        self._assumed.undo()

    def _place(self, now: datetime, limit: int) -> tuple[list[Event], list[Event]]:
        """Return the placements and, if the whole queue was looked at, the waiting events. What is placed stays
        assumed until it is stored or the next decision begins."""
        now_us = microseconds(now)
        self._preempting.begin()
        self.nodes.rank()
        self.nodes.expire(now_us)
        bound: list[Event] = []
        # While any pod is nominated, the rooms held for it count for some pods and not for others, and time alone ends them.
        walk = Walk(self.queue, None if self._nominations else self._states)
        previous: Group | None = None
        evaluation: Evaluation | None = None
        follows: int | None = None
        """The only row that changed since the evaluation was current."""
        while (top := self._top(walk)) is not None:
            record, group = top
            left = limit - len(bound)
            if left < (1 if record.waiting is None else 2):
                break
            counted = group.counted
            shape, membership = counted.shape, counted.membership
            if membership is not None:
                refusal = self._quota.check(shape, membership, counted.preemptible)
                if refusal is not None:
                    group.verdict = self._waiting.quota_verdict(group, refusal, self._quota_causes(membership))
                    self._nominations.end(record.key)
                    walk.close()
                    continue
            if self._nominations.hold(shape.priority, group.nominated):
                previous = None
            if group is previous and evaluation is not None and follows is not None:
                evaluation.follow(follows)
            else:
                evaluation = self._results.evaluation(shape)
            previous, follows = group, None
            row = evaluation.best()
            if row < 0:
                nominated = self._preempting.refused(record, group, evaluation, now)
                if nominated is None:
                    walk.close(by_nodes=True)
                else:
                    walk.wake()
                    bound.append(nominated)
                    walk.advance()
                continue
            walk.wake()
            group.verdict = group.stamp = None
            placed = 0
            if len(group.live) >= WORTHWHILE and not self.nodes.counters_of(shape):
                run = self._fitting(walk.run(left), left)
                if membership is not None and len(run) >= WORTHWHILE:
                    run = run[: self._quota.room(shape, membership, counted.preemptible, len(run))]
                if len(run) >= WORTHWHILE:
                    placed = self._place_series(run, counted, evaluation, now, now_us, bound)
            if not placed:
                assert record.facts is not None
                figures = self._figures.of_row(evaluation, row)
                data = self._bind(bound, record, row, figures, counted, now)
                assigned = self.pods.assigned(record.facts, shape, now_us)
                self._assumed.one(row, record.key, counted, assigned, data)
                placed, follows = 1, row
            self._nominations.end(record.key, self.nodes.names[row])
            walk.advance(placed)
            if shape.selected_by:
                walk.reopen(shape.selected_by)
        told = self._preempting.nominated
        waiting = self._waiting.decide(now, limit - len(bound), told) if top is None else []
        return bound, waiting

    def _top(self, walk: Walk) -> tuple[PodRecord, Group] | None:
        """The next to be asked: the first of those whom nodes refused too, if a room is free that was held for somebody."""
        if self._nominations.freed:
            self._nominations.freed = False
            walk.reopen_all()
        return walk.top()

    def _states(self) -> States:
        """Return the versions of all that refusals depend on: quotas with what is charged to them and their messages, and how
        many nodes there are; for those by nodes also the nodes with what is counted on them and how old their reports are,
        pods that end on them, disruption budgets."""
        quotas = self.ledger.version, self.nodes.count
        return States(quotas, (*quotas, *self.nodes.state, *self._preemption.state))

    @staticmethod
    def _fitting(run: list[PodRecord], events: int) -> list[PodRecord]:
        """The first pods of a run whose placements are so many events; the end of a waiting event is one too."""
        for index, record in enumerate(run):
            events -= 1 if record.waiting is None else 2
            if events < 0:
                return run[:index]
        return run

    def _place_series(
        self,
        run: list[PodRecord],
        counted: Counted,
        evaluation: Evaluation,
        now: datetime,
        now_us: int,
        bound: list[Event],
    ) -> int:
        """Place equal pods that follow each other as far as that can be told at once; return how many."""
        series = Series(evaluation, len(run))
        reports = self.nodes.load.reports
        keys: list[PodKey] = []
        placements: list[Placement] = []
        facts = run[0].facts
        assert facts is not None
        assigned = self.pods.assigned(facts, counted.shape, now_us)
        for record, row, figures in zip(run, series.rows, series.figures(self._figures), strict=False):
            key = record.key
            assert record.facts is not None
            if reports(row, key) or self.pods.assigned(record.facts, counted.shape, now_us) != assigned:
                break
            placements.append(self._bind(bound, record, row, figures, counted, now))
            keys.append(key)
        if keys:
            self._assumed.series(series.rows[: len(keys)], keys, counted, assigned, placements)
        return len(keys)

    def _bind(
        self,
        bound: list[Event],
        record: PodRecord,
        row: int,
        figures: tuple[Figure, ...],
        counted: Counted,
        now: datetime,
    ) -> Placement:
        """Add the events that give a pod its node; return the placement."""
        facts, document, membership = record.facts, record.document, counted.membership
        assert facts is not None
        assert document is not None
        node = self.nodes.names[row]
        causes = (f"LOG:{record.object_sequence}", *self._node_book.facts[node].causes)
        if membership is not None:
            causes += self._quota_causes(membership)
        data = Placement(
            node=node,
            namespace=facts.namespace,
            name=facts.name,
            uid=facts.uid,
            pod=document,
            requests=counted.shape.requests,
            quota=membership.quota if membership else "",
            quota_tree=membership.tree if membership else "",
            bound_at=now,
            grace_period_seconds=facts.grace_seconds,
            figures=figures,
            object_sequence=record.object_sequence,
        )
        namespace, name = record.key
        bound.append(Event(subject=placement_subject(node, namespace, name), data=data, causes=causes))
        if record.waiting is not None:
            bound.append(self._endings.waiting_over(record))
        return data

    def _quota_causes(self, membership: Membership) -> tuple[str, ...]:
        known = self._causes_of_quota.get(membership)
        if known is None:
            known = self._causes_of_quota[membership] = tuple(
                f"LOG:{self._quota_sequences[(membership.tree, level.name)]}"
                for level in self.ledger.chain(membership)
                if (membership.tree, level.name) in self._quota_sequences
            )
        return known

    def _regroup_pods(self) -> None:
        """Which quota a pod belongs to may have changed."""
        self._regroup = False
        for group in list(self.queue.groups.values()):
            for _, record in list(group.pods()):
                facts = record.facts
                assert facts is not None
                membership = self.ledger.associate(facts.namespace, facts.labels)
                self.queue.put(record, facts, membership, is_preemptible(facts.labels))

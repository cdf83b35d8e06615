"""The scheduler's core: from pods, nodes, metrics, resources, quotas and runs to placements.

Folds the subjects of FILTERS; the state is a function of the last message of each. Decides, in this order:

1. bound: pods of the queue, in queue order, each on the feasible node with the highest total score (the first name
among
   equals), assumed on the node and charged to the quota before the next one is looked at;
2. what follows from changed pods (`endings`): placements terminating, gone, stored again with a new manifest, pods
whose
   node the user has named, waiting events that are over;
3. waiting: why the others are not placed.

Placements made within one decision are assumed in the node table and the ledger and taken back before it returns, so
that the state only changes by what is stored. Results kept per shape are caches: rows that changed are computed anew.
Bounds: at most MAX_EVENTS_PER_DECISION events a call, of which ENDINGS_SHARE are kept for endings while pods are
queued; results of at most EVALUATION_BYTES are kept, least recently used shapes go first; at most STATIC_KEPT sets of
constraints.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cotenant.core import MAX_EVENTS_PER_DECISION
from cotenant.events.conditions import NodeCondition
from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Figure, Placement, Waiting, WaitingReason
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus, RunStatus
from cotenant.objects.node import decode_node
from cotenant.objects.policies import PriorityClassObject
from cotenant.quantities import QuantityError
from cotenant.quota.ledger import QuotaLedger
from cotenant.quota.membership import Membership, is_preemptible
from cotenant.subjects import placement_subject, tokens, waiting_subject

from cotenant_scheduler.endings import Endings
from cotenant_scheduler.evaluation import Evaluation, StaticResults
from cotenant_scheduler.load_estimate import microseconds
from cotenant_scheduler.node_facts import NodeFacts, describe, report_of
from cotenant_scheduler.nodes import NodeTable, PodKey
from cotenant_scheduler.plugins.quota import QuotaAdmission
from cotenant_scheduler.pods import PodBook, PodRecord
from cotenant_scheduler.policy import Policy, SchedulerConfig
from cotenant_scheduler.queue import Group, PodQueue, Verdict, Walk
from cotenant_scheduler.sequences import LastSequences
from cotenant_scheduler.shapes import PodReader, Shape

FILTERS = (
    "objects.core.pods.>",
    "objects.core.nodes.>",
    "objects.scheduling%2Ek8s%2Eio.priorityclasses.>",
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

ENDINGS_SHARE = 250
EVALUATION_BYTES = 96 << 20
STATIC_KEPT = 256
WAITING_PAUSE = timedelta(seconds=30)
"""Figures alone are said again only after this time."""

_PRIORITY_CLASS = msgspec.json.Decoder(PriorityClassObject)
_FAR_US = 1 << 62


class SchedulerCore:
    """Pure; see the module."""

    def __init__(self, config: SchedulerConfig | None = None) -> None:
        self.policy = Policy(config or SchedulerConfig())
        args = self.policy.load_aware
        self._facts: dict[str, NodeFacts] = {}
        self.refused: dict[str, str] = {}
        """Subject to why its message is not used."""
        self.nodes = NodeTable(args)
        self.ledger = QuotaLedger()
        self._endings = Endings(self._facts, self.ledger)
        self.pods = PodBook(self.nodes, self.ledger, PodReader(args), self._pod_changed)
        self.queue = PodQueue()
        self._quota = QuotaAdmission(self.ledger, self.policy.config)
        self._quota_sequences: dict[tuple[str, str], int] = {}
        self._sequences = LastSequences()
        self._regroup = False
        self._figure_names = tuple((f"node.{r}.used", f"node.{r}.capacity") for r in self.nodes.load.resources)
        self._evaluations: OrderedDict[Shape, Evaluation] = OrderedDict()
        self._evaluation_bytes = 0
        self._static: OrderedDict[tuple[object, ...], StaticResults] = OrderedDict()

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one fact; a repeated or overtaken one changes nothing."""
        if not self._sequences.is_new(event):
            return
        parts = tokens(event.subject)
        try:
            self._fold(event, parts)
            if self.refused:
                self.refused.pop(event.subject, None)
        except (msgspec.DecodeError, QuantityError) as error:
            # The gateway refuses such an object; one that came another way must not stop the others.
            self.refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"

    def _fold(self, event: Event, parts: tuple[str, ...]) -> None:
        match parts:
            case ("objects", "core", "pods", namespace, name):
                if not event.tombstone and isinstance(event.data, ObjectStored):
                    self.pods.store_object((namespace, name), event.data.object, event.sequence)
                else:
                    self.pods.drop_object((namespace, name))
            case ("node", node, "placement", namespace, name):
                if not event.tombstone and isinstance(event.data, Placement):
                    self.pods.store_placement(event.data, event.sequence)
                else:
                    self.pods.drop_placement(node, (namespace, name))
            case ("node", node, "run", namespace, name):
                if not event.tombstone and isinstance(event.data, RunStatus):
                    self.pods.store_run(event.data, event.sequence)
                else:
                    self.pods.drop_run(node, (namespace, name))
            case ("waiting", namespace, name):
                if not event.tombstone and isinstance(event.data, Waiting):
                    self.pods.store_waiting(event.data, event.time)
                else:
                    self.pods.drop_waiting((namespace, name))
            case ("metrics", node):
                self._fold_metric(node, event)
            case ("node", node, "resources" | "executor" | "condition"):
                self._fold_node_part(node, parts[2], event)
            case ("objects", "core", "nodes", _, node):
                self._fold_node(node, event)
            case ("quotas", _, _):
                self._fold_quota(event, "" if parts[1] == "_" else parts[1], parts[2])
            case ("objects", "scheduling.k8s.io", "priorityclasses", _, name):
                self._fold_priority_class(name, event)

    def _fold_node(self, name: str, event: Event) -> None:
        facts = self._node_facts(name)
        if event.tombstone or not isinstance(event.data, ObjectStored):
            facts.node = None
            facts.sequences.pop("object", None)
        else:
            facts.sequences["object"] = event.sequence
            facts.node = None
            try:
                facts.node = decode_node(event.data.object)
            finally:
                self._node_changed(facts)
            return
        self._look_at_pods_of(name)
        self._node_changed(facts)

    def _fold_node_part(self, name: str, part: str, event: Event) -> None:
        facts = self._node_facts(name)
        data = None if event.tombstone else event.data
        if data is None:
            facts.sequences.pop(part, None)
        else:
            facts.sequences[part] = event.sequence
        if part == "resources":
            facts.resources = data if isinstance(data, NodeResources) else None
        elif part == "executor":
            facts.executor = data if isinstance(data, ExecutorStatus) else None
        else:
            facts.condition = data if isinstance(data, NodeCondition) else None
        if part == "executor":
            self._look_at_pods_of(name)
        self._node_changed(facts)

    def _fold_metric(self, name: str, event: Event) -> None:
        facts = self._node_facts(name)
        if event.tombstone or not isinstance(event.data, NodeMetricComputed):
            facts.metric = None
            facts.sequences.pop("metric", None)
        else:
            facts.metric = event.data
            facts.sequences["metric"] = event.sequence
        self._report(facts)
        self._forget_if_empty(facts)

    def _fold_quota(self, event: Event, tree: str, quota: str) -> None:
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

    def _fold_priority_class(self, name: str, event: Event) -> None:
        if event.tombstone or not isinstance(event.data, ObjectStored):
            changed = self.pods.priorities.drop(name)
        else:
            found = _PRIORITY_CLASS.decode(event.data.object)
            changed = self.pods.priorities.set(name, found.value, found.global_default)
        if changed:
            self.pods.reprioritise()

    def _node_facts(self, name: str) -> NodeFacts:
        facts = self._facts.get(name)
        if facts is None:
            facts = self._facts[name] = NodeFacts(name)
        return facts

    def _node_changed(self, facts: NodeFacts) -> None:
        description = describe(facts, self.policy.load_aware)
        if description is None:
            self.nodes.withdraw(facts.name)
        else:
            unknown = not self.nodes.is_declared(facts.name)
            self.nodes.declare(description)
            if unknown:
                self._report(facts)
        self._forget_if_empty(facts)

    def _look_at_pods_of(self, node: str) -> None:
        records = self.pods.records
        self._endings.look_at([records[key] for key in sorted(self.pods.on_node.get(node, ()))])

    def _report(self, facts: NodeFacts) -> None:
        metric = facts.metric
        if metric is None:
            self.nodes.report(facts.name, None)
        else:
            report = report_of(metric, self.nodes.load.resources)
            self.nodes.report(facts.name, report, unknown=metric.unknown_since is not None)

    def _forget_if_empty(self, facts: NodeFacts) -> None:
        if facts.empty:
            self._facts.pop(facts.name, None)

    def _pod_changed(self, record: PodRecord) -> None:
        """Put the pod into the queue or take it out, and have it looked at."""
        facts = record.facts
        if facts is not None and facts.shape is not None and self._endings.wants_node(record):
            membership = self.ledger.associate(facts.namespace, facts.labels)
            self.queue.put(record, facts, membership, is_preemptible(facts.labels))
            if isinstance(record.group, Group):
                record.group.said = None
        else:
            self.queue.take(record)
        self._endings.pod_changed(record)

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return what follows from the state at a moment."""
        now_us = microseconds(now)
        self.nodes.rank()
        self.nodes.expire(now_us)
        if self._regroup:
            self._regroup_pods()
        limit = MAX_EVENTS_PER_DECISION
        endings = self._endings.decide(now, ENDINGS_SHARE if self.queue.groups else limit)
        bound, waiting = self._place(now, now_us, limit - len(endings))
        return [*bound, *endings, *waiting]

    def _place(self, now: datetime, now_us: int, limit: int) -> tuple[list[Event], list[Event]]:
        """Return the placements and, if the whole queue was looked at, the waiting events; the state is as it was before."""
        bound: list[Event] = []
        waiting: list[Event] = []
        assumed: list[tuple[int, PodKey, Shape]] = []
        charged: list[tuple[Membership, Shape, bool]] = []
        walk = Walk(self.queue)
        group: Group | None = None
        evaluation: Evaluation | None = None
        row = -1
        try:
            while (top := walk.top()) is not None:
                record = top[0]
                if len(bound) + (1 if record.waiting is None else 2) > limit:
                    break
                # As long as pods of one group follow each other, only the row just taken differs for them.
                same = top[1] is group
                group = top[1]
                shape, membership, preemptible = group.key
                if membership is not None:
                    refusal = self._quota.check(shape, membership, preemptible)
                    if refusal is not None:
                        group.verdict, group.stamp = self._quota_verdict(group, refusal), None
                        walk.close()
                        continue
                if same and evaluation is not None:
                    evaluation.follow(row)
                else:
                    evaluation = self._evaluation(shape)
                row = evaluation.best()
                if row < 0:
                    group.verdict = self._node_verdict(group, evaluation)
                    walk.close()
                    continue
                group.verdict = group.stamp = None
                bound.append(self._bound(record, group, evaluation, row, now))
                if record.waiting is not None:
                    bound.append(self._endings.waiting_over(record))
                assert record.facts is not None
                self.nodes.assume(row, record.key, shape, self.pods.assigned(record.facts, shape, now_us))
                assumed.append((row, record.key, shape))
                if membership is not None:
                    self.ledger.charge(membership, shape.requests, preemptible=preemptible)
                    charged.append((membership, shape, preemptible))
                walk.advance()
            if walk.top() is None:
                waiting = self._wait(now, now_us, limit - len(bound))
        finally:
            self.nodes.retract_all(assumed)
            for membership, shape, preemptible in reversed(charged):
                self.ledger.give_back(membership, shape.requests, preemptible=preemptible)
        return bound, waiting

    def _bound(self, record: PodRecord, group: Group, evaluation: Evaluation, row: int, now: datetime) -> Event:
        facts, document = record.facts, record.document
        assert facts is not None
        assert document is not None
        shape, membership, _ = group.key
        node = self.nodes.names[row]
        causes = (f"LOG:{record.object_sequence}", *self._facts[node].causes)
        if membership is not None:
            causes += self._quota_causes(membership)
        return Event(
            subject=placement_subject(node, *record.key),
            data=Placement(
                node=node,
                namespace=facts.namespace,
                name=facts.name,
                uid=facts.uid,
                pod=document,
                requests=shape.requests,
                quota=membership.quota if membership else "",
                quota_tree=membership.tree if membership else "",
                bound_at=now,
                grace_period_seconds=facts.grace_seconds,
                figures=(*evaluation.figures(row), *self._node_figures(row)),
                object_sequence=record.object_sequence,
            ),
            causes=causes,
        )

    def _node_figures(self, row: int) -> tuple[Figure, ...]:
        load = self.nodes.load
        figures = []
        for r, (used, capacity) in enumerate(self._figure_names):
            figures.append(Figure(name=used, value=load.score_view.item(r, row)))
            figures.append(Figure(name=capacity, value=load.capacity.item(r, row)))
        return tuple(figures)

    def _quota_causes(self, membership: Membership) -> tuple[str, ...]:
        return tuple(
            f"LOG:{self._quota_sequences[(membership.tree, level.name)]}"
            for level in self.ledger.chain(membership)
            if (membership.tree, level.name) in self._quota_sequences
        )

    # -- waiting -------------------------------------------------------------------------------------------------

    def _node_verdict(self, group: Group, evaluation: Evaluation) -> Verdict:
        known = group.verdict
        if known is not None and group.stamp == evaluation.stamp:
            return known
        group.stamp = evaluation.stamp
        found = evaluation.refusals()
        reasons = tuple(
            WaitingReason(
                code=entry.refusal.code,
                count=entry.count,
                resource=entry.refusal.resource,
                detail=entry.refusal.detail,
            )
            for entry in found
        )
        texts = ", ".join(f"{entry.count} {entry.refusal.text}" for entry in found)
        total = self.nodes.count
        message = f"0/{total} nodes are available: {texts}." if texts else "no nodes available to schedule pods"
        waiting = Waiting(
            namespace="", name="", uid="", nodes=total, reasons=reasons, wakes_on=evaluation.wakes_on(), message=message
        )
        return self._verdict(group, waiting, ())

    def _quota_verdict(self, group: Group, waiting: Waiting) -> Verdict:
        membership = group.key[1]
        assert membership is not None
        return self._verdict(
            group, msgspec.structs.replace(waiting, nodes=self.nodes.count), self._quota_causes(membership)
        )

    def _verdict(self, group: Group, waiting: Waiting, causes: tuple[str, ...]) -> Verdict:
        """Return the verdict; the group's own object where nothing changed, so that it is known again."""
        known = group.verdict
        if known is not None and known.waiting == waiting and known.causes == causes:
            return known
        return Verdict(waiting, causes)

    def _wait(self, now: datetime, now_us: int, limit: int) -> list[Event]:
        events: list[Event] = []
        groups = [group for group in self.queue.groups.values() if group.verdict is not None]
        heads = sorted(((head[0], group) for group in groups if (head := next(group.pods(), None))), key=lambda e: e[0])
        for _, group in heads:
            if group.said is group.verdict and now_us < group.quiet_until_us:
                continue
            quiet_until = _FAR_US
            complete = True
            assert group.verdict is not None
            for _, record in group.pods():
                due = self._due(record, group.verdict.waiting, now)
                if due is None:
                    continue
                if due > now:
                    quiet_until = min(quiet_until, microseconds(due))
                    continue
                complete = False
                if len(events) >= limit:
                    return events
                events.append(self._waiting(record, group.verdict))
            group.said, group.quiet_until_us = (group.verdict, quiet_until) if complete else (None, 0)
        return events

    def _due(self, record: PodRecord, verdict: Waiting, now: datetime) -> datetime | None:
        """When the pod's waiting event must be stored (again); None: what is stored says it already."""
        said = record.waiting
        assert record.facts is not None
        if said is None or said.uid != record.facts.uid or said.codes != verdict.codes:
            return now
        if (said.reasons, said.nodes, said.message) == (verdict.reasons, verdict.nodes, verdict.message):
            return None
        return now if record.waiting_at is None else record.waiting_at + WAITING_PAUSE

    def _waiting(self, record: PodRecord, verdict: Verdict) -> Event:
        assert record.facts is not None
        namespace, name = record.key
        return Event(
            subject=waiting_subject(namespace, name),
            data=msgspec.structs.replace(
                verdict.waiting, namespace=namespace, name=name, uid=record.facts.uid
            ),
            causes=(f"LOG:{record.object_sequence}", *verdict.causes),
        )

    # -- results kept --------------------------------------------------------------------------------------------

    def _evaluation(self, shape: Shape) -> Evaluation:
        found = self._evaluations.get(shape)
        if found is None:
            found = Evaluation(self.nodes, shape, self.policy, self._static_results(shape))
            self._evaluations[shape] = found
        else:
            self._evaluations.move_to_end(shape)
        before = found.cost_bytes
        found.refresh()
        self._evaluation_bytes += found.cost_bytes - (before if before else 0)
        while self._evaluation_bytes > EVALUATION_BYTES and len(self._evaluations) > 1:
            _, dropped = self._evaluations.popitem(last=False)
            self._evaluation_bytes -= dropped.cost_bytes
        return found

    def _static_results(self, shape: Shape) -> StaticResults:
        key = (shape.node_selector, shape.affinity, shape.tolerations)
        found = self._static.get(key)
        if found is None:
            found = self._static[key] = StaticResults(self.nodes, shape, self.policy)
            if len(self._static) > STATIC_KEPT:
                self._static.popitem(last=False)
        else:
            self._static.move_to_end(key)
        return found

    def _regroup_pods(self) -> None:
        """Which quota a pod belongs to may have changed."""
        self._regroup = False
        for group in list(self.queue.groups.values()):
            for _, record in list(group.pods()):
                facts = record.facts
                assert facts is not None
                membership = self.ledger.associate(facts.namespace, facts.labels)
                self.queue.put(record, facts, membership, is_preemptible(facts.labels))

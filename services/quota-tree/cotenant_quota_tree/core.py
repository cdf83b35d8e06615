"""The quota-tree service's core: computes every quota's runtime quota from quotas, nodes and pods.

Folds ElasticQuota, Node and Pod objects, executors' reports, node resources, placements, runs, and its own
`quotas.<tree>.<quota>`. Decides one QuotaRuntime per quota, and one for the root, default and system quota while any
quota is declared; each is published when it differs from its last event. A change of requests or usage alone is published
once the quota's last event is `settle` old, because consumers decide on limits. Causes: the quota's own object, then,
where newer than its last event, the newest quota object, node event and pod event of the tree.

A quota is identified by its name alone; of several with one name the smallest namespace is used, and the event carries a
reason. An unreadable object (a malformed quantity) counts as absent and is listed in `refused` with the reason.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from cotenant.api.objects.pod import decode_pod
from cotenant.domain.quota.membership import QuotaIdentity, QuotaIndex
from cotenant.domain.quota.names import DEFAULT, SYSTEM
from cotenant.domain.quota.view import ElasticQuotaView, built_in_quota, decode_quota
from cotenant.engine.agenda import Agenda
from cotenant.engine.core import MAX_EVENTS_PER_DECISION
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.quotas import QuotaRuntime
from cotenant.events.resources import NodeResources
from cotenant.events.runs import ExecutorStatus, RunStatus
from cotenant.log.contract import ending
from cotenant.model.quantities import QuantityError
from cotenant.model.subjects import tokens
from cotenant.model.times import NEVER
from cotenant_quota_tree.forest import Forest
from cotenant_quota_tree.nodes import NodeOffers, counted_node
from cotenant_quota_tree.pods import OnNode, PodDemands, PodKey
from cotenant_quota_tree.solution import Rules

FILTERS = (
    "objects.scheduling%2Esigs%2Ek8s%2Eio.elasticquotas.>",
    "objects.core.nodes.>",
    "objects.core.pods.>",
    "node.*.resources",
    "node.*.executor",
    "node.*.placement.>",
    "node.*.run.>",
    "quotas.>",
)
"""Subjects that the service reads from LOG."""

SETTLE = timedelta(seconds=1)
_GONE = PlacementPhase.GONE
_AT_ONCE = datetime(1970, 1, 1, tzinfo=UTC)


class _Published(msgspec.Struct, frozen=True):
    quota: QuotaRuntime
    newest_cause: int
    """The last sequence folded at the decision; an event with a lower sequence may have been delivered later."""
    time: datetime | None


class QuotaTreeCore:
    """The pure core; see the module."""

    def __init__(self, rules: Rules | None = None, settle: timedelta = SETTLE) -> None:
        self.rules = rules or Rules()
        self.settle = settle
        self.refused: dict[str, str] = {}
        """By subject, why its object is not used."""
        self._sequences = LastSequences()
        self._declared: dict[str, dict[str, tuple[ElasticQuotaView, int]]] = {}
        self._nodes = NodeOffers()
        self._pods = PodDemands()
        self._published: dict[str, _Published] = {}
        self._newest_quota = 0
        self._newest_node = 0
        self._newest_pod = 0
        self._quotas_changed = True
        self._forest = Forest({}, {}, (), self.rules)
        self._desired: dict[str, QuotaRuntime] = {}
        """Desired events by subject."""
        self._solved_for: tuple[int, dict[str, int]] | None = None
        """The version of the pods and the nodes' total from which this was computed."""
        self._agenda = Agenda()
        """Subjects whose event may be outdated; all others are up to date."""

    # -- folding -------------------------------------------------------------------------------------------------

    def apply(self, event: Event) -> None:
        """Fold one event."""
        if not self._sequences.is_new(event):
            return
        parts = tokens(event.subject)
        try:
            match parts:
                case ("node", _, "placement" | "run", namespace, name):
                    self._on_node(event, (namespace, name))
                case ("objects", _, "pods", namespace, name):
                    self._pod_object(event, (namespace, name))
                case ("node", node, "resources" | "executor"):
                    self._node_fact(event, node)
                case ("objects", _, "nodes", _, node):
                    self._node_object(event, node)
                case ("objects", _, "elasticquotas", namespace, name):
                    self._quota_object(event, namespace, name)
                case ("quotas", _, _):
                    self._own(event)
                case _:
                    return
            if self.refused:
                self.refused.pop(event.subject, None)
        except (msgspec.DecodeError, QuantityError) as error:
            # The gateway refuses such an object; one from another writer must not block all other quotas.
            self._end(parts)
            self.refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"

    def _own(self, event: Event) -> None:
        self._agenda.mark(event.subject)
        if event.tombstone or not isinstance(event.data, QuotaRuntime):
            self._published.pop(event.subject, None)
        else:
            self._published[event.subject] = _Published(event.data, _newest(event.causes), event.time)

    def _quota_object(self, event: Event, namespace: str, name: str) -> None:
        self._newest_quota = max(self._newest_quota, event.sequence)
        self._quotas_changed = True
        if event.tombstone or not isinstance(event.data, ObjectStored):
            self._end_quota(namespace, name)
        else:
            view = msgspec.structs.replace(decode_quota(event.data.object), namespace=namespace, name=name)
            self._declared.setdefault(name, {})[namespace] = (view, event.sequence)

    def _end_quota(self, namespace: str, name: str) -> None:
        namesakes = self._declared.get(name, {})
        namesakes.pop(namespace, None)
        if not namesakes:
            self._declared.pop(name, None)

    def _pod_object(self, event: Event, pod: PodKey) -> None:
        if event.sequence > self._newest_pod:
            self._newest_pod = event.sequence
        if event.tombstone or not isinstance(event.data, ObjectStored):
            self._pods.drop_pod(pod)
        else:
            self._pods.store_pod(pod, decode_pod(event.data.object), event.sequence)

    def _node_object(self, event: Event, node: str) -> None:
        self._newest_node = max(self._newest_node, event.sequence)
        if event.tombstone or not isinstance(event.data, ObjectStored):
            self._nodes.declare(node, None)
        else:
            self._nodes.declare(node, counted_node(event.data.object))

    def _node_fact(self, event: Event, node: str) -> None:
        self._newest_node = max(self._newest_node, event.sequence)
        if isinstance(event.data, ExecutorStatus):
            self._nodes.report(node, None if event.tombstone else event.data)
        elif isinstance(event.data, NodeResources):
            self._nodes.overcommit(node, None if event.tombstone else event.data)

    def _on_node(self, event: Event, pod: PodKey) -> None:
        data, sequence = event.data, event.sequence
        if sequence > self._newest_pod:
            self._newest_pod = sequence
        if event.tombstone:
            self._pods.drop_on_node(event.subject, pod)
        elif isinstance(data, RunStatus):
            self._pods.store_on_node(event.subject, pod, OnNode(data.uid, False, data.phase.terminal, sequence))
        elif isinstance(data, Placement):
            self._pods.store_on_node(event.subject, pod, OnNode(data.uid, data.phase is not _GONE, False, sequence))

    def _end(self, parts: tuple[str, ...]) -> None:
        match parts[2]:
            case "elasticquotas":
                self._end_quota(parts[3], parts[4])
            case "pods":
                self._pods.drop_pod((parts[3], parts[4]))
            case "nodes":
                self._nodes.declare(parts[4], None)

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return new and changed quota events by subject, and tombstones for quotas that are no longer declared."""
        self._solve()
        events: list[Event] = []
        for subject in self._agenda.due(now):
            published = self._published.get(subject)
            quota = self._desired.get(subject)
            due = self.publish_at(quota, published) if quota is not None else _AT_ONCE if published is not None else NEVER
            if due > now:
                self._agenda.settle(subject, due)
            elif quota is not None:
                events.append(Event(subject=subject, data=quota, causes=self._causes(quota, published)))
            elif published is not None:
                events.append(ending(subject, published.quota, _refs((self._newest_quota,))))
            if len(events) == MAX_EVENTS_PER_DECISION:
                break
        return events

    def publish_at(self, quota: QuotaRuntime, published: _Published | None) -> datetime:
        """Return the earliest time at which the quota's event is published, NEVER while it is what the log says."""
        if published is None:
            return _AT_ONCE
        if quota == published.quota:
            return NEVER
        if published.time is None or _limits(quota) != _limits(published.quota):
            return _AT_ONCE
        return published.time + self.settle

    def _causes(self, quota: QuotaRuntime, published: _Published | None) -> tuple[str, ...]:
        own = self._declared.get(quota.quota, {}).get(quota.namespace)
        since = published.newest_cause if published is not None else 0
        # Scanning the quota's pods is needed only if some pod event is newer.
        own_pod = self._pods.newest(quota.quota) if self._newest_pod > since else 0
        candidates = (self._newest_quota, self._newest_node, own_pod, self._newest_pod)
        return _refs((own[1] if own is not None else 0, *(sequence for sequence in candidates if sequence > since)))

    def _solve(self) -> None:
        """Recompute the desired events from quotas, nodes and pods."""
        if self._quotas_changed:
            self._read_quotas()
        facts = self._pods.version, self._nodes.total
        if facts == self._solved_for:
            return
        self._solved_for = facts
        if not (self._declared or self._desired):
            return  # nothing is published while no quota is declared
        before, self._desired = self._desired, self._forest.runtimes(self._nodes.total, self._pods.own)
        self._agenda.mark_all(subject for subject in before if subject not in self._desired)
        self._agenda.mark_all(subject for subject, quota in self._desired.items() if quota is not before.get(subject))

    def _read_quotas(self) -> None:
        quotas = {name: min(namesakes.items())[1][0] for name, namesakes in sorted(self._declared.items())}
        built_in = {name: quotas.get(name) or built_in_quota(name) for name in (SYSTEM, DEFAULT)}
        known = {**quotas, **built_in}
        if quotas:
            index = QuotaIndex(QuotaIdentity(q.name, q.namespace, q.tree, q.namespaces) for q in known.values())
            self._pods.resolve(index, {name: view.max for name, view in known.items()})
        else:
            self._pods.resolve(None, {})
        duplicated = {name for name, namesakes in self._declared.items() if len(namesakes) > 1}
        self._forest = Forest(quotas, built_in, duplicated, self.rules)
        self._quotas_changed, self._solved_for = False, None

def _limits(quota: QuotaRuntime) -> tuple[object, ...]:
    """The fields that other services decide on; the rest describes the load on the quota."""
    return (quota.parent, quota.namespaces, quota.min, quota.max, quota.runtime, quota.overused, quota.reason)


def _refs(sequences: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"LOG:{sequence}" for sequence in dict.fromkeys(sequences) if sequence)


def _newest(causes: Sequence[str]) -> int:
    return max((int(cause.rpartition(":")[2]) for cause in causes), default=0)

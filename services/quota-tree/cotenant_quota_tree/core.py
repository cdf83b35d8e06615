"""The quota-tree service's core: computes every quota's runtime quota from quotas, nodes and pods.

Folds ElasticQuota, ElasticQuotaProfile, Node and Pod objects, executors' reports, readiness and resources of nodes,
placements, runs, the gateway's answers to evictions, and its own `quotas.>`. Decides one QuotaRuntime per quota, and one for
the root, default and system quota while any quota is declared; each is published when it differs from its last event. A
change of requests or usage alone is published once the quota's last event is `settle` old. These events are not urgent: the
scheduler computes runtimes itself, by the same rules (`cotenant.domain.quota.trees`). Causes: the quota's own object, then,
where newer than its last event, the newest quota object, node event and pod event of the tree.

Decides one ProfiledQuota per profile (`profiles`). While over-use is revoked, QuotaRuntime carries its streak and the pods
to evict, by requests to the gateway (`revocation`, `revoking`). When an event is due: `publishing`.

A quota is identified by its name alone; of several with one name the smallest namespace is used, and the event carries a
reason. An unreadable object (a malformed quantity) counts as absent and is listed in `refused` with the reason.

Over 300 lines: one method of a few lines for each kind of fact.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from cotenant.api.objects.pod import decode_pod
from cotenant.domain.quota.profile import ProfileError, decode_profile
from cotenant.domain.quota.trees.declared import DeclaredQuotas, with_built_in
from cotenant.domain.quota.trees.node_totals import counted_node
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.view import ElasticQuotaView, decode_quota
from cotenant.engine.agenda import Agenda
from cotenant.engine.core import MAX_EVENTS_PER_DECISION, Request
from cotenant.engine.last_sequences import LastSequences
from cotenant.events.envelope import Event
from cotenant.events.node.conditions import NodeCondition
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import ExecutorStatus, RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.quotas import ProfiledQuota, QuotaRuntime
from cotenant.log.contract import ending
from cotenant.model.quantities import QuantityError
from cotenant.model.subjects import quota_subject, tokens
from cotenant.model.times import EPOCH, NEVER
from cotenant_quota_tree.nodes import NodeOffers, declared_ready
from cotenant_quota_tree.pods import OnNode, PodDemands, PodKey
from cotenant_quota_tree.profiles import QuotaProfiles
from cotenant_quota_tree.publishing import Desired, PublishedQuota, newest, publish_at, refs, runtime_of
from cotenant_quota_tree.publishing_runtime import runtime_event
from cotenant_quota_tree.revocation import Revocation
from cotenant_quota_tree.revoking import Revoking

FILTERS = (
    "objects.scheduling%2Esigs%2Ek8s%2Eio.elasticquotas.>",
    "objects.quota%2Ekoordinator%2Esh.elasticquotaprofiles.>",
    "objects.core.nodes.>",
    "objects.core.pods.>",
    "node.*.resources",
    "node.*.executor",
    "node.*.condition",
    "node.*.placement.>",
    "node.*.run.>",
    "evictions.>",
    "quotas.>",
)
"""Subjects that the service reads from LOG."""

SETTLE = timedelta(seconds=1)
_BOUND, _GONE = PlacementPhase.BOUND, PlacementPhase.GONE


class QuotaTreeCore:
    """The pure core; see the module."""

    def __init__(
        self, rules: QuotaRules | None = None, settle: timedelta = SETTLE, revocation: Revocation | None = None
    ) -> None:
        self.rules = rules or QuotaRules()
        self.settle = settle
        self.revocation = revocation or Revocation()
        self.refused: dict[str, str] = {}
        """By subject, why its object is not used."""
        self._sequences = LastSequences()
        self._declared = DeclaredQuotas()
        self._nodes = NodeOffers()
        self._pods = PodDemands(self.rules)
        self._profiles = QuotaProfiles(self._nodes.offers)
        self._revoking = Revoking()
        self._published: dict[str, PublishedQuota] = {}
        self._newest_quota = 0
        self._newest_node = 0
        self._newest_pod = 0
        self._views: dict[str, ElasticQuotaView] = {}
        self._duplicated: set[str] = set()
        """As of the last decision: the quotas, and duplicate names."""
        self._desired: dict[str, QuotaRuntime] = {}
        """Desired events by subject, as they follow from quotas, nodes and pods alone."""
        self._profiled: dict[str, ProfiledQuota] = {}
        self._profiled_for = 0
        """The version of the profiles from which this was computed."""
        self._charged_at: dict[tuple[str, str], int] = {}
        """By namespace and name, the version of the object into which admission wrote its pods' requests."""
        self._solved_for = -1
        """The version of the demands from which this was computed."""
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
                case ("objects", "core", "pods", namespace, name):
                    self._pod_object(event, (namespace, name))
                case ("node", node, "resources" | "executor" | "condition"):
                    self._node_fact(event, node)
                case ("objects", "core", "nodes", _, node):
                    self._node_object(event, node)
                case ("objects", "scheduling.sigs.k8s.io", "elasticquotas", namespace, name):
                    self._quota_object(event, namespace, name)
                case ("objects", "quota.koordinator.sh", "elasticquotaprofiles", namespace, name):
                    self._profile_object(event, (namespace, name))
                case ("quotas", *_):
                    self._own(event)
                case ("evictions", _, _):
                    self._answer(event)
                case _:
                    return
            if self.refused:
                self.refused.pop(event.subject, None)
        except (msgspec.DecodeError, QuantityError, ProfileError) as error:
            # The gateway refuses such an object; one from another writer must not block all other quotas.
            self._end(parts)
            self.refused[event.subject] = f"{event.subject} at {event.ref} is not used: {error}"

    def _own(self, event: Event) -> None:
        subject, data = event.subject, event.data
        self._agenda.mark(subject)
        if event.tombstone or not isinstance(data, QuotaRuntime | ProfiledQuota):
            self._published.pop(subject, None)
            self._revoking.publish(subject, None, event.sequence)
            return
        self._published[subject] = PublishedQuota(data, newest(event.causes), event.time)
        if isinstance(data, QuotaRuntime):
            self._revoking.publish(subject, data, event.sequence)

    def _answer(self, event: Event) -> None:
        if not self.revocation.enabled:
            return
        for subject in self._revoking.answer(event):
            self._agenda.mark(subject)

    def _profile_object(self, event: Event, key: tuple[str, str]) -> None:
        if event.tombstone or not isinstance(event.data, ObjectStored):
            self._profiles.declare(key, None, event.sequence)
        else:
            view = msgspec.structs.replace(decode_profile(event.data.object), namespace=key[0], name=key[1])
            self._profiles.declare(key, view, event.sequence)

    def _quota_object(self, event: Event, namespace: str, name: str) -> None:
        self._newest_quota = max(self._newest_quota, event.sequence)
        if event.tombstone or not isinstance(event.data, ObjectStored):
            self._end_quota(namespace, name)
            return
        given = decode_quota(event.data.object)
        view = msgspec.structs.replace(given, namespace=namespace, name=name)
        self._declared.store(view, event.sequence)
        if given.charged is None:
            self._charged_at.pop((namespace, name), None)
        else:
            self._charged_at[namespace, name] = event.sequence
        self._agenda.mark(quota_subject(view.tree, name))

    def _end_quota(self, namespace: str, name: str) -> None:
        self._charged_at.pop((namespace, name), None)
        self._declared.drop(namespace, name)

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
            self._offer(node)
            return
        document = event.data.object
        try:
            self._nodes.declare(node, counted_node(document), declared_ready(document))
        except msgspec.DecodeError:
            self._nodes.declare(node, None)
            raise
        finally:
            self._offer(node)

    def _node_fact(self, event: Event, node: str) -> None:
        self._newest_node = max(self._newest_node, event.sequence)
        if isinstance(event.data, ExecutorStatus):
            self._nodes.report(node, None if event.tombstone else event.data)
        elif isinstance(event.data, NodeResources):
            self._nodes.overcommit(node, None if event.tombstone else event.data)
        elif isinstance(event.data, NodeCondition):
            self._nodes.judge(node, None if event.tombstone else event.data)
        self._offer(node)

    def _offer(self, node: str) -> None:
        if self._profiles:
            self._profiles.offer(node, self._nodes.offer(node))

    def _on_node(self, event: Event, pod: PodKey) -> None:
        data, sequence = event.data, event.sequence
        if sequence > self._newest_pod:
            self._newest_pod = sequence
        if event.tombstone:
            self._pods.drop_on_node(event.subject, pod)
        elif isinstance(data, RunStatus):
            self._pods.store_on_node(event.subject, pod, OnNode(data.uid, False, data.phase.terminal, sequence))
        elif isinstance(data, Placement):
            ending = data.phase is not _BOUND
            fact = OnNode(
                data.uid,
                data.phase is not _GONE,
                False,
                sequence,
                data.bound_at,
                ending,
                resized=data.resize is not None,
                object_sequence=data.object_sequence,
                requests=self._pods.shared(data.requests),
            )
            self._pods.store_on_node(event.subject, pod, fact)

    def _end(self, parts: tuple[str, ...]) -> None:
        match parts:
            case (_, "scheduling.sigs.k8s.io", "elasticquotas", namespace, name):
                self._end_quota(namespace, name)
            case (_, "core", "pods", namespace, name):
                self._pods.drop_pod((namespace, name))
            case (_, "quota.koordinator.sh", "elasticquotaprofiles", namespace, name):
                self._profiles.declare((namespace, name), None, 0)

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(self, now: datetime) -> Sequence[Event]:
        """Return new and changed quota events by subject, and tombstones for quotas that are no longer declared."""
        self._pods.expire(now)
        self._solve()
        events: list[Event] = []
        for subject in self._agenda.due(now):
            published = self._published.get(subject)
            quota = self._content(subject, published, now)
            due = publish_at(quota, published, self.settle) if quota is not None else EPOCH if published is not None else NEVER
            if due > now:
                self._agenda.settle(subject, min(due, self._streak_due(subject, published)))
            elif quota is not None:
                events.append(Event(subject=subject, data=quota, causes=self._causes(quota, published)))
            elif published is not None:
                events.append(ending(subject, published.quota, refs((self._newest_quota,))))
            if len(events) == MAX_EVENTS_PER_DECISION:
                break
        return events

    def quotas(self) -> Iterable[QuotaRuntime]:
        """Return all quotas as of the last decision; from any thread."""
        return tuple(self._desired.values())

    @property
    def pods(self) -> PodDemands:
        """What pods request and hold, by quota, as folded."""
        return self._pods

    def profiled(self) -> Iterable[ProfiledQuota]:
        """Return the root quotas that profiles define, as of the last decision; from any thread."""
        return tuple(self._profiled.values())

    def requests(self, _: datetime) -> Sequence[Request]:
        """Return the requested evictions without an answer."""
        return list(self._revoking.requests(self._pods)) if self.revocation.enabled else ()

    def _content(self, subject: str, published: PublishedQuota | None, now: datetime) -> Desired | None:
        """Return the content of the subject's event; None for no event."""
        quota = self._desired.get(subject)
        if quota is None:
            return self._profiled.get(subject)
        charged_at = self._charged_at.get((quota.namespace, quota.quota), 0)
        if charged_at:
            quota = msgspec.structs.replace(quota, charged_at=charged_at)
        if not self.revocation.watches(quota):
            return quota
        outstanding, pods = self._revoking.outstanding(subject, self._pods), partial(self._pods.held, quota.quota)
        return self.revocation.continued(quota, runtime_of(published), outstanding, pods, now)

    def _streak_due(self, subject: str, published: PublishedQuota | None) -> datetime:
        quota = self._desired.get(subject)
        return self.revocation.due_at(quota, runtime_of(published)) if quota is not None else NEVER

    def _causes(self, quota: Desired, published: PublishedQuota | None) -> tuple[str, ...]:
        since = published.newest_cause if published is not None else 0
        if isinstance(quota, ProfiledQuota):
            of_profile = self._profiles.sequence(quota.namespace, quota.profile)
            return refs((of_profile, self._newest_node if self._newest_node > since else 0))
        own = self._declared.sequence(quota.quota, quota.namespace)
        # Scanning the quota's pods is needed only if some pod event is newer.
        own_pod = self._pods.newest(quota.quota) if self._newest_pod > since else 0
        candidates = (self._newest_quota, self._newest_node, own_pod, self._newest_pod)
        return refs((own, *(sequence for sequence in candidates if sequence > since)))

    def _solve(self) -> None:
        """Recompute the desired events from quotas, profiles, nodes and pods."""
        if self._profiles.version != self._profiled_for:
            self._profiled_for = self._profiles.version
            ended, self._profiled = self._profiled, self._profiles.desired()
            self._agenda.mark_all((*ended, *self._profiled))
        if self._declared.changed:
            self._read_quotas()
        demands = self._pods.demands
        demands.offer(self._nodes.total)
        if demands.version == self._solved_for:
            return
        self._solved_for = demands.version
        for tree, solved in demands.forest.changed():
            subject = quota_subject(tree, solved.name)
            quota = runtime_event(tree, self._views.get(solved.name), solved.name in self._duplicated, solved)
            if quota != self._desired.get(subject):
                self._desired[subject] = quota
                self._agenda.mark(subject)

    def _read_quotas(self) -> None:
        """Begin with other trees: the desired events of all quotas are recomputed."""
        quotas = self._declared.quotas()
        self._views, self._duplicated = {**quotas, **with_built_in(quotas)}, self._declared.duplicated()
        self._pods.demands.declare(quotas)
        self._declared.changed = False
        self._agenda.mark_all(self._desired)
        self._desired = {}

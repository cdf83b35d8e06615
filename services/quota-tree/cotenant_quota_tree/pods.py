"""Requests and usage of pods by quota: the fold over pod objects, placements and runs.

In: those events, and the quota of each pod. Out: per quota the sums over its own pods. A pod counts while its object exists
and its processes have not ended for good; it is assigned while a placement with its uid exists (bound or terminating), or
its object names a node. A placement or run of another uid under the same name is ignored. A pod's request is reduced to the
dimensions of its quota's max: a quota does not limit a resource that it does not list.

The sums are integers, updated by adding and subtracting whole pods, so they always equal sums from scratch. When the quotas
change, every pod's quota is looked up again. Without any quota nothing is counted.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from heapq import heappop, heappush

import msgspec

from cotenant.api.objects.pod import Pod, PodSpec
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.api.times import parse_rfc3339
from cotenant.domain.quota.membership import QuotaIndex, is_preemptible
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.quota.sums import OwnPods, PodSums
from cotenant.model.amounts import LARGEST_AMOUNT, Amounts, masked, minus, parse_amounts, without_zeros
from cotenant.model.by_identity import by_identity
from cotenant.model.times import EPOCH
from cotenant_quota_tree.revocation import HeldPod
from cotenant_quota_tree.terminating import Terminating, ignored_after

PodKey = tuple[str, str]
"""Namespace and name."""

ENDED_PHASES = frozenset({"Succeeded", "Failed"})


class _Charge(msgspec.Struct, frozen=True):
    """A pod's charge: its quota, and its request in the dimensions of that quota's max."""

    quota: str
    request: dict[str, int]
    preemptible: bool


class _PodFacts(msgspec.Struct, frozen=True):
    uid: str
    quota_label: str
    preemptible: bool
    request: Amounts
    names_node: bool
    ended: bool
    sequence: int
    priority: int
    deleting: bool
    ignored_after: datetime | None


class OnNode(msgspec.Struct, frozen=True):
    """The state of the pod with this uid by a placement or run: assigned, ended for good, or neither. By a placement: since
    when, and whether it is ending."""

    uid: str
    assigned: bool
    ended: bool
    sequence: int
    bound_at: datetime | None = None
    ending: bool = False


class _Pod:
    """The folded events of one pod name, and the charge in the sums."""

    __slots__ = ("asked", "charge", "facts", "held", "on_nodes")

    def __init__(self) -> None:
        self.facts: _PodFacts | None = None
        """Facts from the object, while it exists."""
        self.charge: _Charge | None = None
        """None without an object, and for a pod without a quota."""
        self.on_nodes: dict[str, OnNode] = {}
        """States by the subject of their placement or run."""
        self.asked: _Charge | None = None
        self.held: _Charge | None = None
        """The parts of it that are counted as request and as used."""


class PodDemands:
    """A mutable fold. The owner calls `resolve` whenever the quotas changed."""

    def __init__(self, terminating: Terminating = Terminating.COUNT, *, ignore_overhead: bool = False) -> None:
        """`terminating`: whether terminating pods count; `ignore_overhead`: what a pod's runtime class adds does not count."""
        self._terminating = terminating
        self._ignore_overhead = ignore_overhead
        self._now = EPOCH
        self._expiring: list[tuple[datetime, PodKey]] = []
        """A heap of terminating pods by the time after which they do not count. Bound: an entry per version of a terminating
        pod's object until that time."""
        self._pods: dict[PodKey, _Pod] = {}
        self._index: QuotaIndex | None = None
        self._max: Mapping[str, Amounts] = {}
        self._sums: defaultdict[str, PodSums] = defaultdict(PodSums)
        self._members: defaultdict[str, set[PodKey]] = defaultdict(set)
        self.version = 0
        """Increases with every event that changed a sum."""

    # -- folding -------------------------------------------------------------------------------------------------

    def store_pod(self, key: PodKey, pod: Pod, sequence: int) -> None:
        """Fold the pod's object. Raises QuantityError for a malformed request."""
        meta, labels = pod.metadata, pod.metadata.labels
        facts = _PodFacts(
            uid=meta.uid,
            quota_label=labels.get(LABEL_QUOTA, ""),
            preemptible=is_preemptible(labels),
            request=counted_request(pod.spec, ignore_overhead=self._ignore_overhead),
            names_node=bool(pod.spec.node_name),
            ended=pod.status.phase in ENDED_PHASES,
            sequence=sequence,
            priority=pod.spec.priority or 0,
            deleting=meta.deletion_timestamp is not None,
            ignored_after=ignored_after(
                parse_rfc3339(meta.deletion_timestamp), meta.deletion_grace_period_seconds, self._terminating
            ),
        )
        if facts.ignored_after is not None and facts.ignored_after >= self._now:
            heappush(self._expiring, (facts.ignored_after, key))
        known = self._pods.get(key)
        if known is None:
            known = self._pods[key] = _Pod()
        known.facts, known.charge = facts, self._charge(key, facts)
        self._recount(key, known)

    def drop_pod(self, key: PodKey) -> None:
        """Fold the deletion of the pod's object."""
        known = self._pods.get(key)
        if known is not None:
            known.facts = known.charge = None
            self._recount(key, known)
            self._forget_if_empty(key, known)

    def store_on_node(self, subject: str, key: PodKey, fact: OnNode) -> None:
        """Fold a placement or run of the pod; a run counts once it has ended for good."""
        known = self._pods.get(key)
        if known is None:
            known = self._pods[key] = _Pod()
        before = known.on_nodes.get(subject)
        known.on_nodes[subject] = fact
        if fact.assigned or fact.ended or (before is not None and (before.assigned or before.ended)):
            self._recount(key, known)

    def drop_on_node(self, subject: str, key: PodKey) -> None:
        """Fold the removal of a placement or run."""
        known = self._pods.get(key)
        if known is not None and known.on_nodes.pop(subject, None) is not None:
            self._recount(key, known)
            self._forget_if_empty(key, known)

    def _forget_if_empty(self, key: PodKey, known: _Pod) -> None:
        if known.facts is None and not known.on_nodes:
            del self._pods[key]

    # -- sums ----------------------------------------------------------------------------------------------------

    def resolve(self, index: QuotaIndex | None, maxima: Mapping[str, Amounts]) -> None:
        """Look up every pod's quota again after a change of the quotas. `index`: None without quotas; `maxima`: max by quota
        name."""
        self._index, self._max = index, maxima
        for key, known in self._pods.items():
            if known.facts is not None:
                known.charge = self._charge(key, known.facts)
                self._recount(key, known)

    def expire(self, now: datetime) -> None:
        """Stop counting terminating pods whose time is over by now."""
        self._now = max(self._now, now)
        while self._expiring and self._expiring[0][0] < self._now:
            _, key = heappop(self._expiring)
            known = self._pods.get(key)
            if known is not None:
                self._recount(key, known)

    @property
    def own(self) -> Mapping[str, OwnPods]:
        """The sums by quota name."""
        return {quota: sums.own for quota, sums in self._sums.items()}

    def held(self, quota: str) -> Iterator[HeldPod]:
        """Walk the quota's own assigned pods."""
        for key in sorted(self._members.get(quota, ())):
            known = self._pods[key]
            pod, charge = known.facts, known.held
            if pod is None or charge is None:
                continue
            placed = [fact for fact in known.on_nodes.values() if fact.uid == pod.uid and fact.assigned]
            yield HeldPod(
                namespace=key[0],
                name=key[1],
                uid=pod.uid,
                priority=pod.priority,
                bound_at=min((fact.bound_at for fact in placed if fact.bound_at is not None), default=None),
                request=charge.request,
                preemptible=charge.preemptible,
                ending=pod.deleting or any(fact.ending for fact in placed),
            )

    def is_live(self, key: PodKey, uid: str) -> bool:
        """Return whether a pod exists, uses its quota, and is not ending already."""
        known = self._pods.get(key)
        pod = known.facts if known is not None else None
        return known is not None and pod is not None and pod.uid == uid and known.held is not None and not pod.deleting

    def newest(self, quota: str) -> int:
        """The highest sequence among the events of the quota's own pods, 0 without any."""
        return max((self._sequence(self._pods[key]) for key in self._members.get(quota, ())), default=0)

    def _sequence(self, known: _Pod) -> int:
        pod = known.facts
        assert pod is not None
        return max(pod.sequence, *(fact.sequence for fact in known.on_nodes.values() if fact.uid == pod.uid), 0)

    def _charge(self, key: PodKey, pod: _PodFacts) -> _Charge | None:
        if self._index is None:
            return None
        membership = self._index.associate(key[0], {LABEL_QUOTA: pod.quota_label} if pod.quota_label else {})
        if membership is None:
            return None
        request = masked(pod.request, self._max.get(membership.quota, {}))
        return _Charge(membership.quota, request, pod.preemptible)

    def _recount(self, key: PodKey, known: _Pod) -> None:
        """Update the sums: the pod counts as request until it has ended, and as used once it is assigned."""
        pod, charge, asked = known.facts, known.charge, known.asked
        if charge is None and asked is None:
            return  # an uncounted pod has no usage
        assigned = False
        if pod is not None and charge is not None:
            assigned, ended = pod.names_node, pod.ended
            for fact in known.on_nodes.values():
                if fact.uid == pod.uid:
                    assigned, ended = assigned or fact.assigned, ended or fact.ended
            if ended or (pod.ignored_after is not None and self._now > pod.ignored_after):
                charge = None
        holds = charge if assigned else None
        held = known.held
        if asked != charge:
            self.version += 1
            known.asked = charge
            if asked is not None:
                self._sums[asked.quota].ask(asked.request, asked.preemptible, -1)
                self._members[asked.quota].discard(key)
            if charge is not None:
                self._sums[charge.quota].ask(charge.request, charge.preemptible)
                self._members[charge.quota].add(key)
        if held != holds:
            self.version += 1
            known.held = holds
            if held is not None:
                self._sums[held.quota].hold(held.request, held.preemptible, -1)
            if holds is not None:
                self._sums[holds.quota].hold(holds.request, holds.preemptible)


def counted_request(spec: PodSpec, *, ignore_overhead: bool = False) -> Amounts:
    """Return a pod's request in the quotas' units. Raises QuantityError."""
    if not (ignore_overhead and spec.overhead):
        return _request(spec)
    return without_zeros(minus(_request(spec), parse_amounts(spec.overhead)))


@by_identity
def _request(spec: PodSpec) -> dict[str, int]:
    """A pod's request in the quotas' units."""
    return {resource: min(amount, LARGEST_AMOUNT) for resource, amount in pod_requests(Pod(spec=spec)).items()}

"""Requests and usage of pods by quota: the fold over pod objects, placements and runs.

In: those events. Out: requests and usage of pods by quota, and the pods of each. A pod counts while its object exists
and its processes have not ended for good; it is assigned while a placement with its uid exists (bound or terminating), or
its object names a node. A placement or run of another uid under the same name is ignored. A pod's request is reduced to the
dimensions of its quota's max: a quota does not limit a resource that it does not list.

Pods are counted by kind (`cotenant.domain.quota.trees.demands`), whatever quotas there are.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from heapq import heappop, heappush

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.times import parse_rfc3339
from cotenant.domain.quota.membership import is_preemptible
from cotenant.domain.quota.trees.demands import (
    ENDED_PHASES,
    ChargeClass,
    Demands,
    counted_request,
    kind_of,
    placed_request,
)
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.trees.terminating import ignored_after
from cotenant.domain.resizing import counts_otherwise
from cotenant.model.quantities import Scalar
from cotenant.model.times import EPOCH
from cotenant_quota_tree.revocation import HeldPod

PodKey = tuple[str, str]
"""Namespace and name."""

REQUESTS_SHARED = 4096
"""Different requests of placements that pods share; beyond, the cache is cleared."""


class _PodFacts(msgspec.Struct, frozen=True):
    uid: str
    kind: ChargeClass
    names_node: bool
    ended: bool
    sequence: int
    priority: int
    deleting: bool
    ignored_after: datetime | None
    overhead: dict[str, Scalar]
    """What its requests by a placement have too much; empty where overhead counts."""


class OnNode(msgspec.Struct, frozen=True):
    """The state of the pod with this uid by a placement or run: assigned, ended for good, or neither. By a placement: since
    when, and whether it is ending."""

    uid: str
    assigned: bool
    ended: bool
    sequence: int
    bound_at: datetime | None = None
    ending: bool = False
    resized: bool = False
    """It is being resized in place."""
    object_sequence: int = 0
    requests: tuple[tuple[str, int], ...] = ()
    """Its placement's, shared by pods that request the same."""


class _Pod:
    """The folded events of one pod name, and the charge in the sums."""

    __slots__ = ("asked", "facts", "held", "newest", "on_nodes")

    def __init__(self) -> None:
        self.facts: _PodFacts | None = None
        """Facts from the object, while it exists."""
        self.on_nodes: dict[str, OnNode] = {}
        """States by the subject of their placement or run."""
        self.asked: ChargeClass | None = None
        self.held: ChargeClass | None = None
        """The kinds as which it is counted as request and as used."""
        self.newest = 0
        """The highest sequence among its events."""


class PodDemands:
    """A mutable fold."""

    def __init__(self, rules: QuotaRules) -> None:
        self._rules = rules
        self.demands = Demands(rules)
        self._now = EPOCH
        self._expiring: list[tuple[datetime, PodKey]] = []
        """A heap of terminating pods by the time after which they do not count. Bound: an entry per version of a terminating
        pod's object until that time."""
        self._pods: dict[PodKey, _Pod] = {}
        self._shared: dict[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]] = {}
        self._members: dict[ChargeClass, set[PodKey]] = {}
        """The pods that are counted, by kind."""
        self._newest: dict[ChargeClass, int] = {}
        """The highest sequence among the events of a kind's pods; absent where it has to be searched."""

    # -- folding -------------------------------------------------------------------------------------------------

    def store_pod(self, key: PodKey, pod: Pod, sequence: int) -> None:
        """Fold the pod's object. Raises QuantityError for a malformed request."""
        meta, labels = pod.metadata, pod.metadata.labels
        facts = _PodFacts(
            uid=meta.uid,
            kind=kind_of(
                key[0], labels, counted_request(pod.spec, ignore_overhead=self._rules.ignore_overhead), is_preemptible(labels)
            ),
            names_node=bool(pod.spec.node_name),
            ended=pod.status.phase in ENDED_PHASES,
            sequence=sequence,
            priority=pod.spec.priority or 0,
            deleting=meta.deletion_timestamp is not None,
            ignored_after=ignored_after(
                parse_rfc3339(meta.deletion_timestamp), meta.deletion_grace_period_seconds, self._rules.terminating
            ),
            overhead=pod.spec.overhead if self._rules.ignore_overhead else {},
        )
        if facts.ignored_after is not None and facts.ignored_after >= self._now:
            heappush(self._expiring, (facts.ignored_after, key))
        known = self._pods.get(key)
        if known is None:
            known = self._pods[key] = _Pod()
        known.facts = facts
        self._recount(key, known)

    def drop_pod(self, key: PodKey) -> None:
        """Fold the deletion of the pod's object."""
        known = self._pods.get(key)
        if known is not None:
            known.facts = None
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
        elif known.asked is not None:
            self._note_newest(known, known.asked)

    def drop_on_node(self, subject: str, key: PodKey) -> None:
        """Fold the removal of a placement or run."""
        known = self._pods.get(key)
        if known is not None and known.on_nodes.pop(subject, None) is not None:
            self._recount(key, known)
            self._forget_if_empty(key, known)

    def _forget_if_empty(self, key: PodKey, known: _Pod) -> None:
        if known.facts is None and not known.on_nodes:
            del self._pods[key]

    def shared(self, requests: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
        """Return a placement's requests as an object that equal ones share."""
        amounts = tuple(requests.items())
        if len(self._shared) >= REQUESTS_SHARED:
            self._shared.clear()
        return self._shared.setdefault(amounts, amounts)

    @staticmethod
    def _kind(known: _Pod, pod: _PodFacts) -> ChargeClass:
        """The kind as which the pod counts: by its object, or by its placement (`counts_otherwise`)."""
        for fact in known.on_nodes.values():
            if fact.uid == pod.uid and fact.assigned and counts_otherwise(fact.resized, fact.object_sequence, pod.sequence):
                request = placed_request(dict(fact.requests), pod.overhead)
                amounts = tuple(sorted((resource, amount) for resource, amount in request.items() if amount))
                return msgspec.structs.replace(pod.kind, request=amounts)
        return pod.kind

    # -- sums ----------------------------------------------------------------------------------------------------

    def expire(self, now: datetime) -> None:
        """Stop counting terminating pods whose time is over."""
        self._now = max(self._now, now)
        while self._expiring and self._expiring[0][0] < self._now:
            _, key = heappop(self._expiring)
            known = self._pods.get(key)
            if known is not None:
                self._recount(key, known)

    def held(self, quota: str) -> Iterator[HeldPod]:
        """Walk the quota's own assigned pods."""
        for key in sorted(self._of(quota)):
            known = self._pods[key]
            pod, kind = known.facts, known.held
            if pod is None or kind is None:
                continue
            placed = [fact for fact in known.on_nodes.values() if fact.uid == pod.uid and fact.assigned]
            yield HeldPod(
                namespace=key[0],
                name=key[1],
                uid=pod.uid,
                priority=pod.priority,
                bound_at=min((fact.bound_at for fact in placed if fact.bound_at is not None), default=None),
                request=self.demands.request_of(kind),
                preemptible=kind.preemptible,
                ending=pod.deleting or any(fact.ending for fact in placed),
            )

    def counted(self, quota: str) -> Iterator[tuple[PodKey, bool, dict[str, int]]]:
        """Walk the quota's own pods: whether each is assigned, and what it counts as in the resources of the quota's max."""
        for key in sorted(self._of(quota)):
            known = self._pods[key]
            assert known.asked is not None
            yield key, known.held is not None, self.demands.request_of(known.asked)

    def is_live(self, key: PodKey, uid: str) -> bool:
        """Return whether a pod exists, uses its quota, and is not ending already."""
        known = self._pods.get(key)
        pod = known.facts if known is not None else None
        return known is not None and pod is not None and pod.uid == uid and known.held is not None and not pod.deleting

    def newest(self, quota: str) -> int:
        """The highest sequence among the events of the quota's own pods, 0 without any."""
        return max((self._newest_of(kind) for kind in self.demands.kinds_of(quota)), default=0)

    def _newest_of(self, kind: ChargeClass) -> int:
        newest = self._newest.get(kind)
        if newest is None:
            newest = self._newest[kind] = max((self._pods[key].newest for key in self._members.get(kind, ())), default=0)
        return newest

    def _note_newest(self, known: _Pod, before: ChargeClass | None) -> None:
        """Keep the highest sequence right of the kind as which a pod was counted, and of that as which it is counted now."""
        pod, kind, was = known.facts, known.asked, known.newest
        if kind is not None and pod is not None:
            known.newest = max(pod.sequence, *(fact.sequence for fact in known.on_nodes.values() if fact.uid == pod.uid), 0)
            highest = self._newest.get(kind)
            if highest is not None and known.newest >= highest:
                self._newest[kind] = known.newest
                if before == kind:
                    return
        if before is not None and was == self._newest.get(before):
            del self._newest[before]

    def _of(self, quota: str) -> Iterator[PodKey]:
        for kind in self.demands.kinds_of(quota):
            yield from self._members.get(kind, ())

    def _recount(self, key: PodKey, known: _Pod) -> None:
        """The pod counts as request until it has ended, and as used once it is assigned."""
        pod = known.facts
        kind: ChargeClass | None = None
        assigned = False
        if pod is not None:
            assigned, ended = pod.names_node, pod.ended
            for fact in known.on_nodes.values():
                if fact.uid == pod.uid:
                    assigned, ended = assigned or fact.assigned, ended or fact.ended
            if not (ended or (pod.ignored_after is not None and self._now > pod.ignored_after)):
                kind = self._kind(known, pod)
        asked, held, holds = known.asked, known.held, kind if assigned else None
        known.asked, known.held = kind, holds
        self._note_newest(known, asked)
        if asked == kind and held == holds:
            return
        # Add before removing, so that a kind of one pod need not be created again.
        for now, before, as_request in ((kind, asked, 1), (holds, held, 0)):
            if now != before and now is not None:
                self.demands.count(now, as_request, 1 - as_request)
        for now, before, as_request in ((kind, asked, 1), (holds, held, 0)):
            if now != before and before is not None:
                self.demands.count(before, -as_request, as_request - 1)
        if asked != kind:
            if kind is not None:
                self._members.setdefault(kind, set()).add(key)
            if asked is not None:
                keys = self._members[asked]
                keys.discard(key)
                if not keys:
                    del self._members[asked]

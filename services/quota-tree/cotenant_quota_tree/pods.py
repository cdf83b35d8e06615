"""What pods ask for and hold, by quota: the fold over pod objects, placements and runs.

In: those facts, and which quota a pod belongs to. Out: per quota the sums over its own pods. A pod counts as soon as
its object is there and until it is gone or its processes have ended for good; it is assigned while a placement with
its uid exists (bound or terminating), or its object names a node itself. A placement or run of another uid under the
same name counts for nothing. A pod's request is reduced to the dimensions of its quota's max: a quota says nothing
about a resource that it does not list.

The sums are integers kept by adding and taking away whole pods, so they always equal the sums from scratch. When the
quotas change, every pod's membership is looked up again. While there is no quota, nothing is counted.
"""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from cotenant.api.objects.pod import Pod, PodSpec
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.quota.membership import QuotaIndex, is_preemptible
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.quota.sums import OwnPods, PodSums
from cotenant.model.amounts import LARGEST_AMOUNT, Amounts, masked
from cotenant.model.by_identity import by_identity

PodKey = tuple[str, str]
"""Namespace and name."""

ENDED_PHASES = frozenset({"Succeeded", "Failed"})


class _Claim(msgspec.Struct, frozen=True):
    """Which quota counts a pod, and for how much: its request in the dimensions of that quota's max."""

    quota: str
    request: dict[str, int]
    preemptible: bool


class _PodFacts(msgspec.Struct, frozen=True):
    uid: str
    quota_label: str
    preemptible: bool
    request: dict[str, int]
    names_node: bool
    ended: bool
    sequence: int


class OnNode(msgspec.Struct, frozen=True):
    """What a placement or a run says of the pod with this uid: that it is assigned, that it has ended for good, or neither."""

    uid: str
    assigned: bool
    ended: bool
    sequence: int


class _Pod:
    """All that is known of the pods of one name, and what is counted of them."""

    __slots__ = ("asked", "claim", "facts", "held", "on_nodes")

    def __init__(self) -> None:
        self.facts: _PodFacts | None = None
        """What the object says, while there is one."""
        self.claim: _Claim | None = None
        """None without an object, and where no quota governs it."""
        self.on_nodes: dict[str, OnNode] = {}
        """What placements and runs say, by their subjects."""
        self.asked: _Claim | None = None
        self.held: _Claim | None = None
        """What is counted of it as asked for, and as used."""


class PodDemands:
    """Mutable; a fold. `resolve` is given by the owner whenever the quotas changed."""

    def __init__(self) -> None:
        self._pods: dict[PodKey, _Pod] = {}
        self._index: QuotaIndex | None = None
        self._max: Mapping[str, Amounts] = {}
        self._sums: defaultdict[str, PodSums] = defaultdict(PodSums)
        self._members: defaultdict[str, set[PodKey]] = defaultdict(set)
        self.version = 0
        """Grows with every fact that changed a sum."""

    # -- facts ---------------------------------------------------------------------------------------------------

    def store_pod(self, key: PodKey, pod: Pod, sequence: int) -> None:
        """The pod's object as it is now. Raises QuantityError for a malformed request."""
        labels = pod.metadata.labels
        facts = _PodFacts(
            uid=pod.metadata.uid,
            quota_label=labels.get(LABEL_QUOTA, ""),
            preemptible=is_preemptible(labels),
            request=_request(pod.spec),
            names_node=bool(pod.spec.node_name),
            ended=pod.status.phase in ENDED_PHASES,
            sequence=sequence,
        )
        known = self._pods.get(key)
        if known is None:
            known = self._pods[key] = _Pod()
        known.facts, known.claim = facts, self._claim(key, facts)
        self._recount(key, known)

    def drop_pod(self, key: PodKey) -> None:
        """The pod's object is gone."""
        known = self._pods.get(key)
        if known is not None:
            known.facts = known.claim = None
            self._recount(key, known)
            self._forget_if_empty(key, known)

    def store_on_node(self, subject: str, key: PodKey, fact: OnNode) -> None:
        """What a placement or a run says of the pod; a run counts once it has ended for good."""
        known = self._pods.get(key)
        if known is None:
            known = self._pods[key] = _Pod()
        before = known.on_nodes.get(subject)
        known.on_nodes[subject] = fact
        if fact.assigned or fact.ended or (before is not None and (before.assigned or before.ended)):
            self._recount(key, known)

    def drop_on_node(self, subject: str, key: PodKey) -> None:
        """A placement or run is gone."""
        known = self._pods.get(key)
        if known is not None and known.on_nodes.pop(subject, None) is not None:
            self._recount(key, known)
            self._forget_if_empty(key, known)

    def _forget_if_empty(self, key: PodKey, known: _Pod) -> None:
        if known.facts is None and not known.on_nodes:
            del self._pods[key]

    # -- sums ----------------------------------------------------------------------------------------------------

    def resolve(self, index: QuotaIndex | None, maxima: Mapping[str, Amounts]) -> None:
        """The quotas changed: look up every pod's quota again. `index`: None where there are none; `maxima`: max by quota
        name."""
        self._index, self._max = index, maxima
        for key, known in self._pods.items():
            if known.facts is not None:
                known.claim = self._claim(key, known.facts)
                self._recount(key, known)

    @property
    def own(self) -> Mapping[str, OwnPods]:
        """The sums by quota name."""
        return {quota: sums.own for quota, sums in self._sums.items()}

    def newest(self, quota: str) -> int:
        """The highest sequence among the facts of the quota's own pods, 0 where it has none."""
        return max((self._sequence(self._pods[key]) for key in self._members.get(quota, ())), default=0)

    def _sequence(self, known: _Pod) -> int:
        pod = known.facts
        assert pod is not None
        return max(pod.sequence, *(fact.sequence for fact in known.on_nodes.values() if fact.uid == pod.uid), 0)

    def _claim(self, key: PodKey, pod: _PodFacts) -> _Claim | None:
        if self._index is None:
            return None
        membership = self._index.associate(key[0], {LABEL_QUOTA: pod.quota_label} if pod.quota_label else {})
        if membership is None:
            return None
        request = masked(pod.request, self._max.get(membership.quota, {}))
        return _Claim(membership.quota, request, pod.preemptible)

    def _recount(self, key: PodKey, known: _Pod) -> None:
        """Count the pod as what it asks for until it has ended, and what it holds once it is assigned."""
        pod, claim, asked = known.facts, known.claim, known.asked
        if claim is None and asked is None:
            return  # it holds nothing either
        assigned = False
        if pod is not None and claim is not None:
            assigned, ended = pod.names_node, pod.ended
            for fact in known.on_nodes.values():
                if fact.uid == pod.uid:
                    assigned, ended = assigned or fact.assigned, ended or fact.ended
            if ended:
                claim = None
        holds = claim if assigned else None
        held = known.held
        if asked != claim:
            self.version += 1
            known.asked = claim
            if asked is not None:
                self._sums[asked.quota].ask(asked.request, asked.preemptible, -1)
                self._members[asked.quota].discard(key)
            if claim is not None:
                self._sums[claim.quota].ask(claim.request, claim.preemptible)
                self._members[claim.quota].add(key)
        if held != holds:
            self.version += 1
            known.held = holds
            if held is not None:
                self._sums[held.quota].hold(held.request, held.preemptible, -1)
            if holds is not None:
                self._sums[holds.quota].hold(holds.request, holds.preemptible)


@by_identity
def _request(spec: PodSpec) -> dict[str, int]:
    """What a pod asks for, as quotas count it."""
    return {resource: min(amount, LARGEST_AMOUNT) for resource, amount in pod_requests(Pod(spec=spec)).items()}

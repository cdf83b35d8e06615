"""What pods ask for and hold, by quota: the fold over pod objects, placements and runs.

In: those facts, and which quota a pod belongs to. Out: per quota the sums over its own pods. A pod counts as soon as
its object is there and until it is gone or its processes have ended for good; it is assigned while a placement with
its uid exists (bound or terminating), or its object names a node itself. A placement or run of another uid under the
same name counts for nothing. A pod's request is reduced to the dimensions of its quota's max: a quota says nothing
about a resource that it does not list.

The sums are integers kept by adding and taking away whole pods, so they always equal the sums from scratch. When the
quotas change, every pod's membership is looked up anew.
"""

from collections.abc import Mapping

import msgspec

from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.runs import RunStatus
from cotenant.objects.pod import Pod, pod_requests
from cotenant.quota.amounts import LARGEST_AMOUNT, Amounts, masked
from cotenant.quota.membership import QuotaIndex, is_preemptible
from cotenant.quota.names import LABEL_QUOTA
from cotenant.quota.sums import OwnPods, PodDemand, PodSums

PodKey = tuple[str, str]
"""Namespace and name."""

ENDED_PHASES = frozenset({"Succeeded", "Failed"})


class _Claim(msgspec.Struct, frozen=True):
    """Which quota counts a pod, and for how much: its request in the dimensions of that quota's max."""

    quota: str
    request: dict[str, int]


class _PodFacts(msgspec.Struct, frozen=True):
    uid: str
    quota_label: str
    preemptible: bool
    request: dict[str, int]
    names_node: bool
    ended: bool
    sequence: int


class _OnNode(msgspec.Struct, frozen=True):
    """A placement or a run of a pod, by the subject that says it."""

    pod: PodKey
    uid: str
    counts: bool
    sequence: int


class PodDemands:
    """Mutable; a fold. `resolve` is given by the owner whenever the quotas changed."""

    def __init__(self) -> None:
        self._pods: dict[PodKey, _PodFacts] = {}
        self._placements: dict[PodKey, dict[str, _OnNode]] = {}
        self._runs: dict[PodKey, dict[str, _OnNode]] = {}
        self._by_subject: dict[str, tuple[dict[PodKey, dict[str, _OnNode]], PodKey]] = {}
        self._index: QuotaIndex = QuotaIndex(())
        self._max: Mapping[str, Amounts] = {}
        self._claims: dict[PodKey, _Claim | None] = {}
        """Of each pod; None where no quota governs it."""
        self._counted: dict[PodKey, tuple[str, PodDemand]] = {}
        self._sums: dict[str, PodSums] = {}
        self._members: dict[str, set[PodKey]] = {}
        self.version = 0
        """Grows with every fact that changed a sum."""

    # -- facts ---------------------------------------------------------------------------------------------------

    def store_pod(self, key: PodKey, pod: Pod, sequence: int) -> None:
        """The pod's object as it is now. Raises QuantityError for a malformed request."""
        request = {resource: min(amount, LARGEST_AMOUNT) for resource, amount in pod_requests(pod).items()}
        self._pods[key] = _PodFacts(
            uid=pod.metadata.uid,
            quota_label=pod.metadata.labels.get(LABEL_QUOTA, ""),
            preemptible=is_preemptible(pod.metadata.labels),
            request=request,
            names_node=bool(pod.spec.node_name),
            ended=pod.status.phase in ENDED_PHASES,
            sequence=sequence,
        )
        self._claims[key] = self._claim(key)
        self._recount(key)

    def drop_pod(self, key: PodKey) -> None:
        """The pod's object is gone."""
        self._pods.pop(key, None)
        self._claims.pop(key, None)
        self._recount(key)

    def store_placement(self, subject: str, placement: Placement, sequence: int) -> None:
        """The pod as a node shall have it."""
        here = placement.phase is not PlacementPhase.GONE
        fact = _OnNode((placement.namespace, placement.name), placement.uid, here, sequence)
        self._store(self._placements, subject, fact)

    def store_run(self, subject: str, run: RunStatus, sequence: int) -> None:
        """What became of the pod on its node; counts once it has ended for good."""
        fact = _OnNode((run.namespace, run.name), run.uid, run.phase.terminal, sequence)
        self._store(self._runs, subject, fact)

    def drop(self, subject: str) -> None:
        """A placement or run is gone."""
        known = self._by_subject.pop(subject, None)
        if known is None:
            return
        facts, key = known
        on_nodes = facts[key]
        del on_nodes[subject]
        if not on_nodes:
            del facts[key]
        self._recount(key)

    def _store(self, facts: dict[PodKey, dict[str, _OnNode]], subject: str, fact: _OnNode) -> None:
        on_nodes = facts.setdefault(fact.pod, {})
        before = on_nodes.get(subject)
        on_nodes[subject] = fact
        self._by_subject[subject] = (facts, fact.pod)
        counted = before.uid if before is not None and before.counts else None
        if counted != (fact.uid if fact.counts else None):
            self._recount(fact.pod)

    # -- sums ----------------------------------------------------------------------------------------------------

    def resolve(self, index: QuotaIndex, maxima: Mapping[str, Amounts]) -> None:
        """The quotas changed: look up every pod's quota again. `maxima`: max by quota name."""
        self._index, self._max = index, maxima
        self._counted.clear()
        self._sums.clear()
        self._members.clear()
        for key in self._pods:
            self._claims[key] = self._claim(key)
            self._recount(key)

    @property
    def own(self) -> Mapping[str, OwnPods]:
        """The sums by quota name."""
        return {quota: sums.own for quota, sums in self._sums.items()}

    def newest(self, quota: str) -> int:
        """The highest sequence among the facts of the quota's own pods, 0 where it has none."""
        return max((self._sequence(key) for key in self._members.get(quota, ())), default=0)

    def _sequence(self, key: PodKey) -> int:
        uid = self._pods[key].uid
        on_nodes = (*self._placements.get(key, {}).values(), *self._runs.get(key, {}).values())
        return max(self._pods[key].sequence, *(fact.sequence for fact in on_nodes if fact.uid == uid), 0)

    def _recount(self, key: PodKey) -> None:
        before = self._counted.get(key)
        after = self._demand(key)
        if before == after:
            return
        self.version += 1
        self._counted.pop(key, None)
        if before is not None:
            self._sums[before[0]].add(before[1], -1)
            self._members[before[0]].discard(key)
        if after is not None:
            self._counted[key] = after
            self._sums.setdefault(after[0], PodSums()).add(after[1])
            self._members.setdefault(after[0], set()).add(key)

    def _claim(self, key: PodKey) -> _Claim | None:
        pod = self._pods[key]
        membership = self._index.associate(key[0], {LABEL_QUOTA: pod.quota_label} if pod.quota_label else {})
        if membership is None:
            return None
        return _Claim(membership.quota, masked(pod.request, self._max.get(membership.quota, {})))

    def _demand(self, key: PodKey) -> tuple[str, PodDemand] | None:
        pod, claim = self._pods.get(key), self._claims.get(key)
        if pod is None or claim is None or pod.ended or self._has(self._runs, key, pod.uid):
            return None
        demand = PodDemand(
            request=claim.request,
            assigned=pod.names_node or self._has(self._placements, key, pod.uid),
            preemptible=pod.preemptible,
        )
        return claim.quota, demand

    @staticmethod
    def _has(facts: Mapping[PodKey, dict[str, _OnNode]], key: PodKey, uid: str) -> bool:
        on_nodes = facts.get(key)
        return on_nodes is not None and any(fact.counts and fact.uid == uid for fact in on_nodes.values())

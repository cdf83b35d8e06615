"""What pods ask for and hold, by quota: the fold over pod objects, placements and runs.

In: those facts, and which quota a pod belongs to. Out: per quota the sums over its own pods. A pod counts as soon as
its object is there and until it is gone or its processes have ended for good; it is assigned while a placement with
its uid exists (bound or terminating), or its object names a node itself. A placement or run of another uid under the
same name counts for nothing. A pod's request is reduced to the dimensions of its quota's max: a quota says nothing
about a resource that it does not list.

The sums are integers kept by adding and taking away whole pods, so they always equal the sums from scratch. When the
quotas change, every pod's membership is looked up anew.
"""

from collections.abc import Callable, Mapping

import msgspec

from cotenant.by_identity import by_identity
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.runs import RunStatus
from cotenant.objects.pod import Pod, PodSpec, pod_requests
from cotenant.quota.amounts import LARGEST_AMOUNT, Amounts, masked
from cotenant.quota.membership import QuotaIndex, is_preemptible
from cotenant.quota.names import LABEL_QUOTA
from cotenant.quota.sums import OwnPods, PodSums

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


class _OnNode(msgspec.Struct, frozen=True):
    """What a placement or a run says of the pod with this uid: that it is assigned, that it has ended for good, or neither."""

    uid: str
    assigned: bool
    ended: bool
    sequence: int


class PodDemands:
    """Mutable; a fold. `resolve` is given by the owner whenever the quotas changed."""

    def __init__(self) -> None:
        self._pods: dict[PodKey, _PodFacts] = {}
        self._on_nodes: dict[PodKey, dict[str, _OnNode]] = {}
        """Placements and runs of a pod, by the subject that says them."""
        self._index: QuotaIndex = QuotaIndex(())
        self._max: Mapping[str, Amounts] = {}
        self._claims: dict[PodKey, _Claim | None] = {}
        """Of each pod; None where no quota governs it."""
        self._asking: dict[PodKey, _Claim] = {}
        self._holding: dict[PodKey, _Claim] = {}
        """What is counted of each pod as asked for, and as used."""
        self._sums: dict[str, PodSums] = {}
        self._members: dict[str, set[PodKey]] = {}
        self.version = 0
        """Grows with every fact that changed a sum."""

    # -- facts ---------------------------------------------------------------------------------------------------

    def store_pod(self, key: PodKey, pod: Pod, sequence: int) -> None:
        """The pod's object as it is now. Raises QuantityError for a malformed request."""
        self._pods[key] = _PodFacts(
            uid=pod.metadata.uid,
            quota_label=pod.metadata.labels.get(LABEL_QUOTA, ""),
            preemptible=is_preemptible(pod.metadata.labels),
            request=_request(pod.spec),
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

    def store_placement(self, subject: str, key: PodKey, placement: Placement, sequence: int) -> None:
        """The pod as a node shall have it."""
        here = placement.phase is not PlacementPhase.GONE
        self._store(subject, key, _OnNode(placement.uid, here, False, sequence))

    def store_run(self, subject: str, key: PodKey, run: RunStatus, sequence: int) -> None:
        """What became of the pod on its node; counts once it has ended for good."""
        self._store(subject, key, _OnNode(run.uid, False, run.phase.terminal, sequence))

    def drop(self, subject: str, key: PodKey) -> None:
        """A placement or run is gone."""
        on_nodes = self._on_nodes.get(key, {})
        if on_nodes.pop(subject, None) is None:
            return
        if not on_nodes:
            del self._on_nodes[key]
        self._recount(key)

    def _store(self, subject: str, key: PodKey, fact: _OnNode) -> None:
        on_nodes = self._on_nodes.get(key)
        if on_nodes is None:
            on_nodes = self._on_nodes[key] = {}
        before = on_nodes.get(subject)
        on_nodes[subject] = fact
        if fact.assigned or fact.ended or (before is not None and (before.assigned or before.ended)):
            self._recount(key)

    # -- sums ----------------------------------------------------------------------------------------------------

    def resolve(self, index: QuotaIndex, maxima: Mapping[str, Amounts]) -> None:
        """The quotas changed: look up every pod's quota again. `maxima`: max by quota name."""
        self._index, self._max = index, maxima
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
        pod = self._pods[key]
        return max(pod.sequence, *(fact.sequence for fact in self._on_nodes.get(key, {}).values() if fact.uid == pod.uid), 0)

    def _claim(self, key: PodKey) -> _Claim | None:
        pod = self._pods[key]
        membership = self._index.associate(key[0], {LABEL_QUOTA: pod.quota_label} if pod.quota_label else {})
        if membership is None:
            return None
        request = masked(pod.request, self._max.get(membership.quota, {}))
        return _Claim(membership.quota, request, pod.preemptible)

    def _recount(self, key: PodKey) -> None:
        """Count the pod as what it asks for until it has ended, and what it holds once it is assigned."""
        pod, claim = self._pods.get(key), self._claims.get(key)
        assigned = False
        if pod is not None and claim is not None:
            assigned, ended = pod.names_node, pod.ended
            for fact in self._on_nodes.get(key, {}).values():
                if fact.uid == pod.uid:
                    assigned, ended = assigned or fact.assigned, ended or fact.ended
            claim = claim if not ended else None
        asked, held = self._asking.get(key), self._holding.get(key)
        holds = claim if assigned else None
        if asked != claim:
            self._count(self._asking, PodSums.ask, key, asked, claim)
            if asked is not None:
                self._members[asked.quota].discard(key)
            if claim is not None:
                self._members.setdefault(claim.quota, set()).add(key)
        if held != holds:
            self._count(self._holding, PodSums.hold, key, held, holds)

    def _count(
        self,
        counted: dict[PodKey, _Claim],
        count: Callable[[PodSums, Amounts, bool, int], None],
        key: PodKey,
        before: _Claim | None,
        after: _Claim | None,
    ) -> None:
        self.version += 1
        if before is not None:
            del counted[key]
            count(self._sums[before.quota], before.request, before.preemptible, -1)
        if after is not None:
            counted[key] = after
            count(self._of(after.quota), after.request, after.preemptible, 1)

    def _of(self, quota: str) -> PodSums:
        sums = self._sums.get(quota)
        if sums is None:
            sums = self._sums[quota] = PodSums()
        return sums


@by_identity
def _request(spec: PodSpec) -> dict[str, int]:
    """What a pod asks for, as quotas count it."""
    return {resource: min(amount, LARGEST_AMOUNT) for resource, amount in pod_requests(Pod(spec=spec)).items()}

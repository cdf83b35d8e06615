"""What pods request and hold, counted by kind, and added to the quotas that they belong to.

In: pods by kind (what decides on their quota and what they are charged with), as they are counted and uncounted; the quotas.
Out: the forest, current whenever it is asked for. There are few kinds, so a new set of quotas costs a step per kind instead of
per pod, and pods of one kind that come together are added to the sums at once. The fold of the pods themselves is the
service's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from cotenant.api.objects.pod import Pod, PodSpec
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.quota.membership import NO_QUOTAS, QuotaIndex
from cotenant.domain.quota.names import LABEL_QUOTA
from cotenant.domain.quota.trees.declared import index_of, with_built_in
from cotenant.domain.quota.trees.forest import Forest
from cotenant.domain.quota.trees.rules import QuotaRules
from cotenant.domain.quota.view import ElasticQuotaView
from cotenant.model.amounts import LARGEST_AMOUNT, Amounts, masked, minus, parse_amounts, without_zeros
from cotenant.model.by_identity import by_identity
from cotenant.model.quantities import Scalar

ENDED_PHASES = frozenset({"Succeeded", "Failed"})
"""The phases of pods that have ended permanently."""


class ChargeClass(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that are charged alike. `request`: sorted by resource, without zeros."""

    namespace: str
    quota_label: str
    request: tuple[tuple[str, int], ...]
    preemptible: bool


def kind_of(namespace: str, labels: Mapping[str, str], request: Amounts, preemptible: bool) -> ChargeClass:
    """Return the kind of a pod."""
    amounts = tuple(sorted((resource, amount) for resource, amount in request.items() if amount))
    return ChargeClass(namespace, labels.get(LABEL_QUOTA, ""), amounts, preemptible)


def counted_request(spec: PodSpec, *, ignore_overhead: bool = False) -> Amounts:
    """Return a pod's request in the quotas' units. Raises QuantityError."""
    if not (ignore_overhead and spec.overhead):
        return _request(spec)
    return without_zeros(minus(_request(spec), parse_amounts(spec.overhead)))


def placed_request(requests: Mapping[str, int], overhead: Mapping[str, Scalar]) -> Amounts:
    """Return the request of a pod by its placement, without this overhead (empty to count it). Raises QuantityError."""
    amounts = {resource: min(amount, LARGEST_AMOUNT) for resource, amount in requests.items()}
    return without_zeros(minus(amounts, parse_amounts(overhead))) if overhead else amounts


@by_identity
def _request(spec: PodSpec) -> dict[str, int]:
    """A pod's request in the quotas' units."""
    return {resource: min(amount, LARGEST_AMOUNT) for resource, amount in pod_requests(Pod(spec=spec)).items()}


class _Counted(msgspec.Struct, gc=False):
    asked: int = 0
    held: int = 0
    quota: str = ""
    """Empty where no quota governs the pods."""
    request: dict[str, int] = {}
    """Reduced to the resources of the quota's max."""


class Demands:
    """See the module. A mutable fold. Bound: as many kinds as there are among the pods that are counted."""

    def __init__(self, rules: QuotaRules, *, usage: bool = True) -> None:
        """`usage` False: only the usage that runtimes depend on is kept."""
        self._rules = rules
        self._usage = usage
        self._kinds: dict[ChargeClass, _Counted] = {}
        self._of_quota: dict[str, dict[ChargeClass, None]] = {}
        self.index: QuotaIndex = NO_QUOTAS
        """Which quota a pod counts in."""
        self.known: Mapping[str, ElasticQuotaView] = {}
        """The quotas by name, the built-in ones too; empty while none is declared."""
        self._cluster: Amounts = {}
        self._forest = Forest({}, {}, rules)
        self._version = 0
        self._pending: dict[ChargeClass, list[int]] = {}
        """Changes of requesting and holding pods since the forest was last read."""

    @property
    def forest(self) -> Forest:
        """The quotas with all that is counted."""
        self._settle()
        return self._forest

    @property
    def version(self) -> int:
        """Increases with every change of what quotas have, request or hold."""
        self._settle()
        return self._version

    def declare(self, quotas: dict[str, ElasticQuotaView]) -> None:
        """Take over another set of quotas."""
        self._settle()
        self._version += 1
        built_in = with_built_in(quotas)
        self.known = {**quotas, **built_in} if quotas else {}
        self.index = index_of(dict(self.known)) if quotas else NO_QUOTAS
        self._forest = Forest(quotas, built_in, self._rules, usage=self._usage)
        self._forest.offer(self._cluster)
        self._of_quota.clear()
        for kind, counted in self._kinds.items():
            self._resolve(kind, counted)
            self._change(kind, counted, counted.asked, counted.held)

    def offer(self, cluster: Amounts) -> None:
        """Take over what all nodes offer; not to be changed afterwards."""
        self._settle()
        if cluster is not self._cluster:
            self._version += 1
            self._cluster = cluster
            self._forest.offer(cluster)

    def kinds_of(self, quota: str) -> Collection[ChargeClass]:
        """Return the kinds of pods that a quota governs, in no stated order."""
        self._settle()
        return self._of_quota.get(quota, {}).keys()

    def request_of(self, kind: ChargeClass) -> dict[str, int]:
        """Return what each pod of a kind is charged with."""
        self._settle()
        return self._kinds[kind].request

    def count(self, kind: ChargeClass, asked: int, held: int) -> None:
        """Count this many more pods as requesting, and as placed; negative numbers remove them."""
        pending = self._pending.get(kind)
        if pending is None:
            self._pending[kind] = [asked, held]
        else:
            pending[0] += asked
            pending[1] += held

    def _settle(self) -> None:
        """Add to the sums what was counted since."""
        if self._pending:
            pending, self._pending = self._pending, {}
            for kind, (asked, held) in pending.items():
                self._count(kind, asked, held)

    def _count(self, kind: ChargeClass, asked: int, held: int) -> None:
        counted = self._kinds.get(kind)
        if counted is None:
            counted = self._kinds[kind] = _Counted()
            self._resolve(kind, counted)
        counted.asked += asked
        counted.held += held
        self._change(kind, counted, asked, held)
        if not (counted.asked or counted.held):
            del self._kinds[kind]
            of_quota = self._of_quota.get(counted.quota, {})
            of_quota.pop(kind, None)
            if not of_quota:
                self._of_quota.pop(counted.quota, None)

    def _resolve(self, kind: ChargeClass, counted: _Counted) -> None:
        counted.quota, counted.request = "", {}
        membership = self.index.member(kind.namespace, kind.quota_label)
        if membership is not None and membership.quota in self._forest.tree_ids:
            counted.quota = membership.quota
            self._of_quota.setdefault(counted.quota, {})[kind] = None
            counted.request = masked(dict(kind.request), self.known[membership.quota].max)

    def _change(self, kind: ChargeClass, counted: _Counted, asked: int, held: int) -> None:
        if not counted.quota:
            return
        if asked:
            self._version += 1
            self._forest.ask(counted.quota, counted.request, kind.preemptible, asked)
        if held and self._forest.hold(counted.quota, counted.request, kind.preemptible, held):
            self._version += 1

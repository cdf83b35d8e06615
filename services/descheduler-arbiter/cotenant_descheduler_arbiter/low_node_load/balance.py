"""Selects the pods to move off a pool's hot nodes, and their targets.

In: the pool's measured nodes with their classes, the hot nodes in order, and two callbacks: whether a pod may move at all, and
whether it may be evicted now. Out: moves with their figures, and the pods that stay with the reason.

Two passes. Node pass: from HIGH nodes to LOW and BOTH_LOW ones, against the node band. Prod pass: prod pods from PROD_HIGH
nodes to PROD_LOW and BOTH_LOW ones, against the prod band. Total amount that may be moved:

    available(targets) = sum over targets of (high - usage)
    node pass: available(LOW) + available(BOTH_LOW)
    prod pass: available of prod(PROD_LOW) + min(available of prod(BOTH_LOW), the node pass's rest of available(BOTH_LOW))

Per hot node, hottest first, and per pod in eviction order: stop when the node is no longer over or nothing is available.
The pod stays unless it has a metric, fits a target (requests, affinity, taints, slots), and the computed usage after the move
is inside the bands: no target resource above its high amount, and the source not under all of its low amounts (otherwise it
would become a destination and get the load back). Capacity is subtracted at once, for the following pods.

Source: koord-descheduler LowNodeLoad; as there, the node pass does not update prod usages. Only pods that move use capacity, in
eviction order; koord-descheduler subtracts it for all removable pods, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from cotenant.model.names import RESOURCE_PODS
from cotenant_descheduler_arbiter.eviction.fit import misfit
from cotenant_descheduler_arbiter.low_node_load.classify import LoadClass, NodeLoad, is_over, is_under
from cotenant_descheduler_arbiter.low_node_load.reason import over_utilized_reason
from cotenant_descheduler_arbiter.low_node_load.sorting import sort_pods_by_excess
from cotenant_descheduler_arbiter.low_node_load.thresholds import Band
from cotenant_descheduler_arbiter.state.facts import PodFacts
from cotenant_descheduler_arbiter.state.measuring import MeasuredNode, MeasuredPod

WhyNot = Callable[[PodFacts], str | None]
"""Returns the reason against the pod, or None."""


class Move(msgspec.Struct, frozen=True):
    """A pod to move. Usages are those of the node or of its prod pods, depending on the pass."""

    facts: PodFacts
    source: str
    target: str
    reason: str
    prod: bool
    pod_usage: dict[str, int]
    source_before: dict[str, int]
    source_after: dict[str, int]
    target_before: dict[str, int]
    target_after: dict[str, int]
    source_high: dict[str, int]
    target_high: dict[str, int]


class RefusedMove(msgspec.Struct, frozen=True):
    """A pod that stays on its hot node, and why."""

    facts: PodFacts
    source: str
    reason: str


class Balance:
    """The balance of one pool in one cycle. Usage changes with every move; the inputs do not."""

    def __init__(
        self,
        nodes: Sequence[MeasuredNode],
        loads: Mapping[str, NodeLoad],
        classes: Mapping[str, LoadClass],
        *,
        node_fit: bool,
        weights: Mapping[str, int],
        band: Band,
        prod_band: Band,
        why_not_movable: WhyNot,
        why_not_now: WhyNot,
    ) -> None:
        """`why_not_now` is called last, and counts the eviction if it allows it."""
        self.nodes = {node.facts.name: node for node in nodes}
        self.loads = loads
        self.classes = classes
        self.node_fit = node_fit
        self.weights = weights
        self.band = band
        self.prod_band = prod_band
        self.why_not_movable = why_not_movable
        self.why_not_now = why_not_now
        self.usage = {name: dict(load.usage) for name, load in loads.items()}
        self.prod_usage = {name: dict(load.prod_usage) for name, load in loads.items()}
        self.placed: dict[str, tuple[dict[str, int], int]] = {}
        self.moves: list[Move] = []
        self.kept: list[RefusedMove] = []

    def run(self, hot: Sequence[str], prod_hot: Sequence[str]) -> None:
        """Run both passes over the hot nodes, hottest first; fills `moves` and `kept`."""
        low, both = self._named(LoadClass.LOW), self._named(LoadClass.BOTH_LOW)
        available_both = self._available(both, prod=False)
        remaining = _plus(self._available(low, prod=False), available_both)
        if low or both:
            self._relieve(hot, low + both, remaining, prod=False)
        prod_low = self._named(LoadClass.PROD_LOW)
        if prod_low or both:
            left = _least(available_both, remaining)
            available = _plus(
                self._available(prod_low, prod=True), _least(self._available(both, prod=True), left)
            )
            self._relieve(prod_hot, prod_low + both, available, prod=True)

    def _named(self, wanted: LoadClass) -> list[str]:
        return [name for name in self.nodes if self.classes[name] is wanted]

    def _high(self, node: str, *, prod: bool) -> dict[str, int]:
        load = self.loads[node]
        return load.prod_band.high if prod else load.band.high

    def _usage(self, node: str, *, prod: bool) -> dict[str, int]:
        return self.prod_usage[node] if prod else self.usage[node]

    def _available(self, names: Iterable[str], *, prod: bool) -> dict[str, int]:
        total: dict[str, int] = {}
        for node in names:
            usage = self._usage(node, prod=prod)
            for name, high in self._high(node, prod=prod).items():
                total[name] = total.get(name, 0) + high - usage.get(name, 0)
        return total

    def _relieve(self, sources: Sequence[str], targets: Sequence[str], available: dict[str, int], *, prod: bool) -> None:
        for source in sources:
            high = self._high(source, prod=prod)
            for pod in self._removable(source, prod=prod):
                if not is_over(self._usage(source, prod=prod), high):
                    break
                if any(amount <= 0 for amount in available.values()):
                    self._keep(pod.facts, source, "the nodes below their thresholds have no room left")
                    break
                self._try_move(pod, source, targets, available, prod=prod)

    def _removable(self, source: str, *, prod: bool) -> list[MeasuredPod]:
        measured: dict[str, MeasuredPod] = {}
        for pod in self.nodes[source].pods:
            if prod and not pod.prod:
                continue
            reason = self.why_not_movable(pod.facts)
            if reason is None and pod.usage is None:
                reason = "it has no metric yet"
            if reason is not None:
                self._keep(pod.facts, source, reason)
                continue
            measured[pod.facts.key] = pod
        usage, high = self._usage(source, prod=prod), self._high(source, prod=prod)
        excess = {name: usage[name] - limit for name, limit in high.items() if usage.get(name, 0) > limit}
        order = sort_pods_by_excess([(pod.facts, pod.usage) for pod in measured.values()], excess, self.weights)
        return [measured[facts.key] for facts in order]

    def _try_move(
        self, pod: MeasuredPod, source: str, targets: Sequence[str], available: dict[str, int], *, prod: bool
    ) -> None:
        load = self.loads[source]
        taken = {**(pod.usage or {}), RESOURCE_PODS: 1}
        before = dict(self._usage(source, prod=prod))
        after = _minus(before, taken)
        low = load.prod_band.low if prod else load.band.low
        if is_under(after, low):
            self._keep(pod.facts, source, "the node would fall below its low thresholds without it")
            return
        target, misfits = self._find_target(pod, source, targets, taken, prod=prod)
        if target is None:
            self._keep(pod.facts, source, misfits)
            return
        refusal = self.why_not_now(pod.facts)
        if refusal is not None:
            self._keep(pod.facts, source, refusal)
            return
        percent = self.prod_band.high if prod else self.band.high
        high = self._high(source, prod=prod)
        target_before = dict(self._usage(target, prod=prod))
        self._account_move(pod, source, target, taken, prod=prod)
        for name in available:
            available[name] -= taken.get(name, 0)
        self.moves.append(
            Move(
                facts=pod.facts,
                source=source,
                target=target,
                reason=over_utilized_reason(before, high, percent, load.allocatable, prod=prod),
                prod=prod,
                pod_usage=dict(pod.usage or {}),
                source_before=_only(before, high),
                source_after=_only(after, high),
                target_before=_only(target_before, high),
                target_after=_only(self._usage(target, prod=prod), high),
                source_high=dict(high),
                target_high=dict(self._high(target, prod=prod)),
            )
        )

    def _account_move(self, pod: MeasuredPod, source: str, target: str, taken: Mapping[str, int], *, prod: bool) -> None:
        self.usage[source] = _minus(self.usage[source], taken)
        self.usage[target] = _plus(self.usage[target], taken)
        if prod:
            self.prod_usage[source] = _minus(self.prod_usage[source], taken)
            self.prod_usage[target] = _plus(self.prod_usage[target], taken)
        requested, count = self.placed.get(target, ({}, 0))
        self.placed[target] = (_plus(requested, pod.facts.requests), count + 1)

    def _find_target(
        self, pod: MeasuredPod, source: str, targets: Sequence[str], taken: Mapping[str, int], *, prod: bool
    ) -> tuple[str | None, str]:
        """Return the first target that fits the pod and stays inside its bands, else the reason why none does."""
        first: str | None = None
        for target in targets:
            if target == source:
                continue
            reason = (self._misfit(pod.facts, target) if self.node_fit else None) or self._overload(target, taken, prod)
            if reason is None:
                return target, ""
            first = first or f"{target}: {reason}"
        return None, f"no node below its thresholds takes it ({first or 'there is none'})"

    def _misfit(self, facts: PodFacts, target: str) -> str | None:
        node = self.nodes[target].facts
        requested, count = self.placed.get(target, ({}, 0))
        if count:
            node = msgspec.structs.replace(
                node, requested=_plus(node.requested, requested), pod_count=node.pod_count + count
            )
        return misfit(facts, node)

    def _overload(self, target: str, taken: Mapping[str, int], prod: bool) -> str | None:
        load = self.loads[target]
        checks = [("", self.usage[target], load.band.high)]
        if prod:
            checks.append(("prod ", self.prod_usage[target], load.prod_band.high))
        for prefix, usage, high in checks:
            for name in sorted(high):
                after = usage.get(name, 0) + taken.get(name, 0)
                if after > high[name]:
                    return f"it would overload {prefix}{name}: {after} > {high[name]}"
        return None

    def _keep(self, facts: PodFacts, source: str, reason: str) -> None:
        self.kept.append(RefusedMove(facts=facts, source=source, reason=reason))


def _plus(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) + b.get(name, 0) for name in sorted({*a, *b})}


def _minus(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: a.get(name, 0) - b.get(name, 0) for name in sorted({*a, *b})}


def _least(a: Mapping[str, int], b: Mapping[str, int]) -> dict[str, int]:
    return {name: min(amount, b[name]) if name in b else amount for name, amount in a.items()}


def _only(amounts: Mapping[str, int], names: Iterable[str]) -> dict[str, int]:
    return {name: amounts.get(name, 0) for name in names}

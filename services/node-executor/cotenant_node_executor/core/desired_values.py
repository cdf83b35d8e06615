"""The desired values of a node's targets, computed again only where an input has changed.

In: the observation, the pods' views, groups about to be created, the node SLO. Out: one composed value for each target, and the
evictions that strategies order. Every value follows from these inputs and the strategies' memories; all other state is a cache
of the last cycle. Every cycle returns all values, so the writer can repair a file that another process changed.

| source of desired values | computed from | computed again when |
|---|---|---|
| a pod | its shape and the policy, by every strategy's `of_pod` | its placement, its group's existence or the policy changes |
| a strategy | the situation and its memory, by its `decide` | the policy or one of its `inputs` changes |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct

from cotenant.events.resources import NodeSLORendered
from cotenant_node_executor.core.composer import Composed, Composer, CompositionError
from cotenant_node_executor.core.observation import NO_STORAGE, Observation
from cotenant_node_executor.core.plan import PROBLEMS, WOULD, Said
from cotenant_node_executor.sampling.snapshot import Snapshot
from cotenant_node_executor.strategies.dry_run import is_dry_run, withheld
from cotenant_node_executor.strategies.pod_values import burstable_milli
from cotenant_node_executor.strategies.pod_view import REMEMBERED_SHAPES, PodShape, PodView
from cotenant_node_executor.strategies.registry import STRATEGIES
from cotenant_node_executor.strategies.situation import (
    NodeFacts,
    Situation,
    best_effort_tree,
    holding_cpus,
    in_best_effort_tree,
)
from cotenant_node_executor.strategies.strategy import (
    Decision,
    Desired,
    DesiredValues,
    Evict,
    Input,
    Policy,
    Reclaim,
    Reset,
    Strategy,
    StrategyOrder,
)
from cotenant_node_executor.targets.address import INITIAL_VALUES, Place
from cotenant_node_executor.targets.interface import Capabilities

NO_OFFER: Mapping[str, int] = {}


class DesiredTargets:
    """The targets of one node. Bound: the last cycle."""

    def __init__(
        self, facts: NodeFacts, capabilities: Capabilities, strategies: tuple[Strategy, ...] = STRATEGIES
    ) -> None:
        self._facts = facts
        self._capabilities = capabilities
        self._composer = Composer(strategies)
        self._deciding = {f"node:{strategy.name}": strategy for strategy in strategies if strategy.decide is not None}
        """Strategies that decide, by the source of their values. Pods are sources by their groups, which have no colon."""
        self._of_pod = [(strategy.name, strategy.of_pod) for strategy in strategies if strategy.of_pod is not None]
        self._groups: frozenset[str] = frozenset()
        """The groups that the last cycle observed or created."""
        self._sysctl: int | None = None
        self._policy = Policy(capabilities, None)
        self._there: dict[str, PodView] = {}
        """Placed pods with an existing group, by group, as of their last computed values."""
        self._burstable_milli = 0
        """CPU requests of the burstable pods among them."""
        self._tree = best_effort_tree((), ())
        self._of_shape: dict[PodShape, tuple[tuple[Desired, ...], ...]] = {}
        """Cache of a shape's desired values under the policy, group by group. Bound: REMEMBERED_SHAPES, then it is cleared."""
        self._due: set[str] = {*self._deciding}
        """Strategies that decide in this cycle, by source."""
        self._usage: Observation | None = None
        """The observation that strategies last decided from."""
        self._memories: dict[str, Struct | None] = {}
        """By strategy name; immutable structs."""
        self._orders: dict[str, tuple[Evict, ...]] = {}
        """The evictions of each strategy's last decision, by its name; only of those that order any."""
        self._offered: Mapping[str, int] = {}
        self._evicting: frozenset[str] = frozenset()
        self._storage = NO_STORAGE
        self._said: dict[tuple[str, str], tuple[str, ...]] = {}
        """What strategies said last besides values and orders, by name and kind, without their reasons."""
        self._dry: set[str] = set()
        """Names of the strategies whose last decision was a dry run."""
        self.reclaims: list[tuple[str, Reclaim]] = []
        """Orders to reclaim since this was last emptied, each with its strategy."""
        self.said: list[Said] = []
        """What is new of that, since this was last emptied."""
        self.faults: list[tuple[str, Exception]] = []
        """Strategies whose decision raised since this was last emptied; one stands for all of its kind."""
        self._faulted: dict[str, str] = {}
        """By strategy name, what it raised last under the policy."""
        self._on_pods: Sequence[str] = ()
        """Strategies, by source, that decide when this input changes, under the policy; so the next ones."""
        self._on_tree: Sequence[str] = ()
        self._on_usage: Sequence[str] = ()
        self._on_cycle: Sequence[str] = ()
        self._find_takers()

    @property
    def every_cycle(self) -> bool:
        """Whether a strategy decides in every cycle."""
        return bool(self._on_cycle)

    def is_dry(self, strategy: str) -> bool:
        """Whether a strategy's last decision was a dry run."""
        return strategy in self._dry

    def memory(self, strategy: str) -> Struct | None:
        """The memory of a strategy's last decision."""
        return self._memories.get(strategy)

    def of_cycle(
        self,
        seen: Observation,
        placed: Mapping[str, PodView],
        changed: Set[str],
        made: Set[str],
        slo: NodeSLORendered | None,
        offered: Mapping[str, int] = NO_OFFER,
        evicting: frozenset[str] = frozenset(),
    ) -> tuple[Composed, Sequence[tuple[str, Evict]]]:
        """Return the values of a cycle and the standing orders to evict, each with its strategy. `placed`: pods by group;
        `changed`: groups whose pod differs from the last cycle; `made`: missing groups that are created before values are
        written; `offered`: mid and batch resources; `evicting`: uids of pods that are being ended."""
        self._evicting = evicting
        if seen.storage is not self._storage:
            self._storage = seen.storage
            self._due.update(self._on_pods)
        if offered is not self._offered:
            self._offered = offered
            self._due.update(self._on_pods)
        groups = seen.groups | made if made else seen.groups
        if groups is not self._groups:
            if seen.groups is self._groups:
                changed = changed | made
            elif groups != self._groups:
                changed = changed | (groups ^ self._groups)
            self._groups = groups
        if changed or slo is not self._policy.slo or seen.identity_sysctl != self._sysctl:
            self._sysctl = seen.identity_sysctl
            self._update(placed, changed, slo)
        if self._on_usage:
            before = self._usage
            if before is None or not _same_figures(before, seen):
                self._due.update(self._on_usage)
                self._usage = seen
        if self._on_cycle:
            self._due.update(self._on_cycle)
        if self._due:
            self._decide(seen)
        orders = [(name, order) for name, own in self._orders.items() for order in own] if self._orders else ()
        return self._composer.composed(), orders

    def _update(self, placed: Mapping[str, PodView], changed: Set[str], slo: NodeSLORendered | None) -> None:
        """Update the values of new and changed pods, and mark the strategies that must decide again."""
        put, there, new_policy = self._composer.put, self._there, self._policy.slo is not slo
        came: list[PodView] = []
        of_tree = False
        for group in sorted(changed):
            if in_best_effort_tree(group):
                of_tree = True
            before, pod = there.get(group), placed.get(group) if group in self._groups else None
            if pod is before:
                continue
            if before is not None:
                self._burstable_milli -= burstable_milli(before.shape)
                of_tree = of_tree or bool(before.bound_cpus)
            if pod is not None:
                self._burstable_milli += burstable_milli(pod.shape)
                of_tree = of_tree or bool(pod.bound_cpus)
                there[group] = pod
                came.append(pod)
            else:
                del there[group]
                put(group, {})
        if new_policy:
            self._policy = Policy(self._capabilities, slo)
            self._of_shape.clear()
            self._faulted.clear()
            self._find_takers()
            self._due.update(self._deciding)
            came = [*there.values()]
        if of_tree:
            self._tree = best_effort_tree(holding_cpus(there.values()), self._groups)
            self._due.update(self._on_tree)
        self._due.update(self._on_pods)
        for pod in came:
            put(pod.group, dict(zip(pod.groups, self._pod_values(pod.shape), strict=True)))

    def _find_takers(self) -> None:
        inputs = {source: strategy.inputs(self._policy) for source, strategy in self._deciding.items()}
        self._on_pods, self._on_tree, self._on_usage, self._on_cycle = (
            [source for source in inputs if each in inputs[source]]
            for each in (Input.PODS, Input.TREE, Input.USAGE, Input.CYCLE)
        )

    def _pod_values(self, shape: PodShape) -> tuple[tuple[Desired, ...], ...]:
        values = self._of_shape.get(shape)
        if values is None:
            if len(self._of_shape) >= REMEMBERED_SHAPES:
                self._of_shape.clear()
            groups: list[tuple[Desired, ...]] = [()] * (1 + len(shape.containers))
            for strategy, of_pod in self._of_pod:
                try:
                    own = of_pod(shape, self._policy)
                except Exception as error:  # noqa: BLE001 - a pod without this strategy's values; the others are desired
                    self._fault(strategy, error)
                    continue
                for at, desired in enumerate((own.pod, *own.containers)):
                    groups[at] += desired
            values = self._of_shape[shape] = tuple(groups)
        return values

    def _situation(self, snapshot: Snapshot | None, seen: Observation) -> Situation:
        return Situation(
            node=self._facts,
            capabilities=self._capabilities,
            pods=self._there,
            groups=self._groups,
            tree=self._tree,
            slo=self._policy.slo,
            snapshot=snapshot,
            current=seen.current,
            burstable_milli=self._burstable_milli,
            identity_sysctl=self._sysctl,
            offered=self._offered,
            evicting=self._evicting,
            storage=self._storage,
        )

    def _decide(self, seen: Observation) -> None:
        """Run the strategies that are due, in the order of the registry."""
        situation = self._situation(seen.snapshot, seen)
        for source, strategy in self._deciding.items():
            if source not in self._due or strategy.decide is None:
                continue
            try:
                decision = strategy.decide(situation, self._memories.get(strategy.name))
                dry = is_dry_run(situation.slo, strategy.section)
                decision = withheld(decision) if dry else decision
                values = _with_resets(decision.values, decision.orders, strategy.name) if decision.orders else decision.values
            except Exception as error:  # noqa: BLE001 - a strategy that raises keeps its last values; the others decide
                self._fault(strategy.name, error)
                continue
            (self._dry.add if dry else self._dry.discard)(strategy.name)
            self._memories[strategy.name] = decision.memory
            if decision.orders or strategy.name in self._orders:
                self._take_orders(strategy.name, decision)
            if decision.would or decision.problems or self._said:
                self._take_said(strategy.name, WOULD, decision.would)
                self._take_said(strategy.name, PROBLEMS, decision.problems)
            self._composer.put(source, values)
        self._due.clear()

    def _take_orders(self, strategy: str, decision: Decision) -> None:
        self.reclaims += [(strategy, order) for order in decision.orders if isinstance(order, Reclaim)]
        evictions = tuple([order for order in decision.orders if isinstance(order, Evict)])
        if evictions:
            self._orders[strategy] = evictions
        else:
            self._orders.pop(strategy, None)

    def _take_said(self, strategy: str, kind: str, texts: tuple[str, ...]) -> None:
        """Note what a strategy says where it differs from the last time in more than its reasons."""
        plain = tuple([each.partition(": ")[0] for each in texts])
        if not texts:
            self._said.pop((strategy, kind), None)
        elif self._said.get((strategy, kind)) != plain:
            self._said[strategy, kind] = plain
            self.said.append(Said(strategy, kind, texts))

    def _fault(self, strategy: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._faulted.get(strategy) != text:
            self._faulted[strategy] = text
            self.faults.append((strategy, error))


def _with_resets(values: DesiredValues, orders: Sequence[StrategyOrder], strategy: str) -> DesiredValues:
    """A reset desires the initial value. Raises CompositionError for an attribute that has none."""
    found: dict[Place, tuple[Desired, ...]] = dict(values)
    for order in orders:
        if isinstance(order, Reset):
            initial = INITIAL_VALUES.get(order.attribute)
            if initial is None:
                raise CompositionError(f"{strategy} resets {order.attribute.value}, which has no initial value")
            found[order.place] = (*found.get(order.place, ()), Desired(order.attribute, initial, strategy, order.why))
    return found


def _same_figures(before: Observation, now: Observation) -> bool:
    """Whether two observations show strategies the same usage; a cheap check that may miss equal pairs."""
    return _same_usage(before.snapshot, now.snapshot) and before.current == now.current


def _same_usage(before: Snapshot | None, now: Snapshot | None) -> bool:
    if before is now or before is None or now is None:
        return before is now
    return before.pods is now.pods and before.node.cpu_milli == now.node.cpu_milli

"""The desired values of a node's targets, computed again only where an input has changed.

In: the observation, the pods' views, groups about to be created, the node SLO and the node's resources. Out: one composed
value for each target, and the evictions that strategies order. Every value follows from these inputs and the strategies'
memories; all other state is a cache of the last cycle. Every cycle returns all values, so the writer can repair a file that
another process changed.

A target without a desired value gets its initial value again. A dry run is only reported (`dry_runs`).

| source of desired values | computed from | computed again when |
|---|---|---|
| a pod | its shape and the policy, by every strategy's `of_pod` | its placement, its group's existence or the policy changes |
| a strategy | the situation and its memory, by its `decide` | the policy or one of its `inputs` changes |

Over 300 lines: all methods keep the caches of one cycle consistent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct
from msgspec.structs import replace

from cotenant.events.node.resources import NodeResources, NodeSLORendered
from cotenant_node_executor.core.composer import Composed, Composer, with_resets
from cotenant_node_executor.core.dry_runs import DryRunResult, DryRuns
from cotenant_node_executor.core.initial_values import InitialValues
from cotenant_node_executor.core.observation import NO_STORAGE, Observation, same_figures
from cotenant_node_executor.sampling.snapshot import UsageSnapshot
from cotenant_node_executor.strategies.pod_view import REMEMBERED_SHAPES, PodShape, PodView
from cotenant_node_executor.strategies.pods.pod_values import burstable_milli
from cotenant_node_executor.strategies.registry import STRATEGIES, precedence
from cotenant_node_executor.strategies.sections import SectionError, is_dry_run
from cotenant_node_executor.strategies.situation import (
    LocalNode,
    Situation,
    best_effort_tree,
    holding_cpus,
    in_best_effort_tree,
)
from cotenant_node_executor.strategies.strategy import (
    RESTORE,
    Desired,
    Evict,
    Input,
    NodePolicy,
    Problems,
    Reclaim,
    Strategy,
    StrategyDecision,
)
from cotenant_node_executor.targets.address import Attribute, Place
from cotenant_node_executor.targets.disks import NO_DEVICES
from cotenant_node_executor.targets.interface import LARGE_BURSTS, NodeCapabilities


class DesiredTargets:
    """The targets of one node. Bound: the last cycle."""

    def __init__(
        self, facts: LocalNode, capabilities: NodeCapabilities, strategies: tuple[Strategy, ...] = STRATEGIES
    ) -> None:
        self._facts = facts
        self._capabilities = capabilities
        self._composer = Composer(strategies, large_bursts=capabilities.supports(LARGE_BURSTS))
        self._deciding = {f"node:{strategy.name}": strategy for strategy in strategies if strategy.decide is not None}
        """Strategies that decide, by the source of their values. Pods are sources by their groups, which have no colon."""
        self._of_pod = [(strategy, strategy.of_pod) for strategy in strategies if strategy.of_pod is not None]
        self._groups: frozenset[str] = frozenset()
        """The groups that the last cycle observed or created."""
        self._sysctl: int | None = None
        self._policy = NodePolicy(capabilities, None)
        self._resources: NodeResources | None = None
        self._dry: frozenset[str] = frozenset()
        """Names of the strategies that are a dry run under the policy."""
        self._dry_runs = DryRuns()
        self.dry_runs: Sequence[DryRunResult] = ()
        """Would-be actions of strategies in a dry run, of the last cycle."""
        self._initial = InitialValues(facts, capabilities, precedence(strategies))
        self._existing: dict[str, PodView] = {}
        """Placed pods with an existing group, by group, as of their last computed values."""
        self._burstable_milli = 0
        """CPU requests of the burstable pods among them."""
        self._tree = best_effort_tree((), ())
        self._of_shape: dict[tuple[PodShape, bool], tuple[tuple[Desired, ...], ...]] = {}
        """Cache of a shape's desired values under the policy, group by group. Bound: REMEMBERED_SHAPES, then it is cleared."""
        self._due: set[str] = {*self._deciding}
        """Strategies that decide in this cycle, by source."""
        self._usage: Observation | None = None
        """The observation that strategies last decided from."""
        self._spike: UsageSnapshot | None = None
        self._memories: dict[str, Struct | None] = {}
        """By strategy name; immutable structs."""
        self._orders: dict[str, tuple[Evict, ...]] = {}
        """The evictions of each strategy's last decision, by its name; only of those that order any."""
        self._evicting: frozenset[str] = frozenset()
        self._storage, self._volumes = NO_STORAGE, NO_DEVICES
        self._problems: dict[str, tuple[str, ...]] = {}
        """Strategies' problems as of their last decisions, by name, without their reasons."""
        self.reclaims: list[tuple[str, Reclaim]] = []
        """Orders to reclaim since this was last emptied, each with its strategy."""
        self.problems: list[Problems] = []
        """New ones since this was last emptied."""
        self.faults: list[tuple[str, Exception]] = []
        """Strategies that raised since this was last emptied, unreadable sections apart; one represents all of its name."""
        self._faulted: dict[str, str] = {}
        """By strategy name, its last exception under the policy."""
        self._on_pods: Sequence[str] = ()
        """Strategies, by source, that decide when this input changes, under the policy; so the next ones."""
        self._on_tree: Sequence[str] = ()
        self._on_usage: Sequence[str] = ()
        self._on_cycle: Sequence[str] = ()
        self._on_resources: Sequence[str] = ()
        self._on_spike: Sequence[str] = ()
        self._index_inputs()

    @property
    def every_cycle(self) -> bool:
        """Whether a strategy decides in every cycle."""
        return bool(self._on_cycle)

    def is_dry(self, strategy: str) -> bool:
        """Whether a strategy is a dry run."""
        return strategy in self._dry

    def memory(self, strategy: str) -> Struct | None:
        """The memory of a strategy's last decision."""
        return self._memories.get(strategy)

    def desired(self, place: Place, attribute: Attribute) -> Desired | None:
        """The desired value that won a target in the last cycle."""
        return self._composer.winner(place, attribute)

    def of_cycle(
        self,
        seen: Observation,
        placed: Mapping[str, PodView],
        changed: Set[str],
        made: Set[str],
        slo: NodeSLORendered | None,
        resources: NodeResources | None = None,
        evicting: frozenset[str] = frozenset(),
    ) -> tuple[Composed, Sequence[tuple[str, Evict]]]:
        """Return the values of a cycle and the standing orders to evict, each with its strategy. `placed`: pods by group;
        `changed`: groups whose pod differs from the last cycle; `made`: missing groups that are created before values are
        written; `evicting`: uids of pods that are being ended."""
        self._evicting = evicting
        if seen.storage is not self._storage or seen.volumes is not self._volumes:
            self._storage, self._volumes = seen.storage, seen.volumes
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
            if before is None or not same_figures(before, seen):
                self._due.update(self._on_usage)
                self._usage = seen
        if seen.spike is not None and seen.spike is not self._spike:
            self._due.update(self._on_spike)
        self._spike = seen.spike
        if self._on_cycle:
            self._due.update(self._on_cycle)
        if resources is not self._resources:
            self._resources = resources
            self._due.update(self._on_resources)
        if self._due:
            self._decide(seen)
        orders = [(name, order) for name, own in self._orders.items() for order in own] if self._orders else ()
        composed = self._composer.composed()
        if self._initial.is_time(seen.snapshot) or self._composer.dropped:
            self._initial.add_left_over(self._existing.values(), self._groups, composed.winner)
            self._initial.add(self._composer.dropped, self._groups)
            self._composer.dropped = {}
            self._composer.put(RESTORE.name, self._initial.values)
            again = self._composer.composed()
            composed = replace(again, changed=(*composed.changed, *again.changed))
        self.dry_runs = self._dry_runs.report(composed.winner, self._initial.text) if self._dry else ()
        return composed, orders

    def _update(self, placed: Mapping[str, PodView], changed: Set[str], slo: NodeSLORendered | None) -> None:
        """Update the values of new and changed pods, and mark the strategies that must decide again."""
        put, there, new_policy = self._composer.put, self._existing, self._policy.slo is not slo
        if self._initial and not changed <= self._groups:
            self._initial.keep(self._groups)
            put(RESTORE.name, self._initial.values)
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
                if self._dry:
                    self._dry_runs.values(group, {})
        if new_policy:
            self._policy = NodePolicy(self._capabilities, slo)
            self._find_dry_runs(slo)
            self._of_shape.clear()
            self._faulted.clear()
            self._index_inputs()
            self._due.update(self._deciding)
            came = [*there.values()]
        if of_tree:
            self._tree = best_effort_tree(holding_cpus(there.values()), self._groups)
            self._due.update(self._on_tree)
        self._due.update(self._on_pods)
        for pod in came:
            put(pod.group, dict(zip(pod.groups, self._pod_values(pod.shape, dry=False), strict=True)))
            if self._dry:
                self._dry_runs.values(pod.group, dict(zip(pod.groups, self._pod_values(pod.shape, dry=True), strict=True)))

    def _find_dry_runs(self, slo: NodeSLORendered | None) -> None:
        strategies = (*self._deciding.values(), *[strategy for strategy, _ in self._of_pod])
        self._dry = frozenset([each.name for each in strategies if is_dry_run(slo, each.section, each.part)])
        if not self._dry:
            self._dry_runs = DryRuns()

    def _index_inputs(self) -> None:
        inputs = {source: strategy.inputs(self._policy) for source, strategy in self._deciding.items()}
        self._on_pods, self._on_tree, self._on_usage, self._on_cycle, self._on_resources, self._on_spike = (
            [source for source in inputs if each in inputs[source]]
            for each in (Input.PODS, Input.TREE, Input.USAGE, Input.CYCLE, Input.RESOURCES, Input.SPIKE)
        )

    def _pod_values(self, shape: PodShape, *, dry: bool) -> tuple[tuple[Desired, ...], ...]:
        """The values of a pod of this shape, group by group: of the strategies in force, or of the dry runs."""
        values = self._of_shape.get((shape, dry))
        if values is None:
            if len(self._of_shape) >= REMEMBERED_SHAPES:
                self._of_shape.clear()
            groups: list[tuple[Desired, ...]] = [()] * (1 + len(shape.containers))
            for strategy, of_pod in self._of_pod:
                if (strategy.name in self._dry) is not dry:
                    continue
                try:
                    own = of_pod(shape, self._policy)
                except Exception as error:  # noqa: BLE001 - a pod without this strategy's values; the others are desired
                    self._fault(strategy.name, error)
                    continue
                for at, desired in enumerate((own.pod, *own.containers)):
                    groups[at] += desired
            values = self._of_shape[shape, dry] = tuple(groups)
        return values

    def _situation(self, snapshot: UsageSnapshot | None, seen: Observation) -> Situation:
        return Situation(
            node=self._facts,
            capabilities=self._capabilities,
            pods=self._existing,
            groups=self._groups,
            tree=self._tree,
            slo=self._policy.slo,
            snapshot=snapshot,
            current=seen.current,
            burstable_milli=self._burstable_milli,
            identity_sysctl=self._sysctl,
            resources=self._resources,
            evicting=self._evicting,
            storage=self._storage,
            spike=seen.spike,
            threads=seen.threads,
            realtime=seen.realtime,
            cold=seen.slow.cold.pods if seen.slow is not None and seen.slow.cold is not None else None,
            services=seen.services,
            volumes=seen.volumes,
        )

    def _decide(self, seen: Observation) -> None:
        """Run the strategies that are due, in the order of the registry."""
        situation = self._situation(seen.snapshot, seen)
        for source, strategy in self._deciding.items():
            if source not in self._due or strategy.decide is None:
                continue
            try:
                decision = strategy.decide(situation, self._memories.get(strategy.name))
                values = with_resets(decision.values, decision.orders, strategy.name) if decision.orders else decision.values
            except Exception as error:  # noqa: BLE001 - a strategy that raises keeps its last values; the others decide
                self._fault(strategy.name, error)
                continue
            self._memories[strategy.name] = decision.memory
            if decision.problems or strategy.name in self._problems:
                self._take_problems(strategy.name, decision.problems)
            if strategy.name in self._dry:
                self._dry_runs.values(source, values)
                self._dry_runs.orders(strategy.name, decision.orders)
                self._orders.pop(strategy.name, None)
                self._composer.put(source, {})
                continue
            if decision.orders or strategy.name in self._orders:
                self._take_orders(strategy.name, decision)
            if not decision.keep:
                self._composer.put(source, values)
        self._due.clear()

    def _take_orders(self, strategy: str, decision: StrategyDecision) -> None:
        self.reclaims += [(strategy, order) for order in decision.orders if isinstance(order, Reclaim)]
        evictions = tuple([order for order in decision.orders if isinstance(order, Evict)])
        if evictions:
            self._orders[strategy] = evictions
        else:
            self._orders.pop(strategy, None)

    def _take_problems(self, strategy: str, texts: tuple[str, ...]) -> None:
        """Record a strategy's problems if they differ from the last time in more than their reasons."""
        plain = tuple([each.partition(": ")[0] for each in texts])
        if not texts:
            self._problems.pop(strategy, None)
        elif self._problems.get(strategy) != plain:
            self._problems[strategy] = plain
            self.problems.append(Problems(strategy, texts))

    def _fault(self, strategy: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if self._faulted.get(strategy) != text:
            self._faulted[strategy] = text
            if isinstance(error, SectionError):
                self.problems.append(Problems(strategy, (f"{error}: the last decision stays in force",)))
            else:
                self.faults.append((strategy, error))

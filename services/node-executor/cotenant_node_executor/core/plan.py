"""A cycle's plan: one frozen struct that the node carries out in this order: groups, targets, orders."""

from __future__ import annotations

from collections.abc import Sequence, Set

from cotenant.model.values import Value
from cotenant_node_executor.core.composer import Composed
from cotenant_node_executor.core.dry_runs import DryRunResult
from cotenant_node_executor.core.placed import Key
from cotenant_node_executor.runtime.interface import AskEviction, Order, Start, Stop
from cotenant_node_executor.strategies.strategy import Evict, Problems, Reclaim

NO_GROUPS: frozenset[str] = frozenset()


class CyclePlan(Value, frozen=True):
    """The groups, values and orders of one cycle."""

    orders: tuple[Order, ...]
    groups: tuple[str, ...]
    """Groups to create, parents first, before values are written and processes started."""
    targets: Composed
    evictions: tuple[tuple[Key, str, Evict], ...] = ()
    """Evictions that begin in this cycle (pod, strategy, order). They are carried out from the next cycle on."""
    waiting: tuple[tuple[str, str], ...] = ()
    """Strategies whose evictions wait, and why."""
    problems: tuple[Problems, ...] = ()
    """New problems of strategies."""
    reclaims: tuple[tuple[str, Reclaim], ...] = ()
    """Memory to reclaim, each with its strategy."""
    dry_runs: Sequence[DryRunResult] = ()
    """Would-be actions of strategies in a dry run."""


EMPTY_PLAN = CyclePlan(orders=(), groups=(), targets=Composed({}, {}))


def endings(orders: Sequence[Order]) -> list[Order]:
    """Return the orders that only end processes. They are right however old the placements are: a pod that is to end never
    runs on. A pod to start may have been deleted, or be placed elsewhere, and what an ended pod has left belongs to its
    report."""
    return [order for order in orders if isinstance(order, Stop | AskEviction)]


def missing_groups(orders: Sequence[Order], there: frozenset[str]) -> Set[str]:
    """Groups of pods and containers that a start needs and that do not exist yet."""
    groups: set[str] = set()
    for order in orders:
        if isinstance(order, Start):
            groups.update((order.pod.group, order.pod.container_group(order.container)))
    return groups - there

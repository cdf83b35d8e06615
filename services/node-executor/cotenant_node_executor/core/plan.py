"""What one cycle asks of the machine.

In: what the core decided. Out: one frozen struct that the node carries out, in this order: groups, targets, orders.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from msgspec import Struct

from cotenant_node_executor.core.composer import Composed
from cotenant_node_executor.core.placed import Key
from cotenant_node_executor.runtime.interface import Order, Start
from cotenant_node_executor.strategies.strategy import Evict

NO_GROUPS: frozenset[str] = frozenset()


class Plan(Struct, frozen=True, gc=False):
    """What one cycle asks of the machine."""

    orders: tuple[Order, ...]
    groups: tuple[str, ...]
    """Groups that must be made, parents first, before values are written and processes started."""
    targets: Composed
    evictions: tuple[tuple[Key, str, Evict], ...] = ()
    """Evictions that begin in this cycle: pod, strategy, order. They are carried out from the next cycle on."""


NOTHING = Plan(orders=(), groups=(), targets=Composed({}, {}))


def missing_groups(orders: Sequence[Order], there: frozenset[str]) -> Set[str]:
    """Those of the pods' groups and their containers' that a start needs and that are not there."""
    groups: set[str] = set()
    for order in orders:
        if isinstance(order, Start):
            groups.update((order.pod.group, order.pod.container_group(order.container)))
    return groups - there

"""Actions of strategies in a dry run: reported, not done.

In: the decisions of strategies whose section of the NodeSLO has `dryRun: true`, and the values in force. Out: changes
since the last report: values that differ from those in force, or from the initial one where none is in force, and orders. Each
of them is reported once.
Bound: the last decision of each strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from cotenant_node_executor.strategies.strategy import Desired, DesiredValues, Evict, Reclaim, StrategyOrder
from cotenant_node_executor.targets.address import Attribute, Place

Target = tuple[Place, Attribute]
Order = Evict | Reclaim


class WouldChange(Struct, frozen=True):
    """A value that a strategy would write. `old`: the value in force, "" where it is not known."""

    place: Place
    desired: Desired
    old: str


class DryRunResult(Struct, frozen=True):
    """What one strategy would do."""

    strategy: str
    changes: tuple[WouldChange, ...] = ()
    orders: tuple[Order, ...] = ()


class DryRuns:
    """The dry runs of one node."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Target, Desired]] = {}
        """By source, what a strategy would set as of its last decision."""
        self._changed: dict[str, list[Target]] = {}
        self._orders: dict[str, dict[str, Order]] = {}
        """By strategy, and pod or group: reported orders, while they are repeated."""
        self._new_orders: list[tuple[str, Order]] = []

    def values(self, source: str, values: DesiredValues) -> None:
        """Take the values of a decision; an empty mapping ends the source."""
        before = self._values.pop(source, {})
        now = {(place, each.attribute): each for place, own in values.items() for each in own}
        if now:
            self._values[source] = now
        changed = [key for key, each in now.items() if key not in before or before[key].value != each.value]
        if changed:
            self._changed[source] = changed

    def orders(self, strategy: str, orders: Iterable[StrategyOrder]) -> None:
        """Take the orders of a decision; a reset is a value."""
        before = self._orders.pop(strategy, {})
        now: dict[str, Order] = {}
        for order in orders:
            if isinstance(order, Evict):
                now[order.uid] = order
            elif isinstance(order, Reclaim):
                now[order.group] = order
        if now:
            self._orders[strategy] = now
        self._new_orders += [(strategy, order) for of, order in now.items() if of not in before]

    def report(
        self, in_force: Callable[[Place, Attribute], Desired | None], initial: Callable[[Attribute], str]
    ) -> tuple[DryRunResult, ...]:
        """What is new since the last call, by strategy. `initial`: what a file holds that no strategy sets, "" if unknown."""
        if not self._changed and not self._new_orders:
            return ()
        changes: dict[str, list[WouldChange]] = {}
        for source, targets in self._changed.items():
            of_source = self._values.get(source, {})
            for place, attribute in targets:
                desired = of_source.get((place, attribute))
                winner = in_force(place, attribute)
                old = winner.value if winner is not None else initial(attribute)
                if desired is not None and desired.value != old:
                    changes.setdefault(desired.strategy, []).append(WouldChange(place, desired, old))
        orders: dict[str, list[Order]] = {}
        for strategy, order in self._new_orders:
            orders.setdefault(strategy, []).append(order)
        self._changed.clear()
        self._new_orders.clear()
        return tuple([
            DryRunResult(strategy, tuple(changes.get(strategy, ())), tuple(orders.get(strategy, ())))
            for strategy in sorted({*changes, *orders})
        ])

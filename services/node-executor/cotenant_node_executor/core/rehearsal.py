"""What strategies of a dry run would do: reported, and not done.

In: the decisions of strategies whose section of the NodeSLO says `dryRun: true`, and the values in force. Out: what is new
since the last report: values that differ from those in force, and evictions. Each value and each eviction is reported once.
Bound: the last decision of each strategy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from cotenant_node_executor.strategies.strategy import Desired, DesiredValues, Evict
from cotenant_node_executor.targets.address import Attribute, Place

Target = tuple[Place, Attribute]


class WouldChange(Struct, frozen=True):
    """A value that a strategy would write. `old`: the value in force, "" where nobody desires one."""

    place: Place
    desired: Desired
    old: str


class Rehearsed(Struct, frozen=True):
    """What one strategy would do."""

    strategy: str
    changes: tuple[WouldChange, ...] = ()
    evictions: tuple[Evict, ...] = ()


class Rehearsal:
    """The dry runs of one node."""

    def __init__(self) -> None:
        self._values: dict[str, dict[Target, Desired]] = {}
        """By source, what a strategy would set as of its last decision."""
        self._changed: dict[str, list[Target]] = {}
        self._evictions: dict[str, dict[str, Evict]] = {}
        """By strategy: what was reported, while it is ordered again."""
        self._new_evictions: list[tuple[str, Evict]] = []

    def values(self, source: str, values: DesiredValues) -> None:
        """Take the values of a decision; an empty mapping ends the source."""
        before = self._values.pop(source, {})
        now = {(place, each.attribute): each for place, own in values.items() for each in own}
        if now:
            self._values[source] = now
        changed = [key for key, each in now.items() if key not in before or before[key].value != each.value]
        if changed:
            self._changed[source] = changed

    def evictions(self, strategy: str, orders: Iterable[Evict]) -> None:
        """Take the evictions of a decision."""
        before = self._evictions.pop(strategy, {})
        now = {order.uid: order for order in orders}
        if now:
            self._evictions[strategy] = now
        self._new_evictions += [(strategy, order) for uid, order in now.items() if uid not in before]

    def report(self, in_force: Callable[[Place, Attribute], Desired | None]) -> tuple[Rehearsed, ...]:
        """What is new since the last call, by strategy."""
        if not self._changed and not self._new_evictions:
            return ()
        changes: dict[str, list[WouldChange]] = {}
        for source, targets in self._changed.items():
            of_source = self._values.get(source, {})
            for place, attribute in targets:
                desired = of_source.get((place, attribute))
                winner = in_force(place, attribute)
                old = winner.value if winner is not None else ""
                if desired is not None and desired.value != old:
                    changes.setdefault(desired.strategy, []).append(WouldChange(place, desired, old))
        evictions: dict[str, list[Evict]] = {}
        for strategy, order in self._new_evictions:
            evictions.setdefault(strategy, []).append(order)
        self._changed.clear()
        self._new_evictions.clear()
        return tuple([
            Rehearsed(strategy, tuple(changes.get(strategy, ())), tuple(evictions.get(strategy, ())))
            for strategy in sorted({*changes, *evictions})
        ])

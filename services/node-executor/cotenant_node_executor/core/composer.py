"""One value for one target: the composer decides between the strategies' desired values.

In: desired values by source (a pod, or a strategy's decision), replaced whole when a source changes. Out: one value for each
target, and nothing for a file that the kernel would refuse. Precedence is the order of the strategies, first named wins;
initial values (RESTORE) come last. A strategy that desires an attribute it does not declare is a programming error and raises,
so that there are never two silent writers for one target. A group whose cpu.idle will be 1 gets no shares: the kernel
answers EINVAL. A burst is at most its quota, as mainline kernels require, unless this kernel accepts larger ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from cotenant.model.values import Value
from cotenant_node_executor.strategies.registry import STRATEGIES, precedence
from cotenant_node_executor.strategies.strategy import RESTORE, Desired, DesiredValues, Reset, Strategy, StrategyOrder
from cotenant_node_executor.targets.address import (
    ATTRIBUTES,
    INITIAL_VALUES,
    Attribute,
    NonCgroup,
    Place,
    place_text,
)
from cotenant_node_executor.targets.interface import UNLIMITED_TEXT, Knob

REMEMBERED = 1024

Settled = tuple[Mapping[Attribute, Desired], Mapping[Attribute, str]]


class Composed(Value, frozen=True):
    """The winning desired values by place, and their texts in the order of the attributes' names: of groups in `texts`, of all
    other places in `others`. These are the composer's own tables, which show the newest values. `changed` names the places
    whose values may differ from the last time."""

    desired: Mapping[Place, Mapping[Attribute, Desired]]
    texts: Mapping[str, Mapping[Knob, str]]
    changed: Collection[Place] = ()
    others: Mapping[NonCgroup, Mapping[Attribute, str]] = {}

    def winner(self, place: Place, attribute: Attribute) -> Desired | None:
        """The desired value that won a target."""
        return self.desired.get(place, _NONE).get(attribute)


_NONE: Mapping[Attribute, Desired] = {}


class CompositionError(ValueError):
    """A strategy desires an undeclared attribute, two values for one target, or an attribute that the place lacks."""


def compose(
    desired: Iterable[Desired], order: Mapping[Attribute, Sequence[str]], *, large_bursts: bool = False
) -> dict[Attribute, Desired]:
    """Return the winning value of each attribute of one place. Raises CompositionError."""
    won: dict[Attribute, Desired] = {}
    for each in desired:
        attribute = each.attribute
        present = won.get(attribute)
        if each.strategy == RESTORE.name:
            won.setdefault(attribute, each)
            continue
        names = order.get(attribute, ())
        if each.strategy not in names:
            raise CompositionError(f"{attribute.value}: strategy {each.strategy!r} has no stated precedence")
        if present is not None and present.strategy == RESTORE.name:
            present = None
        if present is None or names.index(each.strategy) < names.index(present.strategy):
            won[attribute] = each
        elif present.strategy == each.strategy and present.value != each.value:
            raise CompositionError(f"{attribute.value}: {each.strategy} desires {present.value!r} and {each.value!r}")
    idle = won.get(Knob.CPU_IDLE)
    if idle is not None and idle.value == "1":
        won.pop(Knob.CPU_SHARES, None)
    if Knob.CPU_BURST in won and not large_bursts:
        _fit_burst(won)
    return won


def _fit_burst(won: dict[Attribute, Desired]) -> None:
    """Lower a burst to its quota. Without a quota a burst has no effect, and no kernel refuses it."""
    quota, burst = won.get(Knob.CPU_QUOTA), won[Knob.CPU_BURST]
    if quota is not None and quota.value != UNLIMITED_TEXT and int(burst.value) > int(quota.value):
        won[Knob.CPU_BURST] = replace(burst, value=quota.value, why=f"{burst.why}, at most the quota")


def _name(attribute: Attribute) -> str:
    return str(attribute.value)


@lru_cache(maxsize=16)
def _settler(strategies: tuple[Strategy, ...], large_bursts: bool) -> Callable[[tuple[Desired, ...], type], Settled]:
    """Return a cached composition function for these strategies; equal desired values of places of one type share one entry."""
    order = precedence(strategies)

    @lru_cache(maxsize=REMEMBERED)
    def settled(desired: tuple[Desired, ...], place: type) -> Settled:
        won = compose(desired, order, large_bursts=large_bursts)
        kind = ATTRIBUTES[place]
        for attribute in won:
            if type(attribute) is not kind:
                raise CompositionError(f"has no attribute {attribute}")
        return won, {attribute: won[attribute].value for attribute in sorted(won, key=_name)}

    return settled


class Composer:
    """The desired values of one node by source. Only places whose desired values changed are composed again. The result depends
    on the current desired values alone, not on the order in which they arrived. Bound: the current sources."""

    def __init__(self, strategies: tuple[Strategy, ...] = STRATEGIES, *, large_bursts: bool = False) -> None:
        self._settled = _settler(strategies, large_bursts)
        self._desired: dict[Place, dict[str, tuple[Desired, ...]]] = {}
        """By place and source."""
        self._places: dict[str, tuple[Place, ...]] = {}
        """Places with a desired value, by source."""
        self._unsettled: dict[Place, None] = {}
        self.dropped: dict[tuple[Place, Attribute], str] = {}
        """Targets that no source desires any more with their last values, until this is emptied. Bound: the places."""
        self._winners: dict[Place, Mapping[Attribute, Desired]] = {}
        self._texts: dict[str, Mapping[Knob, str]] = {}
        self._others: dict[NonCgroup, Mapping[Attribute, str]] = {}
        self._unchanged = Composed(self._winners, self._texts, (), self._others)

    def winner(self, place: Place, attribute: Attribute) -> Desired | None:
        """The desired value that won a target when values were composed last."""
        return self._winners.get(place, _NONE).get(attribute)

    def put(self, source: str, values: DesiredValues) -> None:
        """Replace all desired values of a source; an empty mapping removes the source."""
        desired = self._desired
        for place in self._places.pop(source, ()):
            if place not in values:
                del desired[place][source]
                self._unsettled[place] = None
        for place, own in values.items():
            sources = desired.get(place)
            if sources is None:
                desired[place] = {source: own}
            elif sources.get(source) == own:
                continue
            else:
                sources[source] = own
            self._unsettled[place] = None
        if values:
            self._places[source] = tuple(values)

    def composed(self) -> Composed:
        """Return the winning values. Raises CompositionError."""
        if not self._unsettled:
            return self._unchanged
        changed = tuple(self._unsettled)
        for place in changed:
            self._settle(place)
        self._unsettled.clear()
        return Composed(self._winners, self._texts, changed, self._others)

    def _settle(self, place: Place) -> None:
        sources = self._desired[place]
        own: tuple[Desired, ...] = ()
        for values in sources.values():
            own = own + values if own else values
        before = self._winners.get(place)
        if before:
            still = {each.attribute for each in own if each.strategy != RESTORE.name}
            gone = {each: won for each, won in before.items() if each not in still and won.strategy != RESTORE.name}
            self.dropped.update({(place, each): won.value for each, won in gone.items()})
        if not own:
            self._winners.pop(place, None)
            if isinstance(place, str):
                self._texts.pop(place, None)
            else:
                self._others.pop(place, None)
            if not sources:
                del self._desired[place]
            return
        try:
            winners, texts = self._settled(own, type(place))
        except CompositionError as error:
            raise CompositionError(f"{place_text(place) or '/'} {error}") from error
        self._winners[place] = winners
        if isinstance(place, str):
            # Its attributes are knobs: `settled` has checked that.
            self._texts[place] = texts  # type: ignore[assignment]
        else:
            self._others[place] = texts


def with_resets(values: DesiredValues, orders: Sequence[StrategyOrder], strategy: str) -> DesiredValues:
    """A reset desires the initial value. Raises CompositionError for an attribute that has none."""
    found: dict[Place, tuple[Desired, ...]] = dict(values)
    for order in orders:
        if isinstance(order, Reset):
            initial = INITIAL_VALUES.get(order.attribute)
            if initial is None:
                raise CompositionError(f"{strategy} resets {order.attribute.value}, which has no initial value")
            found[order.place] = (*found.get(order.place, ()), Desired(order.attribute, initial, strategy, order.why))
    return found

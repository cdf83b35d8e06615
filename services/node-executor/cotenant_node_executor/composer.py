"""One value for one file: the composer decides between all strategies' wishes.

In: wishes by source (a pod, or a strategy that looks at the node as a whole), put anew where a source has changed. Out: one
wish for each file of each group, and nothing for a file that the kernel would refuse. Precedence is by knob, first named
wins; a knob or a strategy that is not in the table is a mistake of ours and raises, so that two writers for one file cannot
come about silently. A group whose cpu.idle will be 1 gets no shares: the kernel answers EINVAL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cotenant_node_executor.kernel.interface import Knob
from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values, suppress
from cotenant_node_executor.strategies.situation import Wish

Wishes = dict[Knob, Wish]
"""The winning wishes of one group."""

PRECEDENCE: dict[Knob, tuple[str, ...]] = {
    Knob.CPU_SHARES: (idle.STRATEGY, batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPU_QUOTA: (suppress.STRATEGY, batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPUSET_CPUS: (suppress.STRATEGY,),
    Knob.MEMORY_LIMIT: (batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPU_IDLE: (idle.STRATEGY,),
    Knob.CPU_BVT: (identity.STRATEGY,),
}


class Composed(Struct, frozen=True):
    """By group, the winning wish of each file and what each shall say. A group's texts are the same object as long as they say
    the same, and all of it is while nothing changes."""

    wishes: Mapping[str, Mapping[Knob, Wish]]
    texts: Mapping[str, Mapping[Knob, str]]

    def wish(self, group: str, knob: Knob) -> Wish | None:
        """The wish that won a file."""
        return self.wishes.get(group, _NONE).get(knob)


_NONE: Mapping[Knob, Wish] = {}


class CompositionError(ValueError):
    """Two strategies own a file without stated precedence, or one strategy wishes two values for it."""


def compose(wishes: Iterable[Wish]) -> Wishes:
    """Return the winning wish of each file of one group. Raises CompositionError."""
    won: Wishes = {}
    for wish in wishes:
        order = PRECEDENCE.get(wish.knob, ())
        if wish.strategy not in order:
            raise CompositionError(f"{wish.knob.value}: strategy {wish.strategy!r} has no stated precedence")
        present = won.get(wish.knob)
        if present is None or order.index(wish.strategy) < order.index(present.strategy):
            won[wish.knob] = wish
        elif present.strategy == wish.strategy and present.value != wish.value:
            raise CompositionError(
                f"{wish.group or '/'} {wish.knob.value}: {wish.strategy} wishes {present.value!r} and {wish.value!r}"
            )
    idle_wish = won.get(Knob.CPU_IDLE)
    if idle_wish is not None and idle_wish.value == "1":
        won.pop(Knob.CPU_SHARES, None)
    return won


class Composer:
    """The wishes of one node by source. A source is put whole; only groups whose wishes it changes are composed anew, so the
    result follows from the wishes that stand, in whatever order they came. Bound: the sources that stand."""

    def __init__(self) -> None:
        self._wished: dict[str, dict[str, list[Wish]]] = {}
        """By group and source."""
        self._groups: dict[str, tuple[str, ...]] = {}
        """By source: the groups that it wishes something for."""
        self._unsettled: dict[str, None] = {}
        self._composed = Composed({}, {})

    def put(self, source: str, wishes: Iterable[Wish]) -> None:
        """All that a source wishes from now on; nothing: it is gone."""
        by_group: dict[str, list[Wish]] = {}
        for wish in wishes:
            by_group.setdefault(wish.group, []).append(wish)
        for group in self._groups.pop(source, ()):
            if group not in by_group:
                del self._wished[group][source]
                self._unsettled[group] = None
        for group, own in by_group.items():
            sources = self._wished.setdefault(group, {})
            if sources.get(source) != own:
                sources[source] = own
                self._unsettled[group] = None
        if by_group:
            self._groups[source] = tuple(by_group)

    def composed(self) -> Composed:
        """The winning wishes; the same object while nothing has changed. Raises CompositionError."""
        if self._unsettled:
            wishes, texts = dict(self._composed.wishes), dict(self._composed.texts)
            for group in self._unsettled:
                self._settle(group, wishes, texts)
            self._unsettled.clear()
            self._composed = Composed(wishes, texts)
        return self._composed

    def _settle(self, group: str, wishes: dict[str, Mapping[Knob, Wish]], texts: dict[str, Mapping[Knob, str]]) -> None:
        won = compose(wish for own in self._wished[group].values() for wish in own)
        if not won:
            wishes.pop(group, None)
            texts.pop(group, None)
            if not self._wished[group]:
                del self._wished[group]
            return
        wishes[group] = won
        said = {knob: wish.value for knob, wish in won.items()}
        if texts.get(group) != said:
            texts[group] = said

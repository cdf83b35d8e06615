"""One value for one file: the composer decides between all strategies' wishes.

In: wishes by source (a pod, or a strategy that looks at the node as a whole), put anew where a source has changed. Out: one
wish for each file of each group, and nothing for a file that the kernel would refuse. Precedence is by knob, first named
wins; a knob or a strategy that is not in the table is a mistake of ours and raises, so that two writers for one file cannot
come about silently. A group whose cpu.idle will be 1 gets no shares: the kernel answers EINVAL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values, suppress
from cotenant_node_executor.strategies.situation import Wish, Wishes
from cotenant_node_executor.targets.interface import Knob

REMEMBERED = 1024

PRECEDENCE: dict[Knob, tuple[str, ...]] = {
    Knob.CPU_SHARES: (idle.STRATEGY, batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPU_QUOTA: (suppress.STRATEGY, batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPUSET_CPUS: (suppress.STRATEGY,),
    Knob.MEMORY_LIMIT: (batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPU_IDLE: (idle.STRATEGY,),
    Knob.CPU_BVT: (identity.STRATEGY,),
}


class Composed(Struct, frozen=True, gc=False):
    """By group, the winning wish of each file and what each shall say, in the order of the files' names: the composer's own
    tables, which show the newest values. `changed` names the groups of which these may be others than the last time."""

    wishes: Mapping[str, Mapping[Knob, Wish]]
    texts: Mapping[str, Mapping[Knob, str]]
    changed: Collection[str] = ()

    def wish(self, group: str, knob: Knob) -> Wish | None:
        """The wish that won a file."""
        return self.wishes.get(group, _NONE).get(knob)


_NONE: Mapping[Knob, Wish] = {}


class CompositionError(ValueError):
    """Two strategies own a file without stated precedence, or one strategy wishes two values for it."""


def compose(wishes: Iterable[Wish]) -> dict[Knob, Wish]:
    """Return the winning wish of each file of one group. Raises CompositionError."""
    won: dict[Knob, Wish] = {}
    for wish in wishes:
        knob = wish.knob
        order = PRECEDENCE.get(knob, ())
        if wish.strategy not in order:
            raise CompositionError(f"{knob.value}: strategy {wish.strategy!r} has no stated precedence")
        present = won.get(knob)
        if present is None or order.index(wish.strategy) < order.index(present.strategy):
            won[knob] = wish
        elif present.strategy == wish.strategy and present.value != wish.value:
            raise CompositionError(f"{knob.value}: {wish.strategy} wishes {present.value!r} and {wish.value!r}")
    idle_wish = won.get(Knob.CPU_IDLE)
    if idle_wish is not None and idle_wish.value == "1":
        won.pop(Knob.CPU_SHARES, None)
    return won


def _file_name(knob: Knob) -> str:
    return knob.value


@lru_cache(maxsize=REMEMBERED)
def _settled(wishes: tuple[Wish, ...]) -> tuple[Mapping[Knob, Wish], Mapping[Knob, str]]:
    """The winning wishes and their texts: shared by all groups for which the same is wished. Raises CompositionError."""
    won = compose(wishes)
    return won, {knob: won[knob].value for knob in sorted(won, key=_file_name)}


class Composer:
    """The wishes of one node by source. A source is put whole; only groups whose wishes it changes are composed anew, so the
    result follows from the wishes that stand, in whatever order they came. Bound: the sources that stand."""

    def __init__(self) -> None:
        self._wished: dict[str, dict[str, tuple[Wish, ...]]] = {}
        """By group and source."""
        self._groups: dict[str, tuple[str, ...]] = {}
        """By source: the groups that it wishes something for."""
        self._unsettled: dict[str, None] = {}
        self._wishes: dict[str, Mapping[Knob, Wish]] = {}
        self._texts: dict[str, Mapping[Knob, str]] = {}
        self._unchanged = Composed(self._wishes, self._texts)

    def put(self, source: str, wishes: Wishes) -> None:
        """All that a source wishes from now on; nothing: it is gone."""
        for group in self._groups.pop(source, ()):
            if group not in wishes:
                del self._wished[group][source]
                self._unsettled[group] = None
        for group, own in wishes.items():
            sources = self._wished.setdefault(group, {})
            if sources.get(source) != own:
                sources[source] = own
                self._unsettled[group] = None
        if wishes:
            self._groups[source] = tuple(wishes)

    def composed(self) -> Composed:
        """The winning wishes. Raises CompositionError."""
        if not self._unsettled:
            return self._unchanged
        changed = tuple(self._unsettled)
        for group in changed:
            self._settle(group)
        self._unsettled.clear()
        return Composed(self._wishes, self._texts, changed)

    def _settle(self, group: str) -> None:
        sources = self._wished[group]
        own: tuple[Wish, ...] = ()
        for wishes in sources.values():
            own += wishes
        if not own:
            self._wishes.pop(group, None)
            self._texts.pop(group, None)
            if not sources:
                del self._wished[group]
            return
        try:
            self._wishes[group], self._texts[group] = _settled(own)
        except CompositionError as error:
            raise CompositionError(f"{group or '/'} {error}") from error

"""One value for one file: the composer decides between all strategies' wishes.

In: every strategy's wishes of a cycle. Out: one wish for each (group, knob), and nothing for a file that the kernel would
refuse. Precedence is by knob, first named wins; a knob or a strategy that is not in the table is a mistake of ours and
raises, so that two writers for one file cannot come about silently. A group whose cpu.idle will be 1 gets no shares: the
kernel answers EINVAL.
"""

from __future__ import annotations

from collections.abc import Iterable

from cotenant_node_executor.kernel.interface import Knob
from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values, suppress
from cotenant_node_executor.strategies.situation import Situation, Wish
from cotenant_node_executor.strategies.suppress import Suppression

PRECEDENCE: dict[Knob, tuple[str, ...]] = {
    Knob.CPU_SHARES: (idle.STRATEGY, batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPU_QUOTA: (suppress.STRATEGY, batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPUSET_CPUS: (suppress.STRATEGY,),
    Knob.MEMORY_LIMIT: (batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPU_IDLE: (idle.STRATEGY,),
    Knob.CPU_BVT: (identity.STRATEGY,),
}


class CompositionError(ValueError):
    """Two strategies own a file without stated precedence, or one strategy wishes two values for it."""


def compose(wishes: Iterable[Wish]) -> dict[tuple[str, Knob], Wish]:
    """Return the winning wish of each file, sorted by group and file. Raises CompositionError."""
    won: dict[tuple[str, Knob], Wish] = {}
    for wish in wishes:
        order = PRECEDENCE.get(wish.knob, ())
        if wish.strategy not in order:
            raise CompositionError(f"{wish.knob.value}: strategy {wish.strategy!r} has no stated precedence")
        key = (wish.group, wish.knob)
        present = won.get(key)
        if present is None or order.index(wish.strategy) < order.index(present.strategy):
            won[key] = wish
        elif present.strategy == wish.strategy and present.value != wish.value:
            raise CompositionError(
                f"{wish.group or '/'} {wish.knob.value}: {wish.strategy} wishes {present.value!r} and {wish.value!r}"
            )
    for (group, knob), wish in list(won.items()):
        if knob is Knob.CPU_IDLE and wish.value == "1":
            won.pop((group, Knob.CPU_SHARES), None)
    return {key: won[key] for key in sorted(won, key=lambda key: (key[0], key[1].value))}


def wishes_of(situation: Situation, suppression: Suppression | None) -> list[Wish]:
    """Every strategy's wishes, in the stated order."""
    return [
        *(suppression.wishes if suppression is not None else ()),
        *identity.identity(situation),
        *idle.idle(situation),
        *batch_pods.batch_pods(situation),
        *pod_values.pod_values(situation),
    ]

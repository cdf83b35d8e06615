"""One value for one file: the composer decides between all strategies' wishes.

In: every strategy's wishes of a cycle. Out: one wish for each (group, knob), and nothing for a file that the kernel would
refuse. Precedence is by knob, first named wins; a knob or a strategy that is not in the table is a mistake of ours and
raises, so that two writers for one file cannot come about silently. A group whose cpu.idle will be 1 gets no shares: the
kernel answers EINVAL.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from cotenant_node_executor.kernel.interface import Knob
from cotenant_node_executor.strategies import batch_pods, identity, idle, pod_values, suppress
from cotenant_node_executor.strategies.situation import PodView, Policy, Situation, Wish
from cotenant_node_executor.strategies.suppress import Suppression

Key = tuple[str, Knob]
Wishes = dict[Key, Wish]

PRECEDENCE: dict[Knob, tuple[str, ...]] = {
    Knob.CPU_SHARES: (idle.STRATEGY, batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPU_QUOTA: (suppress.STRATEGY, batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPUSET_CPUS: (suppress.STRATEGY,),
    Knob.MEMORY_LIMIT: (batch_pods.STRATEGY, pod_values.STRATEGY),
    Knob.CPU_IDLE: (idle.STRATEGY,),
    Knob.CPU_BVT: (identity.STRATEGY,),
}


class Composed(Struct, frozen=True):
    """The winning wish of each file, and what each shall say: `texts` is the same object while that has not changed."""

    wishes: Mapping[Key, Wish]
    texts: Mapping[Key, str]


class CompositionError(ValueError):
    """Two strategies own a file without stated precedence, or one strategy wishes two values for it."""


def compose(wishes: Iterable[Wish]) -> Wishes:
    """Return the winning wish of each file. Raises CompositionError."""
    won: Wishes = {}
    _fold(won, wishes)
    return won


def _fold(won: Wishes, wishes: Iterable[Wish]) -> None:
    """Let more wishes compete with those that have won so far."""
    competing = False
    for wish in wishes:
        order = PRECEDENCE.get(wish.knob, ())
        if wish.strategy not in order:
            raise CompositionError(f"{wish.knob.value}: strategy {wish.strategy!r} has no stated precedence")
        key = (wish.group, wish.knob)
        present = won.get(key)
        if present is None or order.index(wish.strategy) < order.index(present.strategy):
            won[key] = wish
            competing = competing or wish.knob in (Knob.CPU_IDLE, Knob.CPU_SHARES)
        elif present.strategy == wish.strategy and present.value != wish.value:
            raise CompositionError(
                f"{wish.group or '/'} {wish.knob.value}: {wish.strategy} wishes {present.value!r} and {wish.value!r}"
            )
    if competing:
        for (group, knob), wish in list(won.items()):
            if knob is Knob.CPU_IDLE and wish.value == "1":
                won.pop((group, Knob.CPU_SHARES), None)


class Composer:
    """Composes every strategy's wishes of one node, and anew only what has changed since the last cycle.

    What is remembered follows from its inputs alone: a pod's own values from its view and the policy, the standing values
    from the situation without snapshot and present values. Bound: the pods of the last situation.
    """

    def __init__(self) -> None:
        self._policy: Policy | None = None
        self._pods: dict[str, tuple[PodView, Wishes]] = {}
        self._situation: Situation | None = None
        self._standing: Wishes = {}
        self._suppression: Suppression | None = None
        self._composed = Composed({}, {})

    def compose(self, situation: Situation, suppression: Suppression | None) -> Composed:
        """The winning wishes of a cycle. `situation` is the same object while only snapshot and present values differ, and so
        is `suppression`. Raises CompositionError."""
        if situation is not self._situation:
            self._standing = self._compose_standing(situation)
        elif suppression is self._suppression:
            return self._composed
        wishes = dict(self._standing)
        if suppression is not None:
            _fold(wishes, suppression.wishes)
        texts = {key: wish.value for key, wish in wishes.items()}
        self._composed = Composed(wishes, self._composed.texts if texts == self._composed.texts else texts)
        self._situation, self._suppression = situation, suppression
        return self._composed

    def _compose_standing(self, situation: Situation) -> Wishes:
        policy = self._policy
        if policy is None or policy.slo is not situation.slo or policy.capabilities is not situation.capabilities:
            rule = idle.idle_rule(situation.slo, situation.capabilities)
            policy = self._policy = Policy(situation.capabilities, situation.slo, rule)
            self._pods = {}
        known, self._pods = self._pods, {}
        won: Wishes = {}
        for pod in situation.pods:
            entry = known.get(pod.group)
            if entry is None or entry[0] is not pod:
                entry = (pod, compose(_pod_wishes(pod, policy)))
            self._pods[pod.group] = entry
            won |= entry[1]
        _fold(won, _node_wishes(situation, policy))
        return won


def _pod_wishes(pod: PodView, policy: Policy) -> list[Wish]:
    """Wishes for the groups of one pod that follow from it and the policy."""
    return [*idle.pod_wishes(pod, policy), *batch_pods.pod_wishes(pod, policy), *pod_values.pod_wishes(pod)]


def _node_wishes(situation: Situation, policy: Policy) -> list[Wish]:
    """Wishes that follow from the node as a whole."""
    return [*identity.identity(situation), *idle.node_wishes(situation, policy), *pod_values.node_wishes(situation)]

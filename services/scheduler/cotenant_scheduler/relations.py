"""What pods want of other pods: affinity, anti-affinity and spread, with their selectors numbered.

In: the affinity and spread constraints of a pod, its namespace and labels. Out: `Relations` (terms about numbered
selectors) and, for any pod, the numbers of all known selectors that select it. Pods are counted per selector, so a
selector that several constraints share is matched once a pod. A selector is a conjunction of parts, each a set of
namespaces and a label selector; the required affinity of a pod is one selector over all its terms, as in Kubernetes.

Namespaces: those of the term, else the pod's own. An empty namespaceSelector means all; another one is held against the
label `kubernetes.io/metadata.name`, the only one that every namespace has. A missing label selector selects nothing.

Bounds: selectors are numbered once and kept; MATCHES_KEPT label sets are remembered with their selectors.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.objects.metadata import LabelSelector, LabelSelectorRequirement
from cotenant.objects.pod import Pod, PodAffinityTerm

MATCHES_KEPT = 16_384
NAMESPACE_NAME = "kubernetes.io/metadata.name"

Expression = tuple[str, str, tuple[str, ...]]
"""Key, operator, values."""


class Part(msgspec.Struct, frozen=True):
    """Pods of some namespaces with some labels. `namespaces` None: all that `namespace_expressions` select."""

    namespaces: tuple[str, ...] | None
    namespace_expressions: tuple[Expression, ...]
    expressions: tuple[Expression, ...] | None
    """None selects nothing."""

    def selects(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod is selected."""
        if self.expressions is None or (self.namespaces is not None and namespace not in self.namespaces):
            return False
        if self.namespaces is None and not all(_holds(e, {NAMESPACE_NAME: namespace}) for e in self.namespace_expressions):
            return False
        return all(_holds(expression, labels) for expression in self.expressions)


Selector = tuple[Part, ...]
"""All parts must select the pod."""


class Term(msgspec.Struct, frozen=True):
    """Pods of a selector, per domain of a topology; `weight` of preferred terms, below 0 for anti-affinity."""

    selector: int
    topology: str
    weight: int = 0


class Spread(msgspec.Struct, frozen=True):
    """One topology spread constraint."""

    selector: int
    topology: str
    max_skew: int
    min_domains: int
    hard: bool
    honour_affinity: bool = True
    """Only nodes that the pod's node selector and required affinity match count."""
    honour_taints: bool = False
    """Only nodes whose taints the pod tolerates count."""


class Relations(msgspec.Struct, frozen=True):
    """What a pod wants of others; equal wants are equal objects."""

    affinity: tuple[Term, ...] = ()
    """Required; all terms have the selector of their conjunction."""
    each_affinity: tuple[Term, ...] = ()
    """Required, each with its own selector: what others are attracted by."""
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()
    spread: tuple[Spread, ...] = ()

    @property
    def wanted(self) -> frozenset[int]:
        """The selectors of required affinity and hard spread: a pod that they select, placed, can make nodes feasible."""
        hard = (constraint.selector for constraint in self.spread if constraint.hard)
        return frozenset((*(term.selector for term in self.affinity), *hard))


NO_RELATIONS = Relations()


class SelectorBook:
    """Numbers selectors, and tells which of them select a pod."""

    def __init__(self) -> None:
        self.selectors: list[Selector] = []
        self._numbers: dict[Selector, int] = {}
        self._matches: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, ...]] = {}
        self._told = 0

    def number(self, selector: Selector) -> int:
        """Return the number of a selector."""
        known = self._numbers.get(selector)
        if known is None:
            known = self._numbers[selector] = len(self.selectors)
            self.selectors.append(selector)
            self._matches.clear()
        return known

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the numbers of the selectors that select a pod, ascending."""
        if not self.selectors:
            return ()
        key = (namespace, tuple(sorted(labels.items())))
        known = self._matches.get(key)
        if known is None:
            known = tuple(
                number
                for number, selector in enumerate(self.selectors)
                if all(part.selects(namespace, labels) for part in selector)
            )
            if len(self._matches) >= MATCHES_KEPT:
                self._matches.clear()
            self._matches[key] = known
        return known

    def take_new(self) -> list[Selector]:
        """Return the selectors numbered since the last call."""
        new = self.selectors[self._told :]
        self._told = len(self.selectors)
        return new

    def relations(self, pod: Pod) -> Relations:
        """Return what a pod wants of others."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        affinity = pod.spec.affinity
        together = affinity.pod_affinity if affinity else None
        apart = affinity.pod_anti_affinity if affinity else None
        required = [(_part(term, namespace), term.topology_key) for term in (together.required if together else [])]
        all_parts = tuple(dict.fromkeys(part for part, _ in required))
        everyone = self.number(all_parts) if required else -1
        wishes = [
            (wish.pod_affinity_term, sign * wish.weight)
            for side, sign in ((together, 1), (apart, -1))
            for wish in (side.preferred if side else [])
        ]
        preferred = [Term(self.number((_part(term, namespace),)), term.topology_key, weight) for term, weight in wishes]
        spread = []
        for constraint in pod.spec.topology_spread_constraints:
            expressions = _expressions(constraint.label_selector)
            keys = [key for key in constraint.match_label_keys if key in labels]
            if expressions is not None:
                expressions += tuple((key, "In", (labels[key],)) for key in keys)
            spread.append(
                Spread(
                    self.number((Part((namespace,), (), expressions),)),
                    constraint.topology_key,
                    constraint.max_skew,
                    constraint.min_domains or 1,
                    constraint.when_unsatisfiable != "ScheduleAnyway",
                    constraint.node_affinity_policy != "Ignore",
                    constraint.node_taints_policy == "Honor",
                )
            )
        return Relations(
            affinity=tuple(Term(everyone, topology) for _, topology in required),
            each_affinity=tuple(Term(self.number((part,)), topology) for part, topology in required),
            anti_affinity=tuple(
                Term(self.number((_part(term, namespace),)), term.topology_key) for term in (apart.required if apart else [])
            ),
            preferred=tuple(preferred),
            spread=tuple(spread),
        )


def _part(term: PodAffinityTerm, namespace: str) -> Part:
    expressions = _expressions(term.label_selector)
    if term.namespace_selector is not None:
        wanted = _expressions(term.namespace_selector) or ()
        if not term.namespaces:
            return Part(None, wanted, expressions)
        if not wanted:
            return Part(None, (), expressions)
    return Part(tuple(sorted(term.namespaces)) or (namespace,), (), expressions)


def _expressions(selector: LabelSelector | None) -> tuple[Expression, ...] | None:
    if selector is None:
        return None
    equal = tuple((key, "In", (value,)) for key, value in sorted(selector.match_labels.items()))
    return equal + tuple(_expression(requirement) for requirement in selector.match_expressions)


def _expression(requirement: LabelSelectorRequirement) -> Expression:
    return (requirement.key, requirement.operator, tuple(requirement.values))


def _holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression
    value = labels.get(key)
    match operator:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    return False

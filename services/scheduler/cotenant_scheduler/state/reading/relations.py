"""Relations between pods: affinity, anti-affinity and spread, with numbered selectors.

In: the affinity and spread constraints of a pod, its namespace and labels; the labels of namespaces. Out: `Relations`
(terms about numbered selectors) and, for any pod, the numbers of all known selectors that select it. Pods are counted per
selector, so a selector that several constraints share is matched once a pod. A selector is a conjunction of parts, each
a set of namespaces and a label selector; the required affinity of a pod is one selector over all its terms, as in Kubernetes.

Namespaces of a term: those that it lists, and those whose labels its namespaceSelector selects; the pod's own where it has
no selector and lists none; all where the selector is empty. Every namespace has the label `kubernetes.io/metadata.name`,
also one without an object. A missing label selector selects no pod. `matchLabelKeys` adds the pod's own values of these labels
to the selector, `mismatchLabelKeys` excludes them; labels that the pod lacks are left out. Source: Kubernetes' PodAffinityTerm.

A selector has a number as long as known pods hold it, by their object or their placements. One that returns gets
another number.

Bounds: the selectors of known pods; MATCHES_CACHED label sets are cached with their selectors; labels are held of
namespaces that have some besides their name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from cotenant.api.objects.metadata import LabelSelector, LabelSelectorRequirement
from cotenant.api.objects.pod import Pod, PodAffinityTerm, TopologySpreadConstraint
from cotenant.api.objects.selectors import expression_holds

MATCHES_CACHED = 16_384
NAMESPACE_NAME = "kubernetes.io/metadata.name"

Expression = tuple[str, str, tuple[str, ...]]
"""Key, operator, values."""


class NamespacedSelector(msgspec.Struct, frozen=True):
    """Pods of some namespaces with some labels; both lists of expressions select nothing where they are None."""

    namespaces: tuple[str, ...]
    namespace_expressions: tuple[Expression, ...] | None
    """Namespaces whose labels match belong to it as well as those it lists."""
    expressions: tuple[Expression, ...] | None

    def has(self, namespace: str, namespace_labels: Mapping[str, str]) -> bool:
        """Return whether pods of a namespace can be selected."""
        return namespace in self.namespaces or _hold(self.namespace_expressions, namespace_labels)

    def selects(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Return whether a pod is selected."""
        return self.has(namespace, namespace_labels) and _hold(self.expressions, labels)


Selector = tuple[NamespacedSelector, ...]
"""All parts must select the pod."""


class AffinityTerm(msgspec.Struct, frozen=True):
    """Pods of a selector, per domain of a topology; `weight` of preferred terms, below 0 for anti-affinity."""

    selector: int
    topology: str
    weight: int = 0


class SpreadConstraint(msgspec.Struct, frozen=True):
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
    lenient: bool = False
    """Nodes without the topology keys of all soft constraints count, too: the system's own defaults are so."""


class Relations(msgspec.Struct, frozen=True):
    """A pod's affinity and spread constraints; equal constraints are one object."""

    affinity: tuple[AffinityTerm, ...] = ()
    """Required; all terms have the selector of their conjunction."""
    each_affinity: tuple[AffinityTerm, ...] = ()
    """Required, each with its own selector, by which other pods are scored."""
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()

    @property
    def wanted(self) -> frozenset[int]:
        """The selectors of required affinity and hard spread: a pod that they select, placed, can make nodes feasible."""
        hard = (constraint.selector for constraint in self.spread if constraint.hard)
        return frozenset((*(term.selector for term in self.affinity), *hard))

    @property
    def held(self) -> frozenset[int]:
        """All selectors."""
        terms = (*self.affinity, *self.each_affinity, *self.anti_affinity, *self.preferred)
        return frozenset((*(term.selector for term in terms), *(constraint.selector for constraint in self.spread)))


NO_RELATIONS = Relations()


class SelectorIndex:
    """Numbers selectors, and finds those that select a pod."""

    def __init__(self) -> None:
        self.selectors: dict[int, Selector] = {}
        """By number, ascending."""
        self._namespaces: dict[str, dict[str, str]] = {}
        self._numbers: dict[Selector, int] = {}
        self._next = 0
        self.new: list[Selector] = []
        """Selectors that known pods have not been matched against yet."""
        self._holders: dict[int, int] = {}
        self.unheld: set[int] = set()
        """Numbers of selectors without a holder."""
        self._matches: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[int, ...]] = {}

    def number(self, selector: Selector) -> int:
        """Return the number of a selector."""
        known = self._numbers.get(selector)
        if known is None:
            known = self._numbers[selector] = self._next
            self._next += 1
            self.selectors[known] = selector
            self.new.append(selector)
            self.unheld.add(known)
            self._matches.clear()
        return known

    def hold(self, numbers: Iterable[int], sign: int) -> None:
        """Count a holder of these selectors (1), or remove one (-1)."""
        for number in numbers:
            holders = self._holders.get(number, 0) + sign
            if holders:
                self._holders[number] = holders
                self.unheld.discard(number)
            else:
                del self._holders[number]
                self.unheld.add(number)

    def forget_unheld(self) -> Set[int]:
        """Drop the selectors without a holder; return their numbers."""
        if not self.unheld:
            return frozenset()
        forgotten, self.unheld = self.unheld, set()
        for number in forgotten:
            del self._numbers[self.selectors.pop(number)]
        self.new = [selector for selector in self.new if selector in self._numbers]
        self._matches.clear()
        return forgotten

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> tuple[int, ...]:
        """Return the numbers of the selectors that select a pod, ascending."""
        if not self.selectors:
            return ()
        key = (namespace, tuple(sorted(labels.items())))
        known = self._matches.get(key)
        if known is None:
            known = tuple(
                number for number, selector in self.selectors.items() if self.selects(selector, namespace, labels)
            )
            if len(self._matches) >= MATCHES_CACHED:
                self._matches.clear()
            self._matches[key] = known
        return known

    def selects(self, selector: Selector, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a selector selects a pod."""
        of_namespace = self._labels_of(namespace)
        return all(part.selects(namespace, of_namespace, labels) for part in selector)

    def label_namespace(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Take over the labels of a namespace; return whether that changes which selectors can select its pods."""
        before = self._labels_of(namespace)
        if labels:
            self._namespaces[namespace] = {**labels, NAMESPACE_NAME: namespace}
        else:
            self._namespaces.pop(namespace, None)
        after = self._labels_of(namespace)
        if before == after or all(
            part.has(namespace, before) == part.has(namespace, after)
            for selector in self.selectors.values()
            for part in selector
        ):
            return False
        self._matches.clear()
        return True

    def _labels_of(self, namespace: str) -> Mapping[str, str]:
        return self._namespaces.get(namespace) or {NAMESPACE_NAME: namespace}

    def take_new(self) -> list[Selector]:
        """Return the selectors numbered since the last call."""
        new, self.new = self.new, []
        return new

    def relations(self, pod: Pod, defaults: Sequence[TopologySpreadConstraint] = (), *, lenient: bool = False) -> Relations:
        """Return a pod's affinity and spread constraints. `defaults`: constraints in place of its own, which it does not state;
        `lenient`: whether they are."""
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        affinity = pod.spec.affinity
        together = affinity.pod_affinity if affinity else None
        apart = affinity.pod_anti_affinity if affinity else None
        required = [(_part(term, namespace, labels), term.topology_key) for term in (together.required if together else [])]
        all_parts = tuple(dict.fromkeys(part for part, _ in required))
        everyone = self.number(all_parts) if required else -1
        weighted = [
            (term.pod_affinity_term, sign * term.weight)
            for side, sign in ((together, 1), (apart, -1))
            for term in (side.preferred if side else [])
        ]
        preferred = [
            AffinityTerm(self.number((_part(term, namespace, labels),)), term.topology_key, weight) for term, weight in weighted
        ]
        spread = []
        for constraint in defaults or pod.spec.topology_spread_constraints:
            expressions = _with_own_labels(_expressions(constraint.label_selector), constraint.match_label_keys, "In", labels)
            spread.append(
                SpreadConstraint(
                    self.number((NamespacedSelector((namespace,), None, expressions),)),
                    constraint.topology_key,
                    constraint.max_skew,
                    constraint.min_domains or 1,
                    constraint.when_unsatisfiable != "ScheduleAnyway",
                    constraint.node_affinity_policy != "Ignore",
                    constraint.node_taints_policy == "Honor",
                    lenient,
                )
            )
        return Relations(
            affinity=tuple(AffinityTerm(everyone, topology) for _, topology in required),
            each_affinity=tuple(AffinityTerm(self.number((part,)), topology) for part, topology in required),
            anti_affinity=tuple(
                AffinityTerm(self.number((_part(term, namespace, labels),)), term.topology_key)
                for term in (apart.required if apart else [])
            ),
            preferred=tuple(preferred),
            spread=tuple(spread),
        )


def _part(term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> NamespacedSelector:
    expressions = _with_own_labels(_expressions(term.label_selector), term.match_label_keys, "In", labels)
    expressions = _with_own_labels(expressions, term.mismatch_label_keys, "NotIn", labels)
    of_namespaces = _expressions(term.namespace_selector)
    if of_namespaces == ():
        return NamespacedSelector((), (), expressions)
    if of_namespaces is None and not term.namespaces:
        return NamespacedSelector((namespace,), None, expressions)
    return NamespacedSelector(tuple(sorted(set(term.namespaces))), of_namespaces, expressions)


def _expressions(selector: LabelSelector | None) -> tuple[Expression, ...] | None:
    if selector is None:
        return None
    equal = tuple((key, "In", (value,)) for key, value in sorted(selector.match_labels.items()))
    return equal + tuple(_expression(requirement) for requirement in selector.match_expressions)


def _with_own_labels(
    expressions: tuple[Expression, ...] | None, keys: Iterable[str], operator: str, labels: Mapping[str, str]
) -> tuple[Expression, ...] | None:
    """The expressions with those for the pod's own values of some labels; keys that it lacks are left out."""
    if expressions is None:
        return None
    return expressions + tuple((key, operator, (labels[key],)) for key in keys if key in labels)


def _expression(requirement: LabelSelectorRequirement) -> Expression:
    return (requirement.key, requirement.operator, tuple(requirement.values))


def _hold(expressions: tuple[Expression, ...] | None, labels: Mapping[str, str]) -> bool:
    return expressions is not None and all(
        expression_holds(key, operator, values, labels) for key, operator, values in expressions
    )

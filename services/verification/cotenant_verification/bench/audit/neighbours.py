"""Constraints among pods: affinity, anti-affinity on both sides, hard topology spread.

In: the pods placed so far, by namespace and labels, every node's labels and every namespace's. Out: for one pod, which nodes
refuse it and why. Part of the independent check, see `rooms`. Source: Kubernetes' documented rules: a term applies to the
namespaces that it lists and those that its selector selects, the pod's own if it has neither; every namespace has its
name as a label. A pod on a removed node is in no domain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from cotenant.api.objects.metadata import LabelSelector
from cotenant.api.objects.pod import PodAffinityTerm
from cotenant_verification.bench.audit.rooms import Facts, LabelItems, PodRequirements, keyed, required, selects, selects_node

Labels = tuple[str, LabelItems]
"""A namespace, and a pod's labels in it."""
TermKey = tuple[str, bytes]
NAMESPACE_NAME = "kubernetes.io/metadata.name"


class Neighbours:
    """Placed pods with their labels, and the pods that their anti-affinity excludes."""

    def __init__(self, facts: Mapping[str, Facts], namespaces: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._facts = facts
        self._namespaces = namespaces or {}
        self._on: dict[Labels, Counter[str]] = defaultdict(Counter)
        self._keep_away: dict[TermKey, tuple[PodAffinityTerm, Counter[str]]] = {}

    def add(self, need: PodRequirements, node: str, sign: int = 1) -> None:
        """Add a pod that is placed on a node (with -1: remove it)."""
        namespace = need.pod.metadata.namespace
        self._on[namespace, need.labels][node] += sign
        for written, term in need.keeps_away:
            self._keep_away.setdefault((namespace, written), (term, Counter()))[1][node] += sign

    def judge(self, need: PodRequirements) -> Callable[[str], str]:
        """Return a function from a node to the reason why it refuses the pod; empty if it does not."""
        rules = [*self._affinity(need), *self._apart(need), *self._spread(need)]
        return lambda node: next((reason for rule in rules if (reason := rule(node))), "")

    def _about(self, term: PodAffinityTerm, own: str, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a term of a pod in the namespace `own` applies to a pod with these labels in a namespace."""
        if not selects(term.label_selector, labels):
            return False
        if term.namespace_selector is None and not term.namespaces:
            return namespace == own
        bears = {**self._namespaces.get(namespace, {}), NAMESPACE_NAME: namespace}
        return namespace in term.namespaces or selects(term.namespace_selector, bears)

    def _with(self, term: PodAffinityTerm, own: str) -> Counter[str]:
        """The nodes with pods to which a term applies."""
        found: Counter[str] = Counter()
        for (namespace, labels), nodes in self._on.items():
            if self._about(term, own, namespace, dict(labels)):
                found.update(nodes)
        return +found

    def _selected(self, selector: LabelSelector | None, own: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for (namespace, labels), nodes in self._on.items():
            if namespace == own and selects(selector, dict(labels)):
                found.update(nodes)
        return +found

    def _domain(self, node: str, key: str) -> str | None:
        facts = self._facts.get(node)
        return None if facts is None else facts.labels.get(key)

    def _domains(self, nodes: Counter[str], key: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for node, many in nodes.items():
            if (domain := self._domain(node, key)) is not None:
                found[domain] += many
        return found

    def _apart(self, need: PodRequirements) -> list[Callable[[str], str]]:
        metadata = need.pod.metadata
        own = [(term, self._with(term, metadata.namespace), "avoids a pod there") for _, term in need.keeps_away]
        others = [
            (term, +nodes, "a pod there keeps it away")
            for (holders, _), (term, nodes) in self._keep_away.items()
            if self._about(term, holders, metadata.namespace, metadata.labels)
        ]

        def rule(key: str, nodes: Counter[str], text: str) -> Callable[[str], str]:
            full = self._domains(nodes, key)
            return lambda node: text if full[self._domain(node, key) or ""] else ""

        return [rule(term.topology_key, nodes, text) for term, nodes, text in (*own, *others)]

    def _affinity(self, need: PodRequirements) -> list[Callable[[str], str]]:
        terms = required(need.pod, apart=False)
        if not terms:
            return []
        own, labels = need.pod.metadata.namespace, need.pod.metadata.labels
        everyone: Counter[str] = Counter()
        for (namespace, on), nodes in self._on.items():
            if all(self._about(term, own, namespace, dict(on)) for term in terms):
                everyone.update(nodes)
        everyone = +everyone
        first = not everyone and all(self._about(term, own, own, labels) for term in terms)

        def rule(key: str) -> Callable[[str], str]:
            present = self._domains(everyone, key)

            def refuses(node: str) -> str:
                domain = self._domain(node, key)
                if domain is None:
                    return f"no label {key}"
                return "" if first or present[domain] else "not with the pods it must be with"

            return refuses

        return [rule(term.topology_key) for term in terms]

    def _spread(self, need: PodRequirements) -> list[Callable[[str], str]]:
        hard = [c for c in need.pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
        if not hard:
            return []
        labels, namespace = need.pod.metadata.labels, need.pod.metadata.namespace
        keys = [c.topology_key for c in hard]
        eligible = {
            node
            for node, facts in self._facts.items()
            if all(key in facts.labels for key in keys) and selects_node(need.pod, facts)
        }

        def rule(key: str, selector: LabelSelector | None, skew: int, least: int) -> Callable[[str], str]:
            counts = dict.fromkeys([self._facts[node].labels[key] for node in eligible], 0)
            for node, many in self._selected(selector, namespace).items():
                if node in eligible:
                    counts[self._facts[node].labels[key]] += many
            fewest = min(counts.values(), default=0) if len(counts) >= least else 0
            own = selects(selector, labels)

            def refuses(node: str) -> str:
                domain = self._domain(node, key)
                if domain is None:
                    return f"no label {key}"
                here = counts.get(domain, 0) + own - fewest
                return f"skew {here} > {skew} over {key}" if here > skew else ""

            return refuses

        return [
            rule(c.topology_key, keyed(c.label_selector, c.match_label_keys, "In", labels), c.max_skew, c.min_domains or 1)
            for c in hard
        ]

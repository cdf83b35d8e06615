"""What the pods elsewhere have to say to a pod: affinity, anti-affinity on both sides, hard topology spread.

In: the pods placed so far, by their labels, and every node's labels. Out: for one pod, which nodes refuse it and why. Part of
the independent check, see `rooms`. Source: Kubernetes' documented rules. Terms with namespaces of their own are not known
here and are an error: the workloads live in one namespace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from cotenant.objects.metadata import LabelSelector
from cotenant.objects.pod import PodAffinityTerm
from cotenant_console.bench.rooms import Facts, Need, selects, selects_node

Labels = tuple[tuple[str, str], ...]
TermKey = tuple[bytes, str]


class Neighbours:
    """Where pods of which labels are, and what those that are placed keep away."""

    def __init__(self, facts: Mapping[str, Facts]) -> None:
        self._facts = facts
        self._on: dict[Labels, Counter[str]] = {}
        self._keep_away: dict[TermKey, tuple[PodAffinityTerm, Counter[str]]] = {}

    def add(self, need: Need, node: str, sign: int = 1) -> None:
        """A pod is placed on a node (or, with -1, no longer)."""
        labels = tuple(sorted(need.pod.metadata.labels.items()))
        self._on.setdefault(labels, Counter())[node] += sign
        for term in _required(need, apart=True):
            key = (msgspec.json.encode(term.label_selector), term.topology_key)
            self._keep_away.setdefault(key, (term, Counter()))[1][node] += sign

    def judge(self, need: Need) -> Callable[[str], str]:
        """Return what says of a node why it refuses the pod; empty if it does not."""
        rules = [*self._affinity(need), *self._apart(need), *self._spread(need)]
        return lambda node: next((said for rule in rules if (said := rule(node))), "")

    def _selected(self, selector: LabelSelector | None) -> Counter[str]:
        found: Counter[str] = Counter()
        for labels, nodes in self._on.items():
            if selects(selector, dict(labels)):
                found.update(nodes)
        return +found

    def _domain(self, node: str, key: str) -> str | None:
        return self._facts[node].labels.get(key)

    def _domains(self, nodes: Counter[str], key: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for node, many in nodes.items():
            if (domain := self._domain(node, key)) is not None:
                found[domain] += many
        return found

    def _apart(self, need: Need) -> list[Callable[[str], str]]:
        own = [(term, self._selected(term.label_selector), "avoids a pod there") for term in _required(need, apart=True)]
        others = [
            (term, +nodes, "a pod there keeps it away")
            for term, nodes in self._keep_away.values()
            if selects(term.label_selector, need.pod.metadata.labels)
        ]

        def rule(key: str, nodes: Counter[str], text: str) -> Callable[[str], str]:
            full = self._domains(nodes, key)
            return lambda node: text if full[self._domain(node, key) or ""] else ""

        return [rule(term.topology_key, nodes, text) for term, nodes, text in (*own, *others)]

    def _affinity(self, need: Need) -> list[Callable[[str], str]]:
        terms = _required(need, apart=False)
        labels = need.pod.metadata.labels
        everyone: Counter[str] = Counter()
        for on, nodes in self._on.items():
            if terms and all(selects(term.label_selector, dict(on)) for term in terms):
                everyone.update(nodes)
        everyone = +everyone
        first = not everyone and all(selects(term.label_selector, labels) for term in terms)

        def rule(key: str) -> Callable[[str], str]:
            present = self._domains(everyone, key)

            def refuses(node: str) -> str:
                domain = self._domain(node, key)
                if domain is None:
                    return f"no label {key}"
                return "" if first or present[domain] else "not with the pods it must be with"

            return refuses

        return [rule(term.topology_key) for term in terms]

    def _spread(self, need: Need) -> list[Callable[[str], str]]:
        hard = [c for c in need.pod.spec.topology_spread_constraints if c.when_unsatisfiable == "DoNotSchedule"]
        if not hard:
            return []
        if any(c.match_label_keys for c in hard):
            raise ValueError("the check does not know matchLabelKeys")
        keys = [c.topology_key for c in hard]
        eligible = {
            node
            for node, facts in self._facts.items()
            if all(key in facts.labels for key in keys) and selects_node(need.pod, facts)
        }

        def rule(key: str, selector: LabelSelector | None, skew: int, least: int) -> Callable[[str], str]:
            counts = dict.fromkeys([self._facts[node].labels[key] for node in eligible], 0)
            for node, many in self._selected(selector).items():
                if node in eligible:
                    counts[self._facts[node].labels[key]] += many
            fewest = min(counts.values(), default=0) if len(counts) >= least else 0
            own = selects(selector, need.pod.metadata.labels)

            def refuses(node: str) -> str:
                domain = self._domain(node, key)
                if domain is None:
                    return f"no label {key}"
                here = counts.get(domain, 0) + own - fewest
                return f"skew {here} > {skew} over {key}" if here > skew else ""

            return refuses

        return [rule(c.topology_key, c.label_selector, c.max_skew, c.min_domains or 1) for c in hard]


def _required(need: Need, *, apart: bool) -> list[PodAffinityTerm]:
    affinity = need.pod.spec.affinity
    side = (affinity.pod_anti_affinity if apart else affinity.pod_affinity) if affinity else None
    terms = side.required if side else []
    if any(term.namespaces or term.namespace_selector for term in terms):
        raise ValueError("the check knows affinity within one namespace only")
    return terms

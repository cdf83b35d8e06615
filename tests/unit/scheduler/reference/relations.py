"""Pods and other pods, plainly: affinity, anti-affinity and topology spread as filters and as scores.

Label selectors have matchLabels, namespaceSelectors expressions too.
"""

from __future__ import annotations

import math
from typing import Any

from cotenant.api.objects.pod import Pod
from tests.unit.scheduler.reference.world import World, tolerated


def labelled(pod: Pod, selector: Any) -> bool:
    return selector is not None and all(pod.metadata.labels.get(k) == v for k, v in selector.match_labels.items())


def namespaces_of(world: World, term: Any, holder: Pod) -> set[str]:
    """The namespaces that a term of a pod is about."""
    selector = term.namespace_selector
    if selector is None:
        return set(term.namespaces) or {holder.metadata.namespace}
    there = {*world.namespaces, *(pod.metadata.namespace for pod in [*world.pods.values(), *everyone(world)])}
    found = set(term.namespaces)
    for name in there:
        labels = {**world.namespaces.get(name, {}), "kubernetes.io/metadata.name": name}
        wanted = all(labels.get(key) == value for key, value in selector.match_labels.items())
        for e in selector.match_expressions:
            has = e.key in labels
            wanted = wanted and {
                "In": has and labels.get(e.key) in e.values,
                "NotIn": not has or labels[e.key] not in e.values,
                "Exists": has,
                "DoesNotExist": not has,
            }[e.operator]
        if wanted:
            found.add(name)
    return found


def selects(world: World, term: Any, holder: Pod, pod: Pod) -> bool:
    """Whether an affinity term of one pod selects another one."""
    own, its = holder.metadata.labels, pod.metadata.labels
    return (
        labelled(pod, term.label_selector)
        and all(its.get(key) == own[key] for key in term.match_label_keys if key in own)
        and all(its.get(key) != own[key] for key in term.mismatch_label_keys if key in own)
        and pod.metadata.namespace in namespaces_of(world, term, holder)
    )


def counted(constraint: Any, holder: Pod, pod: Pod) -> bool:
    """Whether a spread constraint of one pod counts another one: never one of another namespace."""
    own, its = holder.metadata.labels, pod.metadata.labels
    return (
        labelled(pod, constraint.label_selector)
        and all(its.get(key) == own[key] for key in constraint.match_label_keys if key in own)
        and pod.metadata.namespace == holder.metadata.namespace
    )


def terms(pod: Pod, side: str, kind: str) -> list[Any]:
    affinity = getattr(pod.spec.affinity, side) if pod.spec.affinity else None
    return list(getattr(affinity, kind)) if affinity else []


def neighbours(world: World, name: str, key: str) -> list[Pod]:
    """Pods in the node's domain."""
    value = world.nodes[name].metadata.labels.get(key)
    same = [n for n, node in world.nodes.items() if value is not None and node.metadata.labels.get(key) == value]
    return [pod for n in same for pod, _ in world.on_node(n)]


def everyone(world: World) -> list[Pod]:
    return [pod for name in world.nodes for pod, _ in world.on_node(name)]


def relations_allow(world: World, pod: Pod, name: str) -> bool:
    labels = world.nodes[name].metadata.labels
    for other in everyone(world):
        for term in terms(other, "pod_anti_affinity", "required"):
            if selects(world, term, other, pod) and other in neighbours(world, name, term.topology_key):
                return False
    for term in terms(pod, "pod_anti_affinity", "required"):
        if any(selects(world, term, pod, other) for other in neighbours(world, name, term.topology_key)):
            return False
    wanted = terms(pod, "pod_affinity", "required")

    def all_select(other: Pod) -> bool:
        return all(selects(world, term, pod, other) for term in wanted)

    first = not any(all_select(other) for other in everyone(world)) and all_select(pod)
    for term in wanted:
        if term.topology_key not in labels:
            return False
        if not first and not any(all_select(other) for other in neighbours(world, name, term.topology_key)):
            return False
    return spread_allows(world, pod, name)


def eligible(world: World, pod: Pod, constraint: Any, hard: bool) -> list[str]:
    keys = [c.topology_key for c in pod.spec.topology_spread_constraints if (c.when_unsatisfiable == "DoNotSchedule") == hard]
    return [
        name
        for name, node in world.nodes.items()
        if all(key in node.metadata.labels for key in keys)
        and (
            constraint.node_affinity_policy == "Ignore"
            or all(node.metadata.labels.get(k) == v for k, v in pod.spec.node_selector.items())
        )
        and (
            constraint.node_taints_policy == "Ignore"
            or all(tolerated(t, pod.spec.tolerations) for t in node.spec.taints if t.effect != "PreferNoSchedule")
        )
    ]


def spread_counts(world: World, pod: Pod, constraint: Any, hard: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in eligible(world, pod, constraint, hard):
        domain = world.nodes[name].metadata.labels[constraint.topology_key]
        counts[domain] = counts.get(domain, 0) + sum(counted(constraint, pod, other) for other, _ in world.on_node(name))
    return counts


def spread_allows(world: World, pod: Pod, name: str) -> bool:
    labels = world.nodes[name].metadata.labels
    for constraint in pod.spec.topology_spread_constraints:
        if constraint.when_unsatisfiable != "DoNotSchedule":
            continue
        if constraint.topology_key not in labels:
            return False
        counts = spread_counts(world, pod, constraint, True)
        fewest = min(counts.values(), default=0) if len(counts) >= (constraint.min_domains or 1) else 0
        here = counts.get(labels[constraint.topology_key], 0)
        if here + (1 if counted(constraint, pod, pod) else 0) - fewest > constraint.max_skew:
            return False
    return True


def together_scores(world: World, pod: Pod, candidates: list[str]) -> dict[str, int]:
    raw = {}
    for name in candidates:
        raw[name] = 0
        for sign, side in ((1, "pod_affinity"), (-1, "pod_anti_affinity")):
            for preferred in terms(pod, side, "preferred"):
                term = preferred.pod_affinity_term
                there = neighbours(world, name, term.topology_key)
                raw[name] += sign * preferred.weight * sum(selects(world, term, pod, other) for other in there)
        for other in everyone(world):
            held = [(term, 1) for term in terms(other, "pod_affinity", "required")]
            held += [(w.pod_affinity_term, w.weight) for w in terms(other, "pod_affinity", "preferred")]
            held += [(w.pod_affinity_term, -w.weight) for w in terms(other, "pod_anti_affinity", "preferred")]
            for term, weight in held:
                if selects(world, term, other, pod) and other in neighbours(world, name, term.topology_key):
                    raw[name] += weight
    low, high = min(raw.values()), max(raw.values())
    return {name: (value - low) * 100 // (high - low) if high > low else 0 for name, value in raw.items()}


def spread_scores(world: World, pod: Pod, candidates: list[str]) -> dict[str, int]:
    soft = [c for c in pod.spec.topology_spread_constraints if c.when_unsatisfiable == "ScheduleAnyway"]
    scored = [n for n in candidates if all(c.topology_key in world.nodes[n].metadata.labels for c in soft)]
    if not soft or not scored:
        return dict.fromkeys(candidates, 0)
    raw = dict.fromkeys(scored, 0)
    for constraint in soft:
        key = constraint.topology_key
        counts = spread_counts(world, pod, constraint, False)
        labels = {n: world.nodes[n].metadata.labels for n in candidates}
        weight = round(math.log(len({labels[n][key] for n in candidates if key in labels[n]}) + 2) * 1_000_000)
        for name in scored:
            raw[name] += counts.get(labels[name][key], 0) * weight + (constraint.max_skew - 1) * 1_000_000
    rounded = {name: (value + 500_000) // 1_000_000 for name, value in raw.items()}
    low, high = min(rounded.values()), max(rounded.values())
    scores = {n: 100 * (high + low - value) // high if high else 100 for n, value in rounded.items()}
    return {name: scores.get(name, 0) for name in candidates}

"""RemovePodsViolatingTopologySpreadConstraint: pods of topology domains with more than their share.

In: the pods of each namespace with their constraints, the nodes with their labels. Out: evictions, by namespace and name.

    domains   values of the topology key over the nodes, empty ones included; a domain's pods are those on its nodes that match
              the constraint's selector and are not terminating
    balanced  largest - smallest domain <= maxSkew; else `spread` says which pods leave their domain
    a pod goes if it fits another node among the nodes of domains that were below the mean

DoNotSchedule constraints count, ScheduleAnyway ones with includeSoftConstraints. Pods that pass neither the filters nor the
plugin's label selector stay.

Source: kubernetes-sigs descheduler RemovePodsViolatingTopologySpreadConstraint; priorities do not count there either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from cotenant.api.objects.pod import TopologySpreadConstraint
from cotenant.domain.selectors import selects, selects_if_valid
from cotenant_descheduler_arbiter.config.plugin_args import TopologySpreadArgs
from cotenant_descheduler_arbiter.eviction.evictable import namespace_refusal
from cotenant_descheduler_arbiter.eviction.fit import misfit
from cotenant_descheduler_arbiter.plugins.view import ClusterView, Evictor, may_go
from cotenant_descheduler_arbiter.state.facts import NodeFacts, PodFacts


class Domain(msgspec.Struct):
    """A value of the topology key, and the pods on its nodes."""

    value: str
    pods: list[PodFacts]


def constraints_of(pods: Iterable[PodFacts], *, soft: bool) -> list[TopologySpreadConstraint]:
    """Return the distinct constraints of pods, in the order of their first pods."""
    found: dict[bytes, TopologySpreadConstraint] = {}
    for pod in pods:
        for constraint in pod.pod.spec.topology_spread_constraints:
            if soft or constraint.when_unsatisfiable == "DoNotSchedule":
                found.setdefault(msgspec.json.encode(constraint), constraint)
    return list(found.values())


def domains_of(
    constraint: TopologySpreadConstraint, pods: Iterable[PodFacts], nodes: Sequence[NodeFacts]
) -> list[Domain]:
    """Return the domains of a constraint, by value."""
    key = constraint.topology_key
    domains = {node.labels[key]: Domain(node.labels[key], []) for node in nodes if key in node.labels}
    values = {node.name: node.labels[key] for node in nodes if key in node.labels}
    for pod in pods:
        if pod.terminating or pod.node not in values:
            continue
        if selects_if_valid(constraint.label_selector, pod.pod.metadata.labels):
            domains[values[pod.node]].pods.append(pod)
    return [domain for _, domain in sorted(domains.items())]


def _pinned(pod: PodFacts) -> bool:
    affinity = pod.pod.spec.affinity
    return bool(pod.pod.spec.node_selector) or (affinity is not None and affinity.node_affinity is not None)


def leaving_order(pods: Sequence[PodFacts], evictable: Callable[[PodFacts], bool]) -> list[PodFacts]:
    """Return a domain's pods; the last one leaves first. Those that stay come first, then those bound to certain nodes."""
    return sorted(pods, key=lambda pod: (evictable(pod), not _pinned(pod)))


def spread(sizes: Sequence[int], max_skew: int) -> list[tuple[int, int]]:
    """Return how many pods leave which domain, as (domain, count). `sizes`: ascending.

        i = 0, j = last, mean = sum / domains; while i < j:
            size[j] <= mean: j -= 1
            skew = size[j] - size[i] <= maxSkew: i += 1
            else min(ceil(size[j] - mean), ceil(mean - size[i]), ceil((skew - maxSkew) / 2)) pods move from j to i; none: i += 1
    """
    now, moves = list(sizes), []
    total, count = sum(sizes), len(sizes)
    i, j = 0, count - 1
    while i < j:
        if now[j] * count <= total:
            j -= 1
        skew = now[j] - now[i]
        if skew <= max_skew:
            i += 1
            continue
        over, under = -((total - now[j] * count) // count), -((now[i] * count - total) // count)
        move = min(over, under, -((max_skew - skew) // 2))
        if move <= 0:
            i += 1
            continue
        moves.append((j, move))
        now[j] -= move
        now[i] += move
    return moves


def remove_pods_violating_topology_spread(args: TopologySpreadArgs, view: ClusterView, evictor: Evictor) -> None:
    """Run the plugin."""
    by_namespace: dict[str, list[PodFacts]] = {}
    for node in view.nodes:
        for pod in view.active_on(node.name):
            if args.namespaces is None or namespace_refusal(args.namespaces, pod.namespace) is None:
                by_namespace.setdefault(pod.namespace, []).append(pod)
    wanted: dict[str, tuple[PodFacts, str]] = {}
    for _, pods in sorted(by_namespace.items()):
        pods.sort(key=lambda pod: pod.name)
        for constraint in constraints_of(pods, soft=args.include_soft_constraints):
            for pod, reason in _too_many(constraint, pods, view.nodes, evictor):
                wanted.setdefault(pod.key, (pod, reason))
    for _, (pod, reason) in sorted(wanted.items()):
        if evictor.node_full(pod.node) or not selects(args.label_selector, pod.pod.metadata.labels, absent=True):
            continue
        if may_go(evictor, pod):
            evictor.evict(pod, reason)


def _too_many(
    constraint: TopologySpreadConstraint, pods: Sequence[PodFacts], nodes: Sequence[NodeFacts], evictor: Evictor
) -> Iterable[tuple[PodFacts, str]]:
    domains = domains_of(constraint, pods, nodes)
    domains.sort(key=lambda domain: len(domain.pods))
    sizes = [len(domain.pods) for domain in domains]
    if not sizes or sizes[-1] - sizes[0] <= constraint.max_skew:
        return
    key, total = constraint.topology_key, sum(sizes)
    small = {domain.value for domain in domains if len(domain.pods) * len(domains) < total}
    room = [node for node in nodes if node.labels.get(key) in small]
    for domain in domains:
        domain.pods = leaving_order(domain.pods, lambda pod: evictor.why_not(pod) is None)
    skew = f"of {total} pods in {len(domains)} domains, maxSkew is {constraint.max_skew}"
    for index, count in spread(sizes, constraint.max_skew):
        domain = domains[index]
        leaving, domain.pods = domain.pods[len(domain.pods) - count :], domain.pods[: len(domain.pods) - count]
        for pod in leaving:
            if any(node.name != pod.node and misfit(pod, node) is None for node in room):
                yield pod, f"{key}={domain.value} has {sizes[index]} {skew}"

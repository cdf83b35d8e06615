"""A plain scheduler: one pod, one node, one rule at a time, over dictionaries. Slow, and meant to be obviously right.

It reads the same last messages as the service's core and shares no code with its plugins, columns or queue: only the
typed views, quantities and the QoS rules of the contract. It knows default arguments, no quotas, no host ports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec

from cotenant.events.envelope import Event
from cotenant.events.metrics import NodeMetricComputed
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.resources import NodeResources
from cotenant.events.runs import RunStatus
from cotenant.objects.node import Node, Taint, decode_node
from cotenant.objects.pod import Pod, Toleration, decode_pod, pod_requests
from cotenant.qos import PriorityClass, priority_default
from cotenant.quantities import resource_amount
from cotenant.subjects import tokens

BATCH = {"cpu": "kubernetes.io/batch-cpu", "memory": "kubernetes.io/batch-memory"}
THRESHOLDS = {"cpu": 65, "memory": 95}
FACTORS = {"cpu": 85, "memory": 70}


def half_up(value: Fraction) -> int:
    return int(value + Fraction(1, 2))


class World:
    """What the last messages say."""

    def __init__(self, events: Iterable[Event], now: datetime) -> None:
        self.now = now
        self.nodes: dict[str, Node] = {}
        self.batch: dict[str, NodeResources] = {}
        self.metrics: dict[str, NodeMetricComputed] = {}
        self.pods: dict[str, Pod] = {}
        self.placements: dict[str, tuple[str, Pod, datetime]] = {}
        self.ended: set[tuple[str, str]] = set()
        for event in events:
            parts = tokens(event.subject)
            data: Any = event.data
            if event.tombstone:
                continue
            if isinstance(data, ObjectStored) and parts[2] == "nodes":
                self.nodes[parts[4]] = decode_node(data.object)
            elif isinstance(data, ObjectStored) and parts[2] == "pods":
                self.pods[parts[4]] = decode_pod(data.object)
            elif isinstance(data, NodeResources):
                self.batch[data.node] = data
            elif isinstance(data, NodeMetricComputed):
                self.metrics[data.node] = data
            elif isinstance(data, RunStatus) and data.phase.terminal:
                self.ended.add((data.name, data.uid))
            elif isinstance(data, Placement) and data.phase is not PlacementPhase.GONE:
                assert data.bound_at is not None
                self.placements[data.name] = (data.node, decode_pod(data.pod), data.bound_at)

    def on_node(self, name: str) -> list[tuple[Pod, datetime]]:
        return [
            (pod, at)
            for node, pod, at in self.placements.values()
            if node == name and (pod.metadata.name, pod.metadata.uid) not in self.ended
        ]

    def allocatable(self, name: str) -> dict[str, int]:
        node = self.nodes[name]
        amounts = {r: resource_amount(r, q) for r, q in node.status.allocatable.items()}
        if name in self.batch:
            amounts["kubernetes.io/batch-cpu"] = self.batch[name].batch_cpu_milli
            amounts["kubernetes.io/batch-memory"] = self.batch[name].batch_memory_bytes
        return amounts


def tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    for t in tolerations:
        if t.effect not in ("", taint.effect):
            continue
        if t.operator == "Exists" and t.key in ("", taint.key):
            return True
        if t.operator == "Equal" and t.key == taint.key and t.value == taint.value:
            return True
    return False


def tier(pod: Pod) -> PriorityClass:
    return priority_default(with_priority(pod))


def with_priority(pod: Pod) -> Pod:
    """A pod without a priority has priority 0."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, priority=pod.spec.priority or 0))


def estimate(pod: Pod, resource: str) -> int:
    """Requests and limits are equal in these tests."""
    of_tier = tier(pod)
    if of_tier in (PriorityClass.FREE, PriorityClass.MID):
        raise AssertionError("the reference knows no such pods")
    name = BATCH[resource] if of_tier is PriorityClass.BATCH else resource
    asked = pod_requests(pod).get(name, 0)
    if not asked:
        return {"cpu": 250, "memory": 200 << 20}[resource]
    return half_up(Fraction(asked * FACTORS[resource], 100))


def fits(world: World, pod: Pod, name: str) -> bool:
    free = world.allocatable(name)
    for other, _ in world.on_node(name):
        for resource, amount in pod_requests(other).items():
            free[resource] = free.get(resource, 0) - amount
        free["pods"] -= 1
    return free["pods"] >= 1 and all(free.get(r, 0) >= a for r, a in pod_requests(pod).items() if a)


def load(world: World, name: str, resource: str) -> int:
    """What the node is taken to use: measured, and by estimate what the metric cannot know."""
    metric = world.metrics[name]
    assert metric.update_time is not None
    usage = metric.node_usage.cpu_milli if resource == "cpu" else metric.node_usage.memory_bytes
    for pod, at in world.on_node(name):
        reported = next((m for m in metric.pods if m.name == pod.metadata.name), None)
        known = (reported.usage.cpu_milli if resource == "cpu" else reported.usage.memory_bytes) if reported else 0
        if reported is None or at > metric.update_time - timedelta(seconds=60):
            usage += max(0, estimate(pod, resource) - known)
    return usage


def expired(world: World, name: str) -> bool:
    metric = world.metrics[name]
    return metric.update_time is None or world.now - metric.update_time >= timedelta(seconds=180)


def load_allows(world: World, pod: Pod, name: str) -> bool:
    if any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references) or name not in world.metrics:
        return True
    if expired(world, name):
        return False
    for resource, threshold in THRESHOLDS.items():
        capacity = world.allocatable(name).get(resource, 0)
        used = load(world, name, resource) + estimate(pod, resource)
        if capacity and half_up(Fraction(100 * used, capacity)) > threshold:
            return False
    return True


def feasible(world: World, pod: Pod, name: str) -> bool:
    node = world.nodes[name]
    labels = node.metadata.labels
    return (
        not node.spec.unschedulable
        and all(tolerated(t, pod.spec.tolerations) for t in node.spec.taints if t.effect != "PreferNoSchedule")
        and all(labels.get(key) == value for key, value in pod.spec.node_selector.items())
        and fits(world, pod, name)
        and load_allows(world, pod, name)
        and relations_allow(world, pod, name)
    )


def least_allocated(world: World, pod: Pod, name: str) -> int:
    allocatable = world.allocatable(name)
    parts = []
    for resource, default in (("cpu", 100), ("memory", 200 << 20)):
        capacity = allocatable.get(resource, 0)
        if capacity:
            used = sum(pod_requests(p).get(resource, default) for p in [pod, *(o for o, _ in world.on_node(name))])
            parts.append((capacity - used) * 100 // capacity if used <= capacity else 0)
    for resource in BATCH.values():
        capacity = allocatable.get(resource, 0)
        if capacity and pod_requests(pod).get(resource, 0):
            used = sum(pod_requests(p).get(resource, 0) for p in [pod, *(o for o, _ in world.on_node(name))])
            parts.append((capacity - used) * 100 // capacity if used <= capacity else 0)
    return sum(parts) // len(parts) if parts else 0


def balanced(world: World, pod: Pod, name: str) -> int:
    fractions = []
    for resource in ("cpu", "memory"):
        capacity = world.allocatable(name).get(resource, 0)
        if capacity:
            used = sum(pod_requests(p).get(resource, 0) for p in [pod, *(o for o, _ in world.on_node(name))])
            fractions.append(min(used / capacity, 1.0))
    if len(fractions) < 2:
        return 100
    return int((1 - abs(fractions[0] - fractions[1]) / 2) * 100)


def load_score(world: World, pod: Pod, name: str) -> int:
    if name not in world.metrics or expired(world, name):
        return 0
    scores = []
    for resource in ("cpu", "memory"):
        capacity = world.allocatable(name).get(resource, 0)
        used = load(world, name, resource) + estimate(pod, resource)
        scores.append((capacity - used) * 100 // capacity if capacity and used <= capacity else 0)
    return sum(scores) // 2


def soft_taints(world: World, pod: Pod, name: str) -> int:
    taints = world.nodes[name].spec.taints
    return sum(t.effect == "PreferNoSchedule" and not tolerated(t, pod.spec.tolerations) for t in taints)


def preference(world: World, pod: Pod, name: str) -> int:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    labels = world.nodes[name].metadata.labels
    return sum(
        term.weight
        for term in (affinity.preferred if affinity else [])
        if all(labels.get(e.key) in e.values for e in term.preference.match_expressions)
    )


# -- pods and other pods: label selectors with matchLabels, the pod's own namespace, no namespaceSelector ----------------


def selects(term: Any, pod: Pod) -> bool:
    selector = term.label_selector
    return selector is not None and all(pod.metadata.labels.get(k) == v for k, v in selector.match_labels.items())


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
            if selects(term, pod) and other in neighbours(world, name, term.topology_key):
                return False
    for term in terms(pod, "pod_anti_affinity", "required"):
        if any(selects(term, other) for other in neighbours(world, name, term.topology_key)):
            return False
    wanted = terms(pod, "pod_affinity", "required")

    def all_select(other: Pod) -> bool:
        return all(selects(term, other) for term in wanted)

    first = not any(all_select(other) for other in everyone(world)) and all_select(pod)
    for term in wanted:
        if term.topology_key not in labels:
            return False
        if not first and not any(all_select(other) for other in neighbours(world, name, term.topology_key)):
            return False
    return spread_allows(world, pod, name)


def eligible(world: World, pod: Pod, hard: bool) -> list[str]:
    keys = [c.topology_key for c in pod.spec.topology_spread_constraints if (c.when_unsatisfiable == "DoNotSchedule") == hard]
    return [
        name
        for name, node in world.nodes.items()
        if all(key in node.metadata.labels for key in keys)
        and all(node.metadata.labels.get(k) == v for k, v in pod.spec.node_selector.items())
    ]


def spread_counts(world: World, pod: Pod, constraint: Any, hard: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in eligible(world, pod, hard):
        domain = world.nodes[name].metadata.labels[constraint.topology_key]
        counts[domain] = counts.get(domain, 0) + sum(selects(constraint, other) for other, _ in world.on_node(name))
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
        if here + (1 if selects(constraint, pod) else 0) - fewest > constraint.max_skew:
            return False
    return True


def together_scores(world: World, pod: Pod, candidates: list[str]) -> dict[str, int]:
    raw = {}
    for name in candidates:
        raw[name] = 0
        for sign, side in ((1, "pod_affinity"), (-1, "pod_anti_affinity")):
            for wish in terms(pod, side, "preferred"):
                term = wish.pod_affinity_term
                raw[name] += sign * wish.weight * sum(selects(term, o) for o in neighbours(world, name, term.topology_key))
        for other in everyone(world):
            held = [(term, 1) for term in terms(other, "pod_affinity", "required")]
            held += [(w.pod_affinity_term, w.weight) for w in terms(other, "pod_affinity", "preferred")]
            held += [(w.pod_affinity_term, -w.weight) for w in terms(other, "pod_anti_affinity", "preferred")]
            for term, weight in held:
                if selects(term, pod) and other in neighbours(world, name, term.topology_key):
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


def choose(world: World, pod: Pod) -> str | None:
    """The node for a pod; the first name among the best."""
    candidates = [name for name in sorted(world.nodes) if feasible(world, pod, name)]
    if not candidates:
        return None
    most_taints = max(soft_taints(world, pod, name) for name in candidates)
    most_wanted = max(preference(world, pod, name) for name in candidates)

    together = together_scores(world, pod, candidates)
    spread = spread_scores(world, pod, candidates)

    def total(name: str) -> int:
        taint = 100 - (soft_taints(world, pod, name) * 100 // most_taints if most_taints else 0)
        wish = preference(world, pod, name) * 100 // most_wanted if most_wanted else 0
        return (
            3 * taint
            + 2 * wish
            + least_allocated(world, pod, name)
            + balanced(world, pod, name)
            + load_score(world, pod, name)
            + 2 * together[name]
            + 2 * spread[name]
        )

    return max(candidates, key=total)


def schedule(events: Iterable[Event], now: datetime) -> dict[str, str]:
    """Place every pod that wants a node, in queue order; return pod to node of the new placements."""
    world = World(events, now)
    queue = sorted(
        (pod for pod in world.pods.values() if pod.metadata.name not in world.placements),
        key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.metadata.name),
    )
    made: dict[str, str] = {}
    index = 0
    while index < len(queue):
        pod = queue[index]
        node = choose(world, pod)
        if node is None:
            index += 1
            continue
        made[pod.metadata.name] = node
        world.placements[pod.metadata.name] = (node, pod, now)
        del queue[index]
        if pod.metadata.labels or pod.spec.affinity:
            # What was refused before may be feasible next to this pod.
            index = 0
    return made

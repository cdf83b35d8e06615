"""A plain scheduler: one pod, one node, one rule at a time, over dictionaries. Slow, and meant to be obviously right.

It reads the same last messages as the service's core and shares no code with its plugins, columns or queue: only the
typed views, quantities and the QoS rules of the contract. It knows default arguments, no quotas, no host ports. Which pods
make room for others is in `reference_preemption`; here stands what a room that is held for a nominated pod keeps away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from copy import copy
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec

from cotenant.api.objects.node import Node, Taint, decode_node
from cotenant.api.objects.pod import Pod, Toleration, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import priority_default
from cotenant.events.envelope import Event
from cotenant.events.node.metrics import NodeMetricComputed, Usage
from cotenant.events.node.resources import NodeResources
from cotenant.events.node.runs import RunStatus
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Nomination, Placement, PlacementPhase, Waiting
from cotenant.model.quantities import resource_amount
from cotenant.model.subjects import tokens
from cotenant.model.tiers import PriorityClass

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
        self.budgets: dict[str, dict[str, Any]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        """Labels of the namespaces that have an object."""
        self.told_to_end: set[str] = set()
        self.bound_in_this_pass: set[str] = set()
        """They make room for nobody yet: what is not stored is nobody's victim."""
        self.nominated_in_this_pass: list[tuple[str, int]] = []
        self.given_up_in_this_pass: dict[str, Nomination] = {}
        """Node and priority."""
        said: dict[str, Waiting] = {}
        for event in events:
            parts = tokens(event.subject)
            data: Any = event.data
            if event.tombstone:
                continue
            if isinstance(data, ObjectStored) and parts[2] == "nodes":
                self.nodes[parts[4]] = decode_node(data.object)
            elif isinstance(data, ObjectStored) and parts[2] == "pods":
                self.pods[parts[4]] = decode_pod(data.object)
            elif isinstance(data, ObjectStored) and parts[2] == "namespaces":
                self.namespaces[parts[4]] = msgspec.json.decode(data.object)["metadata"].get("labels", {})
            elif isinstance(data, ObjectStored) and parts[2] == "poddisruptionbudgets":
                self.budgets[parts[4]] = msgspec.json.decode(data.object)
            elif isinstance(data, Waiting):
                said[data.name] = data
            elif isinstance(data, NodeResources):
                self.batch[data.node] = data
            elif isinstance(data, NodeMetricComputed):
                self.metrics[data.node] = data
            elif isinstance(data, RunStatus) and data.phase.terminal:
                self.ended.add((data.name, data.uid))
            elif isinstance(data, Placement) and data.phase is not PlacementPhase.GONE:
                assert data.bound_at is not None
                self.placements[data.name] = (data.node, decode_pod(data.pod), data.bound_at)
                if data.phase is PlacementPhase.TERMINATING:
                    self.told_to_end.add(data.name)
        self.nominations: dict[str, Nomination] = {
            name: waiting.nomination
            for name, waiting in said.items()
            if waiting.nomination is not None and self.queued(name) and self.pods[name].metadata.uid == waiting.uid
        }

    def queued(self, name: str) -> bool:
        """The pod wants a node."""
        pod = self.pods.get(name)
        return pod is not None and name not in self.placements and pod.metadata.deletion_timestamp is None

    def is_ending(self, name: str) -> bool:
        """A placed pod that ends whatever is decided."""
        pod, placed = self.pods.get(name), self.placements[name][1]
        if name in self.told_to_end or pod is None or pod.metadata.deletion_timestamp is not None:
            return True
        return pod.metadata.uid != placed.metadata.uid

    def with_rooms(self, pod: Pod) -> World:
        """This world, with the nominated pods placed that the pod has to leave room for."""
        world = copy(self)
        world.placements = dict(self.placements)
        for name, nomination in self.rooms(pod).items():
            # Under a name that no report knows.
            world.placements[f"{name}'s room"] = (nomination.node, self.pods[name], nomination.at)
        return world

    def rooms(self, pod: Pod) -> Mapping[str, Nomination]:
        return {
            name: nomination
            for name, nomination in self.nominations.items()
            if name != pod.metadata.name
            and priority_of(self.pods[name]) >= priority_of(pod)
            and nomination.node in self.nodes
        }

    def without(self, names: Iterable[str]) -> World:
        """This world without some placed pods."""
        world = copy(self)
        world.placements = {name: placed for name, placed in self.placements.items() if name not in names}
        return world

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


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


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
    for key, (where, pod, at) in world.placements.items():
        if where != name or (pod.metadata.name, pod.metadata.uid) in world.ended:
            continue
        # A pod that is said to use nothing at all was not measured.
        reported = next((m for m in metric.pods if m.name == key and m.usage != Usage()), None)
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


def hint_of(pod: Pod) -> dict[str, list[str]]:
    text = pod.metadata.annotations.get("scheduling.koordinator.sh/scheduling-hint", "{}")
    found: dict[str, list[str]] = msgspec.json.decode(text)
    return found


def node_allows(world: World, pod: Pod, name: str) -> bool:
    """What no other pod's end changes."""
    node = world.nodes[name]
    labels = node.metadata.labels
    return (
        not node.spec.unschedulable
        and name in (hint_of(pod).get("nodeNames") or [name])
        and all(tolerated(t, pod.spec.tolerations) for t in node.spec.taints if t.effect != "PreferNoSchedule")
        and all(labels.get(key) == value for key, value in pod.spec.node_selector.items())
        and load_allows(world.with_rooms(pod), pod, name)
    )


def others_allow(world: World, pod: Pod, name: str) -> bool:
    """What the pods there are leave, whether the nominated ones come or not."""
    crowded = world.with_rooms(pod)
    return fits(crowded, pod, name) and relations_allow(world, pod, name) and relations_allow(crowded, pod, name)


def feasible(world: World, pod: Pod, name: str) -> bool:
    return node_allows(world, pod, name) and others_allow(world, pod, name)


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


def image_score(world: World, pod: Pod, name: str) -> int:
    names = [c.image if ":" in c.image.rpartition("/")[2] else f"{c.image}:latest" for c in pod.spec.containers if c.image]
    if not names:
        return 0

    def sizes(node: str) -> dict[str, int]:
        return {image_name: image.size_bytes for image in world.nodes[node].status.images for image_name in image.names}

    total = 0
    for image in names:
        holders = [node for node in world.nodes if image in sizes(node)]
        total += int(float(sizes(name).get(image, 0)) * (len(holders) / len(world.nodes)))
    least, most = 23 << 20, (1000 << 20) * len(names)
    return 100 * (min(max(total, least), most) - least) // (most - least)


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


# -- pods and other pods: label selectors with matchLabels, namespaceSelectors with expressions too ----------------------


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
            for wish in terms(pod, side, "preferred"):
                term = wish.pod_affinity_term
                there = neighbours(world, name, term.topology_key)
                raw[name] += sign * wish.weight * sum(selects(world, term, pod, other) for other in there)
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


def choose(world: World, pod: Pod) -> str | None:
    """The node for a pod; the first name among the best."""
    candidates = [name for name in sorted(world.nodes) if feasible(world, pod, name)]
    if not candidates:
        return None
    most_taints = max(soft_taints(world, pod, name) for name in candidates)
    most_wanted = max(preference(world, pod, name) for name in candidates)

    together = together_scores(world, pod, candidates)
    spread = spread_scores(world, pod, candidates)
    crowded = world.with_rooms(pod)

    def total(name: str) -> int:
        taint = 100 - (soft_taints(world, pod, name) * 100 // most_taints if most_taints else 0)
        wish = preference(world, pod, name) * 100 // most_wanted if most_wanted else 0
        return (
            3 * taint
            + 2 * wish
            + image_score(world, pod, name)
            + least_allocated(crowded, pod, name)
            + balanced(crowded, pod, name)
            + load_score(crowded, pod, name)
            + 2 * together[name]
            + 2 * spread[name]
        )

    preferred = [name for name in hint_of(pod).get("preferredNodeNames", []) if name in candidates]
    return preferred[0] if preferred else max(candidates, key=total)

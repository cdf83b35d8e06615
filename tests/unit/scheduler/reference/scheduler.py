"""A plain scheduler: one pod, one node, one rule at a time, over dictionaries. Slow, and meant to be obviously right.

It reads the same last messages as the service's core and shares no code with its plugins, columns or queue: only the
typed views, quantities and the QoS rules of the contract. It knows default arguments, no host ports. Which pods make room for
others is in `preemption`, quotas are in `quotas`, gangs in `gangs`; `world` has what a room keeps away that is held for a pod.
"""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import msgspec

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.domain.qos import priority_default
from cotenant.events.node.metrics import Usage
from cotenant.model.tiers import PriorityClass
from tests.unit.scheduler.reference.relations import relations_allow, spread_scores, together_scores
from tests.unit.scheduler.reference.world import World, tolerated

BATCH = {"cpu": "kubernetes.io/batch-cpu", "memory": "kubernetes.io/batch-memory"}
THRESHOLDS = {"cpu": 65, "memory": 95}
FACTORS = {"cpu": 85, "memory": 70}


def half_up(value: Fraction) -> int:
    return int(value + Fraction(1, 2))


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
    for resource, amount in world.held(name).items():
        free[resource] = free.get(resource, 0) - amount
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
        preferred = preference(world, pod, name) * 100 // most_wanted if most_wanted else 0
        return (
            3 * taint
            + 2 * preferred
            + image_score(world, pod, name)
            + least_allocated(crowded, pod, name)
            + balanced(crowded, pod, name)
            + load_score(crowded, pod, name)
            + 2 * together[name]
            + 2 * spread[name]
        )

    preferred = [name for name in hint_of(pod).get("preferredNodeNames", []) if name in candidates]
    return preferred[0] if preferred else max(candidates, key=total)

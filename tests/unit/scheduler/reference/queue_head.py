"""The plain scheduler's rooms for the head of the queue: the first pod that nodes refuse and for which room comes by itself.

A room is a node on which the pod lacks nothing but what pods give back that end anyway. Whoever comes behind the head in the
queue finds it occupied; the head and those before it do not. So another pod behind it may have to preempt although the node
would take it as soon as those pods have ended. A pod that is nominated has its room already, and is not the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from fractions import Fraction

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from tests.unit.scheduler.reference.relations import relations_allow
from tests.unit.scheduler.reference.scheduler import feasible, node_allows
from tests.unit.scheduler.reference.world import World

HOLD_AFTER = timedelta(seconds=30)
"""Every pod of the tests has waited longer."""


def needs(pod: Pod) -> dict[str, int]:
    return {"pods": 1, **{name: amount for name, amount in pod_requests(pod).items() if amount}}


def lacking(world: World, pod: Pod, node: str) -> dict[str, int]:
    """What a node lacks to take the pod, as far as it offers so much at all."""
    used: dict[str, int] = {}
    for other, _ in world.with_rooms(pod).on_node(node):
        for resource, amount in {"pods": 1, **pod_requests(other)}.items():
            used[resource] = used.get(resource, 0) + amount
    offered = world.allocatable(node)
    return {name: max(0, used.get(name, 0) + amount - offered.get(name, 0)) for name, amount in needs(pod).items()}


def room_comes(world: World, pod: Pod, node: str) -> bool:
    if feasible(world, pod, node):
        return True
    missing = lacking(world, pod, node)
    if not any(missing.values()):
        return False
    for name, (where, other, _) in world.placements.items():
        if where == node and name not in world.bound_in_this_pass and ends(world, name):
            for resource, amount in needs(other).items():
                missing[resource] = missing.get(resource, 0) - amount
    related = relations_allow(world, pod, node) and relations_allow(world.with_rooms(pod), pod, node)
    return related and all(amount <= 0 for amount in missing.values())


def ends(world: World, name: str) -> bool:
    pod = world.placements[name][1]
    return (pod.metadata.name, pod.metadata.uid) not in world.ended and world.is_ending(name)


def smallest_share_lacking(world: World, pod: Pod, node: str) -> tuple[int, str]:
    offered = world.allocatable(node)
    shares = [Fraction(amount, max(offered.get(name, 0), 1)) for name, amount in lacking(world, pod, node).items()]
    return int(max(shares) * 1_000_000), node


def choose_room(world: World, pod: Pod) -> str | None:
    """The node on which room comes with the least to wait for."""
    offering = [
        node
        for node in world.nodes
        if node_allows(world, pod, node)
        and all(world.allocatable(node).get(name, 0) >= amount for name, amount in needs(pod).items())
        and room_comes(world, pod, node)
    ]
    return min(offering, key=lambda node: smallest_share_lacking(world, pod, node), default=None)


def keep_room(world: World, pod: Pod, nominated: Mapping[str, object]) -> None:
    """Nodes refuse the pod: if nobody before it is the head, and room comes for it, it is kept that room. `nominated`: who was
    nominated before this pass."""
    name = pod.metadata.name
    if not world.keeps_rooms or world.head is not None or name in nominated:
        return
    known = world.kept_rooms.get(name)
    if known is not None:
        node, at = known
        good = node in world.nodes and node_allows(world, pod, node) and room_comes(world, pod, node)
        if good and world.now < at + HOLD_AFTER:
            world.head = (name, node, at)
            return
    found = choose_room(world, pod)
    if found is not None:
        world.head = (name, found, world.now)

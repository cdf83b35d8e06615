"""Gangs, plainly: pods that state in annotations how many of them there must be, placed whole or not at all.

It knows the name, the minimum, the mode and the group of gangs that pods state, all members of a gang the same; no PodGroups,
no other match policy than the default one: once a member of the group has a node, each other one is placed alone, except where
they shall be near to one another (`gathering`). It does not know how gangs preempt: those of the tests do not.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from cotenant.api.objects.pod import Pod
from tests.unit.scheduler.reference.world import World, queue_key

PREFIX = "gang.scheduling.koordinator.sh"


def gang_of(pod: Pod) -> str:
    """The gang that a pod names; empty for a pod that is placed alone."""
    return pod.metadata.annotations.get(f"{PREFIX}/name", "")


def group_of(pod: Pod) -> list[str]:
    """The gangs that are placed together with that of the pod."""
    text = pod.metadata.annotations.get(f"{PREFIX}/groups", "")
    names = [name.partition("/")[2] for name in json.loads(text)] if text else []
    return sorted(names) or [gang_of(pod)]


def members(world: World, gang: str) -> list[Pod]:
    return [pod for pod in world.pods.values() if gang_of(pod) == gang]


def minimum(world: World, gang: str) -> int:
    return int(members(world, gang)[0].metadata.annotations[f"{PREFIX}/min-available"])


def has_node(world: World, pod: Pod) -> bool:
    placed = world.placements.get(pod.metadata.name)
    return placed is not None and placed[1].metadata.uid == pod.metadata.uid


def is_satisfied(world: World, group: list[str]) -> bool:
    """Whether a member has a node that the pass did not give it."""
    of_group = [pod for gang in group for pod in members(world, gang)]
    return any(has_node(world, pod) and pod.metadata.name not in world.bound_in_this_pass for pod in of_group)


def gathers(world: World, group: list[str]) -> bool:
    """Whether the pods of a group shall be near to one another in the network."""
    return any(f"{PREFIX}/network-topology-spec" in pod.metadata.annotations for gang in group for pod in members(world, gang))


def entries(world: World) -> list[list[Pod]]:
    """The queue: pods that are tried together, in the order of the first of each."""
    found: dict[tuple[str, ...], list[Pod]] = {}
    for name, pod in world.pods.items():
        if world.queued(name):
            key = ("gangs", *group_of(pod)) if is_group(world, [pod]) else ("pod", name)
            found.setdefault(key, []).append(pod)
    return sorted((sorted(pods, key=queue_key) for pods in found.values()), key=lambda pods: queue_key(pods[0]))


def is_group(world: World, entry: list[Pod]) -> bool:
    group = group_of(entry[0])
    return bool(gang_of(entry[0])) and (not is_satisfied(world, group) or gathers(world, group))


def is_complete(world: World, entry: list[Pod]) -> bool:
    """Whether every gang of the group has pods enough, or had once."""
    group = group_of(entry[0])
    return is_satisfied(world, group) or all(
        members(world, gang) and len(members(world, gang)) >= minimum(world, gang) for gang in group
    )


def place_group(world: World, entry: list[Pod], node_for: Callable[[Pod], str | None]) -> dict[str, str]:
    """Place the members that fit, one after the other; none of them if a gang gets fewer than its minimum."""
    made: dict[str, str] = {}
    satisfied = is_satisfied(world, group_of(entry[0]))

    def enough() -> bool:
        placed = [gang_of(pod) for pod in entry if pod.metadata.name in made]
        return bool(made) and all(satisfied or placed.count(gang) >= minimum(world, gang) for gang in group_of(entry[0]))

    for pod in entry:
        node = node_for(pod)
        if node is not None:
            made[pod.metadata.name] = node
            world.placements[pod.metadata.name] = (node, pod, world.now)
        elif enough() or (not satisfied and pod.metadata.annotations.get(f"{PREFIX}/mode") != "NonStrict"):
            break
    if enough():
        return made
    for name in made:
        del world.placements[name]
    return {}

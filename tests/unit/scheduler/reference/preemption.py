"""Whom a pod makes leave that no node takes, plainly: every node is tried, every victim by itself.

Rules and order are those of kube-scheduler's default preemption.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from cotenant.api.objects.pod import Pod
from cotenant.events.placements import Nomination, Victim
from tests.unit.scheduler.reference.scheduler import node_allows, others_allow
from tests.unit.scheduler.reference.world import World, priority_of

LABELS_THAT_PROTECT = {
    "scheduling.koordinator.sh/disable-preemptible": "true",
    "quota.scheduling.koordinator.sh/preemptible": "false",
}
POLICY = "scheduling.koordinator.sh/preemption-policy"
PAUSES = [1, 2, 4, 8, 10]


def importance(world: World, name: str) -> tuple[int, datetime, str, str]:
    """The smallest is the most important."""
    _, pod, bound_at = world.placements[name]
    return -priority_of(pod), bound_at, pod.metadata.namespace, name


def lower_on(world: World, pod: Pod, node: str) -> list[str]:
    """Pods of lower priority on a node, the most important first."""
    found = [
        name
        for name, (where, other, _) in world.placements.items()
        if where == node
        and name not in world.bound_in_this_pass
        and priority_of(other) < priority_of(pod)
        and (other.metadata.name, other.metadata.uid) not in world.ended
    ]
    return sorted(found, key=lambda name: importance(world, name))


def violating(world: World, names: list[str]) -> set[str]:
    """Who violates a budget if all of these end, in this order."""
    found = set()
    left = {budget: document["status"]["disruptionsAllowed"] for budget, document in world.budgets.items()}
    for name in names:
        labels = world.placements[name][1].metadata.labels
        for budget, document in world.budgets.items():
            wanted = document["spec"]["selector"]["matchLabels"]
            if wanted and all(labels.get(key) == value for key, value in wanted.items()):
                left[budget] -= 1
                if left[budget] < 0:
                    found.add(name)
    return found


def victims_on(world: World, pod: Pod, node: str) -> list[Victim] | None:
    """Who leaves the node for the pod, the most important first; None where that does not help."""
    lower = lower_on(world, pod, node)
    called = {victim.uid for room in world.rooms(pod).values() if room.node == node for victim in room.victims}
    leaving = [name for name in lower if world.is_ending(name) or world.placements[name][1].metadata.uid in called]
    removable = [
        name
        for name in lower
        if name not in leaving
        and all(world.placements[name][1].metadata.labels.get(key) != value for key, value in LABELS_THAT_PROTECT.items())
    ]
    if not (leaving or removable) or not node_allows(world, pod, node):
        return None
    gone = [*leaving, *removable]
    if not others_allow(world.without(gone), pod, node):
        return None
    costly = violating(world, removable)
    for name in [n for n in removable if n in costly] + [n for n in removable if n not in costly]:
        fewer = [other for other in gone if other != name]
        if others_allow(world.without(fewer), pod, node):
            gone = fewer
    return [
        Victim(
            namespace=world.placements[name][1].metadata.namespace,
            name=name,
            uid=world.placements[name][1].metadata.uid,
            priority=priority_of(world.placements[name][1]),
            violates_budget=name in costly,
        )
        for name in removable
        if name in gone
    ]


def cost(world: World, node: str, victims: list[Victim]) -> tuple[object, ...]:
    highest = max((victim.priority for victim in victims), default=-(1 << 31) - 1)
    starts = [world.placements[victim.name][2] for victim in victims if victim.priority == highest]
    return (
        sum(victim.violates_budget for victim in victims),
        highest,
        sum(victim.priority + (1 << 31) for victim in victims),
        len(victims),
        -min(starts).timestamp() if starts else 0,
        node,
    )


def nominate(world: World, pod: Pod) -> Nomination | None:
    """What becomes of a pod that no node takes."""
    name = pod.metadata.name
    before = world.nominations.get(name) or world.given_up_in_this_pass.get(name)
    attempts = 1
    if before is not None:
        attempts = before.attempts + 1
        patience = timedelta(seconds=PAUSES[min(before.attempts, len(PAUSES)) - 1])
        taken = any(node == before.node and rank > priority_of(pod) for node, rank in world.nominated_in_this_pass)
        if before.node in world.nodes and not taken and (
            world.now < before.at + patience or any(world.is_ending(name) for name in lower_on(world, pod, before.node))
        ):
            return before
    if pod.metadata.labels.get(POLICY, pod.spec.preemption_policy) == "Never":
        return None
    choices = {node: found for node in world.nodes if (found := victims_on(world, pod, node)) is not None}
    if not choices:
        return None
    node = min(choices, key=lambda name: cost(world, name, choices[name]))
    return Nomination(node=node, at=world.now, attempts=attempts, victims=tuple(choices[node]))

"""Reservations on the nodes of the plain scheduler's world, for gangs that are gathered: what they hold, which pods they take.

It knows reservations that are there already, chosen by a label of their owners, with any allocate policy; no reservation
affinity, taints or options.
"""

from __future__ import annotations

from cotenant.api.objects.pod import Pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.events.reservations import ReservationShare
from tests.unit.scheduler.reference.scheduler import feasible, fits, node_allows
from tests.unit.scheduler.reference.world import World


def allocated(world: World, share: ReservationShare, resource: str) -> int:
    return sum(pod_requests(pod).get(resource, 0) for pod in world.owners(share))


def is_used_up(world: World, share: ReservationShare) -> bool:
    return world.reservation_specs[share.uid]["allocateOnce"] and bool(world.owners(share))


def takes(world: World, pod: Pod, node: str) -> str | None:
    """The uid of the reservation in which a node takes a pod; empty: beside the reservations; None: it does not."""
    taking = [share for share in world.shares if share.node == node and room_for(world, pod, share)]
    if taking and node_allows(world, pod, node):
        return min(taking, key=lambda share: (-fullness(world, pod, share), share.name)).uid
    return "" if feasible(world, pod, node) else None


def is_for(world: World, uid: str, pod: Pod) -> bool:
    wanted = world.reservation_specs[uid]["owners"][0]["labelSelector"]["matchLabels"]
    return all(pod.metadata.labels.get(key) == value for key, value in wanted.items())


def owned(world: World, pod: Pod) -> list[str]:
    """The uids of the reservations that are for a pod."""
    return [uid for uid in sorted(world.reservation_specs) if is_for(world, uid, pod)]


def room_for(world: World, pod: Pod, share: ReservationShare) -> bool:
    spec = world.reservation_specs[share.uid]
    if not is_for(world, share.uid, pod) or is_used_up(world, share):
        return False
    if spec.get("allocatePolicy") == "Restricted" and any(
        amount > share.allocatable.get(name, amount) - allocated(world, share, name)
        for name, amount in pod_requests(pod).items()
    ):
        return False
    without = world.without(())
    without.shares = [other for other in world.shares if other is not share]
    return fits(without, pod, share.node)


def fullness(world: World, pod: Pod, share: ReservationShare) -> int:
    """How full the reservation is with the pod, in percent; 0 of a resource of which it is overfull."""
    parts = []
    for name, amount in share.allocatable.items():
        used = allocated(world, share, name) + pod_requests(pod).get(name, 0)
        parts.append(100 * used // amount if used <= amount else 0)
    return sum(parts) // len(parts)

"""What reservations mean, plainly: recomputed from the log's last messages, by none of the scheduler's code.

For nodes that offer cpu and memory, pods that request both, reservations without affinity, taints or options; all policies.
"""

from __future__ import annotations

from typing import Any

from cotenant.api.objects.pod import decode_pod
from cotenant.events.node.runs import RunStatus
from cotenant.events.placements import Placement, PlacementPhase
from cotenant.events.reservations import ReservationShare
from tests.unit.scheduler.builders_reservations import ReservedStory

RESOURCES = ("cpu", "memory")


def placements(story: ReservedStory) -> list[Placement]:
    """The placements that hold something: those whose run has not ended."""
    ended = {
        (event.data.node, event.data.uid)
        for event in story.last.values()
        if isinstance(event.data, RunStatus) and not event.tombstone and event.data.phase.terminal
    }
    return [
        event.data
        for event in story.last.values()
        if isinstance(event.data, Placement)
        and not event.tombstone
        and event.data.phase is not PlacementPhase.GONE
        and (event.data.node, event.data.uid) not in ended
    ]


def shares(story: ReservedStory) -> list[ReservationShare]:
    """The shares that nodes have given away."""
    return [
        event.data for event in story.last.values() if isinstance(event.data, ReservationShare) and not event.tombstone
    ]


def reservation_of(placement: Placement) -> str:
    """The uid of the reservation that a pod uses."""
    allocation = placement.allocation
    return allocation.reservation.uid if allocation is not None and allocation.reservation is not None else ""


def allocated(story: ReservedStory, uid: str, resource: str, there: list[Placement] | None = None) -> int:
    """What the owners of a reservation request. `there`: of these placements."""
    there = placements(story) if there is None else there
    return sum(placed.requests.get(resource, 0) for placed in there if reservation_of(placed) == uid)


def taken(story: ReservedStory, node: str, resource: str, there: list[Placement] | None = None) -> int:
    """What pods and what is left of reservations take of a node. `there`: with these placements."""
    there = placements(story) if there is None else there
    pods = sum(placed.requests.get(resource, 0) for placed in there if placed.node == node)
    left = sum(
        max(0, share.allocatable.get(resource, 0) - allocated(story, share.uid, resource, there))
        for share in shares(story)
        if share.node == node
    )
    return pods + left


def usable(
    story: ReservedStory,
    objects: dict[str, dict[str, Any]],
    offered: dict[str, dict[str, int]],
    pod: dict[str, Any],
    there: list[Placement] | None = None,
) -> dict[str, tuple[str, int]]:
    """By reservation that a pod may use now: its node and how full it is with the pod (MostAllocated). `there`: with these
    placements."""
    there = placements(story) if there is None else there
    wanted = pod_requests(pod)
    found: dict[str, tuple[str, int]] = {}
    for share in shares(story):
        document = objects.get(share.name)
        if document is None or document["metadata"]["uid"] != share.uid or share.node not in offered:
            continue
        spec = document["spec"]
        app = spec["owners"][0]["labelSelector"]["matchLabels"]["app"]
        owners = [placed for placed in there if reservation_of(placed) == share.uid]
        if pod["metadata"]["labels"].get("app") != app or (spec["allocateOnce"] and owners):
            continue
        fits = True
        score = 0
        for resource in RESOURCES:
            held, used = share.allocatable[resource], allocated(story, share.uid, resource, there)
            left = max(0, held - used)
            free = offered[share.node][resource] - taken(story, share.node, resource, there)
            fits &= wanted[resource] <= free + left
            if spec.get("allocatePolicy") == "Restricted":
                fits &= wanted[resource] <= held - used
            score += 100 * (wanted[resource] + used) // held if wanted[resource] + used <= held else 0
        if fits:
            found[share.name] = (share.node, score // len(RESOURCES))
    return found


def makes_leave(
    story: ReservedStory,
    objects: dict[str, dict[str, Any]],
    offered: dict[str, dict[str, int]],
    pod: dict[str, Any],
    there: list[Placement] | None = None,
) -> tuple[str, list[str]] | None:
    """Where a pod that may use reservations only, and finds none with room, makes pods leave, and which: the most important
    first; None where that does not help. `there`: with these placements."""
    app, priority = pod["metadata"]["labels"]["app"], pod["spec"]["priority"]
    there = placements(story) if there is None else there
    priorities = {placed.uid: decode_pod(placed.pod).spec.priority or 0 for placed in there}
    selectors = {name: objects[name]["spec"]["owners"][0]["labelSelector"]["matchLabels"] for name in objects}
    for_it = [share for share in shares(story) if selectors[share.name]["app"] == app]
    choices = []
    for name in sorted({share.node for share in for_it}):
        may_use = {"", *(share.uid for share in for_it if share.node == name)}
        lower = [
            placed
            for placed in there
            if placed.node == name and priorities[placed.uid] < priority and reservation_of(placed) in may_use
        ]
        lower.sort(key=lambda placed: (-priorities[placed.uid], str(placed.bound_at), placed.name))

        def fits(gone: list[Placement], node: str = name) -> bool:
            left = [placed for placed in there if placed not in gone]
            return any(where == node for where, _ in usable(story, objects, offered, pod, left).values())

        gone = list(lower)
        if not lower or not fits(gone):
            continue
        for placed in lower:
            fewer = [other for other in gone if other is not placed]
            if fits(fewer):
                gone = fewer
        ranks = [priorities[placed.uid] for placed in gone]
        bound_at = gone[0].bound_at
        assert bound_at is not None
        key = max(ranks), sum(rank + (1 << 31) for rank in ranks), len(ranks), -bound_at.timestamp(), name
        choices.append((key, name, [placed.name for placed in gone]))
    return min(choices)[1:] if choices else None


def coming_rooms(
    story: ReservedStory,
    objects: dict[str, dict[str, Any]],
    offered: dict[str, dict[str, int]],
    pod: dict[str, Any],
    ending: set[str],
    *,
    required: bool,
) -> list[tuple[int, bool, str, str]]:
    """The rooms that come for a pod which nothing takes now, the best first: millionths of the node that are short, whether it
    is beside reservations, node, reservation. `ending`: pods that end by themselves; `required`: it needs a reservation.
    """
    there, wanted = placements(story), pod_requests(pod)
    later = [placed for placed in there if placed.name not in ending]
    found: list[tuple[int, bool, str, str]] = []

    def share(node: str, missing: dict[str, int]) -> int:
        return int(max(max(0, amount) / offered[node][resource] for resource, amount in missing.items()) * 1_000_000)

    for node in () if required else offered:
        lacking = {name: taken(story, node, name, there) + wanted[name] - offered[node][name] for name in RESOURCES}
        if all(taken(story, node, name, later) + wanted[name] <= offered[node][name] for name in RESOURCES):
            found.append((share(node, lacking), True, node, ""))
    for name, (node, _) in usable(story, objects, offered, pod, later).items():
        held = next(each for each in shares(story) if each.name == name)
        lacking = {}
        for resource in RESOURCES:
            left = held.allocatable[resource] - allocated(story, held.uid, resource, there)
            free = offered[node][resource] - taken(story, node, resource, there) + max(0, left)
            if objects[name]["spec"].get("allocatePolicy") == "Restricted":
                free = min(free, left)
            lacking[resource] = wanted[resource] - free
        found.append((share(node, lacking), False, node, name))
    return sorted(found)


def pod_requests(pod: dict[str, Any]) -> dict[str, int]:
    """Milli-cores and bytes that a pod of the tests requests."""
    requests = pod["spec"]["containers"][0]["resources"]["requests"]
    return {"cpu": 1000 * int(requests["cpu"]), "memory": int(requests["memory"].removesuffix("Gi")) << 30}

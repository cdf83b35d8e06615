"""Whether a pod fits into the reservations of a node, and onto the node.

In: the pod's requests, what the node has free, the matched reservations (`ReservationCapacity`). Out: a `FitResult`: the rooms
that take the pod, or why none does. The rules:

    free        allocatable - (what pods and unused reservations take); a matched reservation's own remainder is freed for one
                reservation at a time
    node        every request fits into free + available(room); one pod more fits, matched reservations not counted
    room        Restricted only: each resource that the room holds must come from it whole; `pods` caps the number of owners
    fallback    a pod without reservation affinity may use the node alone

available(room) = max(0, allocatable - allocated - reserved inside). Default and Aligned are alike: the reservation's remainder
first, the rest from the node. Source: Koordinator `filterWithReservations`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from cotenant.domain.reservations.names import POLICY_RESTRICTED
from cotenant.model.names import CPU, MEMORY, RESOURCE_PODS

NO_MATCH = "node(s) no reservations match reservation affinity"
NONE_MEETS = "node(s) no reservation(s) to meet the requirements"
ALREADY_ALLOCATED = "reservation has allocateOnce enabled and has already been allocated"
OTHER_NODE = "node(s) didn't match the nodeName specified by reservation"
POLICY_CONFLICT = "node(s) reservation allocate policy conflict"
_NATIVE = (CPU, MEMORY, "ephemeral-storage")
_NOTHING: Mapping[str, int] = {}
MILLION = 1_000_000
MOST_SHORT = 1e6
"""Multiples of what a node offers; larger ones compare as equal."""


class Ignored(msgspec.Struct, frozen=True):
    """Extended resources that are ignored, by name and by prefix before the slash."""

    names: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def covers(self, resource: str) -> bool:
        """Return whether a resource is left out."""
        if not (self.names or self.groups) or resource in _NATIVE or resource == RESOURCE_PODS:
            return False
        group, slash, _ = resource.partition("/")
        return resource in self.names or (bool(slash) and group in self.groups)


class ReservationCapacity(msgspec.Struct, frozen=True):
    """What a reservation holds, as filters and scores see it. Amounts in milli-cores and units."""

    name: str
    uid: str
    policy: str
    names: tuple[str, ...]
    """Resources that it holds (Restricted: that are restricted)."""
    allocatable: Mapping[str, int]
    allocated: Mapping[str, int] = {}
    reserved: Mapping[str, int] = {}
    pods: int = 0
    """Owners."""
    allocate_once: bool = False
    order: int = 0
    created: str = ""

    def available(self, resource: str) -> int:
        """Return what of a resource is left for owners."""
        held = self.allocatable.get(resource)
        if held is None:
            return 0
        left = held - self.allocated.get(resource, 0) - self.reserved.get(resource, 0)
        return left if left > 0 else 0


class FitResult(msgspec.Struct, frozen=True):
    """`fits` with the rooms that take the pod (none: the node alone does), or the reasons; `by_node` of them concern the node,
    the others reservations."""

    fits: bool
    rooms: tuple[ReservationCapacity, ...] = ()
    reasons: tuple[str, ...] = ()


class Victims(msgspec.Struct, frozen=True):
    """What preempted pods would release: on the node, and inside reservations by uid."""

    on_node: Mapping[str, int] = {}
    inside: Mapping[str, Mapping[str, int]] = {}


NO_VICTIMS = Victims()
NOT_IGNORED = Ignored()


def allocated_of(requests: Iterable[Mapping[str, int]], names: Sequence[str]) -> dict[str, int]:
    """Return what owners take of a reservation: their requests of the resources that it holds."""
    total: dict[str, int] = {}
    for request in requests:
        for name in names:
            amount = request.get(name, 0)
            if amount:
                total[name] = total.get(name, 0) + amount
    return total


def short_on_node(
    requests: Mapping[str, int],
    free: Mapping[str, int],
    pods_free: int,
    room: ReservationCapacity | None = None,
    given_back: Mapping[str, int] = _NOTHING,
    ignored: Ignored = NOT_IGNORED,
) -> list[str]:
    """Return the resources that are short on a node with one reservation's remainder freed: `pods`, cpu, memory,
    ephemeral-storage, then the others by name. `pods_free`: pods that the node takes beside matched reservations."""
    short = [RESOURCE_PODS] if pods_free < 1 else []
    for name in _in_order(requests):
        amount = requests[name]
        if not amount or ignored.covers(name):
            continue
        left = free.get(name, 0) + (room.available(name) if room is not None else 0) + given_back.get(name, 0)
        if amount > left:
            short.append(name)
    return short


def _in_order(requests: Mapping[str, int]) -> list[str]:
    native = [name for name in _NATIVE if name in requests]
    return native if len(native) == len(requests) else [*native, *sorted(requests.keys() - set(_NATIVE) - {RESOURCE_PODS})]


def short_in_room(
    requests: Mapping[str, int],
    room: ReservationCapacity,
    given_back: Mapping[str, int] = _NOTHING,
    ignored: Ignored = NOT_IGNORED,
    *,
    detailed: bool = False,
) -> list[str]:
    """Return why a reservation cannot hold a pod by itself."""
    found = []
    if RESOURCE_PODS in room.allocatable:
        used = room.pods - given_back.get(RESOURCE_PODS, 0)
        capacity = room.allocatable[RESOURCE_PODS]
        if used + 1 > capacity:
            details = f", requested: 1, used: {used}, capacity: {capacity}" if detailed else ""
            found.append(f"Reservation(s) Too many pods{details}")
    for name in room.names:
        amount = requests.get(name, 0)
        if name == RESOURCE_PODS or amount <= 0 or ignored.covers(name):
            continue
        used = max(0, room.allocated.get(name, 0) - given_back.get(name, 0))
        capacity = room.allocatable.get(name, 0) - room.reserved.get(name, 0)
        if amount > capacity - used:
            details = f", requested: {amount}, used: {used}, capacity: {capacity}" if detailed else ""
            found.append(f"Reservation(s) Insufficient {name}{details}")
    return found


def share_short(
    requests: Mapping[str, int],
    free: Mapping[str, int],
    pods_free: int,
    room: ReservationCapacity,
    offered: Mapping[str, int],
    ignored: Ignored = NOT_IGNORED,
) -> int:
    """Return what is short for a pod in a reservation: the largest share of what the node offers, in millionths, 0 for nothing.
    `pods_free`: pods that the node takes beside matched reservations."""
    restricted = room.policy == POLICY_RESTRICTED
    left = pods_free
    if restricted and RESOURCE_PODS in room.allocatable:
        left = min(left, room.allocatable[RESOURCE_PODS] - room.pods)
    short = max(1 - left, 0) / max(offered.get(RESOURCE_PODS, 0), 1)
    for name, amount in requests.items():
        if not amount or name == RESOURCE_PODS or ignored.covers(name):
            continue
        left = free.get(name, 0) + room.available(name)
        if restricted and name in room.names:
            left = min(left, room.allocatable.get(name, 0) - room.allocated.get(name, 0) - room.reserved.get(name, 0))
        short = max(short, max(amount - left, 0) / max(offered.get(name, 0), 1))
    return int(min(short, MOST_SHORT) * MILLION)


def shares_a_resource(requests: Mapping[str, int], room: ReservationCapacity) -> bool:
    """Return whether a pod requests anything that the reservation holds."""
    for name in room.names:  # noqa: SIM110 - it runs for every pod and room
        if requests.get(name):
            return True
    return False


def judged(
    requests: Mapping[str, int],
    free: Mapping[str, int],
    pods_free: int,
    rooms: Sequence[ReservationCapacity],
    *,
    required: bool,
    name: str = "",
    victims: Victims = NO_VICTIMS,
    ignored: Ignored = NOT_IGNORED,
    skip_node: bool = False,
) -> FitResult:
    """Return which matched reservations of a node take a pod, or why it does not fit there. `required`: the pod has reservation
    affinity, with `name` where that names one; `skip_node`: with a single matched reservation the node is not checked."""
    taking: list[ReservationCapacity] = []
    node_reasons: set[str] = set()
    room_reasons: list[str] = []
    for room in rooms:
        if (not required and not shares_a_resource(requests, room)) or (name and name != room.name):
            continue
        inside = victims.inside.get(room.uid, _NOTHING)
        of_node: list[str] = []
        if not (skip_node and len(rooms) <= 1):
            of_node = short_on_node(requests, free, pods_free, room, _sum(victims.on_node, inside), ignored)
        of_room: list[str] = []
        if room.policy == POLICY_RESTRICTED:
            of_room = short_in_room(requests, room, inside, ignored, detailed=bool(name))
        if not of_node and not of_room:
            taking.append(room)
        node_reasons.update(of_node)
        room_reasons += of_room
    if taking:
        return FitResult(True, tuple(taking))
    on_node = tuple(f"Insufficient {resource} by node" for resource in sorted(node_reasons))
    if required:
        return FitResult(False, reasons=(*on_node, *room_reasons) or (NONE_MEETS,))
    if on_node:
        return FitResult(False, reasons=on_node)
    alone = short_on_node(requests, free, pods_free, None, victims.on_node, ignored)
    if alone:
        return FitResult(False, reasons=tuple(f"Insufficient {resource} by node" for resource in sorted(alone)))
    return FitResult(True)


def may_be_nominated(requests: Mapping[str, int], room: ReservationCapacity, *, required: bool) -> str:
    """Return why a reservation that fits the node cannot be used by a pod; empty if it can."""
    if room.allocate_once and room.pods:
        return ALREADY_ALLOCATED
    if not required and not shares_a_resource(requests, room):
        return NONE_MEETS
    reasons = short_in_room(requests, room) if room.policy == POLICY_RESTRICTED else []
    return reasons[0] if reasons else ""


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> Mapping[str, int]:
    if not second:
        return first
    return {name: first.get(name, 0) + second.get(name, 0) for name in (*first, *second)} if first else second


def refuses_reserve_pod(node: str, wanted: str, policy: str, policies_there: Iterable[str]) -> str:
    """Return why a reservation cannot be placed on a node: another one is named, or its policy conflicts with those there
    (Default goes with Default alone); empty if it can."""
    if wanted and wanted != node:
        return OTHER_NODE
    if any(other != policy and "" in (other, policy) for other in policies_there):
        return POLICY_CONFLICT
    return ""

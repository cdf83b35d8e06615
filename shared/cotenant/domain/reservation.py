"""What a node reserves for itself: the kubelet's reserve and the reservation annotation.

In: capacity, allocatable and annotations of a node. Out: integer amounts (cpu in milli-CPUs, everything else in units).

    kubelet reserve    = max(capacity - allocatable, 0)                       cpu and memory
    annotation reserve = `resources` of node.koordinator.sh/reservation; `reservedCPUs` replaces its cpu by their number
    node reserve       = max(kubelet reserve, annotation reserve)             per resource, not the sum

Source: Koordinator node reservation. A malformed annotation reserves nothing and sets `NodeReservation.error`. A
resource that `allocatable` does not name counts as wholly allocatable, as Kubernetes defaults a node's status.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cotenant.model.names import ANNOTATION_NODE_RESERVATION, BATCH_CPU, BATCH_MEMORY, CPU, MEMORY
from cotenant.model.quantities import QuantityError, Scalar, resource_amount

APPLY_DEFAULT = "Default"
APPLY_POLICIES = (APPLY_DEFAULT, "ReservedCPUsOnly")
_KEPT = frozenset({BATCH_CPU, BATCH_MEMORY})
_MAX_CPU = 8192


class ReservationError(ValueError):
    """The annotation cannot be read; the message says where."""


class _Document(msgspec.Struct, frozen=True, rename="camel"):
    resources: dict[str, Scalar] = {}
    reserved_cpus: str = msgspec.field(default="", name="reservedCPUs")
    apply_policy: str = ""


class NodeReservation(msgspec.Struct, frozen=True):
    """What the annotation reserves. `apply_policy` is empty, `Default` or `ReservedCPUsOnly`; `error` is empty if it
    could be read.
    """

    resources: dict[str, int] = {}
    reserved_cpus: frozenset[int] = frozenset()
    apply_policy: str = ""
    error: str = ""


_DECODER = msgspec.json.Decoder(_Document)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPU numbers of a kernel list such as `0-3,6`. Raises ReservationError on anything else."""
    numbers: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isascii() or not low.isdigit() or (dash and not (high.isascii() and high.isdigit())):
            raise ReservationError(f"reservedCPUs {text!r}: {part!r} is neither a CPU number nor a range such as 0-3")
        first, last = int(low), int(high or low)
        if first > last or last >= _MAX_CPU:
            raise ReservationError(f"reservedCPUs {text!r}: {part!r} is not an ascending range below {_MAX_CPU}")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def parse_reservation(annotations: Mapping[str, str]) -> NodeReservation:
    """Return what `node.koordinator.sh/reservation` reserves; nothing, with `error` set, where it cannot be read."""
    text = annotations.get(ANNOTATION_NODE_RESERVATION)
    if text is None:
        return NodeReservation()
    try:
        document = _DECODER.decode(text)
        resources = {name: max(resource_amount(name, quantity), 0) for name, quantity in document.resources.items()}
        cpus = parse_cpu_list(document.reserved_cpus) if document.reserved_cpus else frozenset[int]()
    except (msgspec.DecodeError, QuantityError, ReservationError) as error:
        return NodeReservation(error=f"annotation {ANNOTATION_NODE_RESERVATION}: {error}")
    if cpus:
        resources[CPU] = 1000 * len(cpus)
    return NodeReservation(resources=resources, reserved_cpus=cpus, apply_policy=document.apply_policy)


def annotated_amounts(text: str) -> Mapping[str, Scalar]:
    """Return the amounts of a reservation annotation as written.

    Raises ReservationError where it cannot be read, or has an unknown apply policy, by which readers would not trim.
    """
    try:
        document = _DECODER.decode(text)
    except msgspec.DecodeError as error:
        raise ReservationError(str(error)) from error
    if document.reserved_cpus:
        parse_cpu_list(document.reserved_cpus)
    if document.apply_policy and document.apply_policy not in APPLY_POLICIES:
        raise ReservationError(f"applyPolicy {document.apply_policy[:100]!r}: must be {' or '.join(APPLY_POLICIES)}")
    return document.resources


def kubelet_reserved(capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> dict[str, int]:
    """Return max(capacity - allocatable, 0) of cpu and memory."""
    return {name: max(capacity.get(name, 0) - allocatable.get(name, capacity.get(name, 0)), 0) for name in (CPU, MEMORY)}


def node_reserved(kubelet: Mapping[str, int], reservation: NodeReservation) -> dict[str, int]:
    """Return the larger of the two reserves for cpu and memory."""
    return {name: max(kubelet.get(name, 0), reservation.resources.get(name, 0)) for name in (CPU, MEMORY)}


def trim_allocatable(allocatable: Mapping[str, int], reservation: NodeReservation) -> tuple[dict[str, int], bool]:
    """Return what schedulers may place on the node, and whether the reservation reduced it.

    Only with apply policy empty or `Default`. Batch resources keep their value: they exclude the reserve already.
    """
    wanted = reservation.apply_policy in ("", APPLY_DEFAULT) and any(reservation.resources.values())
    if not wanted:
        return dict(allocatable), False
    trimmed = {
        name: amount if name in _KEPT else max(amount - reservation.resources.get(name, 0), 0)
        for name, amount in allocatable.items()
    }
    return trimmed, True

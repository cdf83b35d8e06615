"""Reservations in a benchmark: a third of the pods may use one each.

In: the workload, the number of reservations. Out: events of Reservations and of their existing shares of nodes; the
labels by which pods are their owners. Every reservation has a list of owners of its own; every second one is used once, the
others often; each holds what four pods of the largest kind request. Pod 3 i may use reservation i, modulo their number. Nodes
that are cordoned or dedicated have none. With `rules` they differ: those of every second node are Restricted or Aligned;
owners are found by label, by controller, or by both, some have the owners of another one as well; and pods of some have
affinity, by selector, name or terms.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from cotenant.api.objects.reservation import decode_reservation
from cotenant.domain.reservations.names import ANNOTATION_AFFINITY, POLICY_ALIGNED, POLICY_RESTRICTED
from cotenant.domain.reservations.reserve_pod import reserve_pod_document
from cotenant.events.envelope import Payload
from cotenant.events.objects import ObjectStored
from cotenant.events.reservations import ReservationShare
from cotenant.model.quantities import format_amount, resource_amount
from cotenant.model.subjects import object_subject, reservation_subject

CLAIM = "bench.cotenant.io/claim"
EVERY = 3
"""One pod in this many may use a reservation."""
PODS_EACH = 4
_GROUP = "scheduling.koordinator.sh"


def claim_of(i: int, reservations: int) -> str | None:
    """Return the label value of the i-th pod; None: it may use no reservation."""
    return str(i // EVERY % reservations) if reservations and i % EVERY == 0 else None


def pod_rules(claim: str) -> dict[str, Any]:
    """Return the metadata of a pod of a claim, with `rules`: its controller, and its affinity."""
    found: dict[str, Any] = {"ownerReferences": [_controller(claim)]}
    affinity = _affinity(int(claim))
    if affinity is not None:
        found["annotations"] = {ANNOTATION_AFFINITY: msgspec.json.encode(affinity).decode()}
    return found


def _controller(claim: str) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": f"claim-{claim}", "uid": f"uid-{claim}", "controller": True}


def _affinity(i: int) -> dict[str, Any] | None:
    match i % 8:
        case 1:
            return {"reservationSelector": {CLAIM: str(i)}}
        case 3:
            term = {"matchExpressions": [{"key": CLAIM, "operator": "In", "values": [str(i)]}]}
            return {"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [term]}}
        case 5:
            return {"name": _name(i)}
    return None


def _name(i: int) -> str:
    return f"reservation-{i:06}"


def held_by_each(kinds: tuple[dict[str, str], ...]) -> dict[str, int]:
    """Return what a reservation holds, in milli-cores and units."""
    names = sorted({name for kind in kinds for name in kind})
    return {name: PODS_EACH * max(resource_amount(name, kind.get(name, "0")) for kind in kinds) for name in names}


def takes_reservations(node: int) -> bool:
    """Return whether the i-th node has reservations."""
    return node % 50 != 49 and node % 100 != 37


def reservation_events(
    nodes: list[str], kinds: tuple[dict[str, str], ...], reservations: int, now: datetime, rules: bool
) -> Iterator[tuple[str, Payload]]:
    """Yield subjects and payloads: each Reservation, and the share of a node that it has; nodes in turn."""
    held = held_by_each(kinds)
    for i in range(reservations):
        document = _document(i, held, now)
        if rules:
            _differ(document, i, i % len(nodes))
        raw = msgspec.Raw(msgspec.json.encode(document))
        name, node = document["metadata"]["name"], nodes[i % len(nodes)]
        yield object_subject(_GROUP, "reservations", "", name), ObjectStored(object=raw)
        share = ReservationShare(
            node=node,
            name=name,
            uid=document["metadata"]["uid"],
            allocatable=held,
            bound_at=now,
            updated_at=now,
            pod=reserve_pod_document(raw, decode_reservation(raw), node),
        )
        yield reservation_subject(node, name), share


def _document(i: int, held: dict[str, int], now: datetime) -> dict[str, Any]:
    requests = {name: format_amount(name, amount) for name, amount in held.items()}
    return {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "Reservation",
        "metadata": {
            "name": _name(i),
            "uid": f"10000000-0000-0000-0000-{i:012}",
            "creationTimestamp": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        "spec": {
            "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}},
            "owners": [{"labelSelector": {"matchLabels": {CLAIM: str(i)}}}],
            "ttl": "24h",
            "allocateOnce": i % 2 == 0,
        },
    }


def _differ(document: dict[str, Any], i: int, node: int) -> None:
    """Reservations of the policy Default are not beside others: the node decides."""
    document["metadata"]["labels"] = {CLAIM: str(i)}
    spec = document["spec"]
    if node % 2:
        spec["allocatePolicy"] = POLICY_ALIGNED if i % 4 == 3 else POLICY_RESTRICTED
    if i % 3:
        spec["owners"] = [{**(spec["owners"][0] if i % 3 == 2 else {}), "controller": _controller(str(i))}]
    if i % 2:
        # The pods of a neighbour may use it, too, unless their affinity is for their own.
        spec["owners"].append({"controller": _controller(str(i ^ 4))})

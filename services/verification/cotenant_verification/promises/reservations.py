"""Promise 22: no reservation is over-allocated, or leaks.

Read from shares, statuses, placements and the Reservations' documents, by code that shares nothing with the scheduler's; which
pod may use which is for the bench's independent check (`reservation_rules`).

    a commit    places pods in shares of their node alone, in those that are for them, and pods with reservation affinity in
                nothing else; one that is allocated once has one owner, and
                so has a pod that acts as one; a Restricted one gives no more than it holds; pods and the free rest of
                reservations fit into what the node offers
    afterwards  a share has its object and its node, nothing that has expired is held, and every reservation has a status
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set
from datetime import datetime, timedelta

import msgspec

from cotenant.api.objects.pod import Pod, decode_pod
from cotenant.api.objects.pod_resources import pod_requests
from cotenant.api.objects.reservation import OwnerRule, decode_reservation
from cotenant.events.allocations import ReservationUsed
from cotenant.events.envelope import Event
from cotenant.events.objects import ObjectStored
from cotenant.events.placements import Placement
from cotenant.events.reservations import ReservationPhase, ReservationShare, ReservationStatus
from cotenant.model.names import RESOURCE_PODS
from cotenant.model.subjects import node_subject, object_subject, reservation_status_subject, reservation_subject
from cotenant_verification.bench.audit.acting import counted_twice, used_by
from cotenant_verification.bench.audit.reservation_rules import needs_one, owners_match, refuses
from cotenant_verification.checks.filters import Nodes
from cotenant_verification.checks.invariants import Moment, Wrong
from cotenant_verification.checks.log_view import TRACKED, LogView
from cotenant_verification.checks.records import CommitSeen
from cotenant_verification.promises.log.resizes import admitted, was_resized
from cotenant_verification.promises.placements import new_placements

GROUP = "scheduling.koordinator.sh"
RESTRICTED = "Restricted"
LATE = timedelta(seconds=30)
"""How long the end of a reservation may take once there are no faults any more."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: datetime | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    ttl: str = "24h"
    allocate_once: bool = True
    allocate_policy: str = ""


class Stated(msgspec.Struct, frozen=True):
    """A Reservation's document, as chaos runs write it."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


_STATED = msgspec.json.Decoder(Stated)
_POD = msgspec.json.Decoder(_Pod)
_OWNERS = msgspec.json.Decoder(list[OwnerRule])


def stated(view: LogView, name: str) -> Stated | None:
    """Return the Reservation of a name; None if there is none."""
    event = view.last.get(object_subject(GROUP, "reservations", "", name))
    return _STATED.decode(event.data.object) if event is not None and isinstance(event.data, ObjectStored) else None


def no_reservation_is_over_allocated(view: LogView, seen: CommitSeen) -> Wrong:
    """A commit's placements in reservations, and on nodes that have some: in what they and the commit's shares ask for. A pod
    that names its node takes what it asks for unasked, so another resource may be taken beyond the offer already."""
    if seen.service != "scheduler":
        return
    before = {(e.data.node, e.data.uid) for e in seen.events if isinstance(e.data, ReservationShare)}
    touched: dict[str, set[str]] = {}
    for event in seen.events:
        if isinstance(event.data, ReservationShare) and not event.tombstone:
            touched.setdefault(event.data.node, set()).update(event.data.allocatable)
    ended = [event.data for event in seen.events if isinstance(event.data, ReservationStatus)]
    for event in new_placements(view, seen):
        data = event.data
        assert isinstance(data, Placement)
        touched.setdefault(data.node, set()).update(data.requests)
        used = data.allocation.reservation if data.allocation is not None else None
        if used is None or used.uid == data.uid:
            if needs_one(decode_pod(data.pod)):
                yield event.subject, f"{event.ref} uses no reservation, and its affinity asks for one"
            continue
        if "/" in used.name:
            yield from _in_acting(view, data, used, event)
            continue
        held = [share.data for share in view.shares[data.node].values() if isinstance(share.data, ReservationShare)]
        if used.uid not in {share.uid for share in held} and (data.node, used.uid) not in before:
            yield event.subject, f"{event.ref} uses reservation {used.name}, which holds nothing on {data.node}"
        document = stated(view, used.name)
        refusal = _refusal(view, seen, data, used)
        if refusal:
            yield event.subject, f"{event.ref} uses reservation {used.name}: {refusal}"
        if document is not None and document.metadata.uid == used.uid and document.spec.allocate_once:
            owners = sum(_uses(placed, used.uid) for placed in _placed(view, data.node))
            if owners > 1 or not any(status.uid == used.uid for status in ended):
                yield event.subject, f"{event.ref}: reservation {used.name} has allocateOnce and {owners} owners"
    for node, asked in sorted(touched.items()):
        yield from _on_node(view, seen, node, asked)


def _in_acting(view: LogView, data: Placement, used: ReservationUsed, event: Event) -> Wrong:
    """A pod is placed in what another one holds, which acts as a reservation."""
    on_node = list(_placed(view, data.node))
    acting = next((placed for placed in on_node if placed.uid == used.uid), None)
    if acting is None:
        yield event.subject, f"{event.ref} uses pod {used.name} as a reservation, which is not on {data.node}"
        return
    metadata = _POD.decode(acting.pod).metadata
    owners = _OWNERS.decode(metadata.annotations.get(f"{GROUP}/reservation-owners", "[]"))
    if metadata.labels.get(f"{GROUP}/operating-mode") != "Reservation" or not owners_match(owners, decode_pod(data.pod)):
        yield event.subject, f"{event.ref} uses pod {used.name} as a reservation, which is not for it"
    users = sum(_uses(placed, used.uid) for placed in on_node) - 1
    if users > 1:
        yield event.subject, f"{event.ref}: pod {used.name} acts as a reservation for one pod at a time, and has {users}"


def _refusal(view: LogView, seen: CommitSeen, data: Placement, used: ReservationUsed) -> str:
    """Why a pod may not use a Reservation as it was when the commit was decided; empty if it may, or that is not known."""
    event = view.last.get(object_subject(GROUP, "reservations", "", used.name))
    if event is None or event.sequence > seen.commit.folded or not isinstance(event.data, ObjectStored):
        return ""
    reservation, node = decode_reservation(event.data.object), Nodes(view, seen.commit.folded).get(data.node)
    template = reservation.spec.template
    if reservation.metadata.uid != used.uid or node is None or template is None:
        return ""
    return refuses(reservation, decode_pod(data.pod), data.requests, pod_requests(Pod(spec=template.spec)), node.labels)


def _placed(view: LogView, node: str) -> Iterator[Placement]:
    for event in view.placed[node].values():
        data = event.data
        if isinstance(data, Placement) and (node, data.uid) not in view.ended_runs:
            yield data


def _uses(placed: Placement, uid: str) -> bool:
    return used_by(placed) == uid


def _on_node(view: LogView, seen: CommitSeen, node: str, asked: Set[str]) -> Wrong:
    """`asked`: the resources that the commit takes on the node."""
    shares = [event.data for event in view.shares[node].values() if isinstance(event.data, ReservationShare)]
    if not shares:
        return
    taken: Counter[str] = Counter()
    for placed in view.held(node, seen.commit.folded):
        taken.update(admitted(view, placed))
        taken[RESOURCE_PODS] += 1
    taken.subtract(counted_twice(view.held(node, seen.commit.folded)))
    for share in shares:
        owned: Counter[str] = Counter()
        resized = False
        for placed in view.held(node, seen.commit.folded):
            if _uses(placed, share.uid):
                owned.update(admitted(view, placed))
                resized = resized or was_resized(view, placed)
        document = stated(view, share.name)
        for resource, held in share.allocatable.items():
            taken[resource] += max(0, held - owned[resource])
            # A user may resize an owner beyond its reservation, into the node's own room.
            restricted = document is not None and document.spec.allocate_policy == RESTRICTED and not resized
            if restricted and owned[resource] > held:
                subject = reservation_subject(node, share.name)
                yield subject, f"{seen.record.ref}: owners are allocated {owned[resource]} {resource} of {held}"
    offered = view.offer(node, seen.commit.folded)
    for resource in TRACKED:
        held_too = resource in asked and any(resource in share.allocatable for share in shares)
        if held_too and resource != RESOURCE_PODS and taken[resource] > offered.get(resource, 0):
            yield (
                node_subject(node),
                f"{seen.record.ref}: pods and reservations take {taken[resource]} {resource} of node {node}, which offered "
                f"{offered.get(resource, 0)} at LOG:{seen.commit.folded}",
            )


def no_reservation_leaks(moment: Moment) -> Wrong:
    """In the idle phase: every share has an object, and has not expired."""
    view = moment.view
    for node, shares in sorted(view.shares.items()):
        for name, event in sorted(shares.items()):
            share = event.data
            assert isinstance(share, ReservationShare)
            moment.counts["shares of nodes"] += 1
            document = stated(view, name)
            if document is None or document.metadata.uid != share.uid:
                yield event.subject, f"reservation {name} ({share.uid}) still holds room on {node} after its deletion"
            elif _over(document, moment.now):
                yield event.subject, f"reservation {name} still holds room on {node} after its expiry"
            if node_subject(node) not in view.last:
                yield event.subject, f"reservation {name} still holds room on {node}, which was deleted"
    for subject, event in sorted(view.last.items()):
        if not subject.startswith(f"objects.{GROUP.replace('.', '%2E')}.reservations.") or not isinstance(
            event.data, ObjectStored
        ):
            continue
        document = _STATED.decode(event.data.object)
        name, uid = document.metadata.name, document.metadata.uid
        status = view.last.get(reservation_status_subject(name))
        published = status is not None and isinstance(status.data, ReservationStatus) and status.data.uid == uid
        held = any(
            isinstance(share.data, ReservationShare) and share.data.uid == uid
            for shares in view.shares.values()
            for share in shares.values()
        )
        fresh = event.time is not None and moment.now - event.time < LATE
        if published == held and not fresh:
            yield subject, f"reservation {name} has {'a share and a status' if published else 'neither share nor status'}"
        if published and status is not None and isinstance(status.data, ReservationStatus):
            moment.counts[f"reservations {status.data.phase.value}"] += 1
            if status.data.phase is ReservationPhase.PENDING and _over(document, moment.now):
                yield subject, f"reservation {name} still waits after its expiry"


def _over(document: Stated, now: datetime) -> bool:
    created, ttl = document.metadata.creation_timestamp, int(document.spec.ttl.removesuffix("s"))
    return created is not None and ttl > 0 and now > created + timedelta(seconds=ttl) + LATE

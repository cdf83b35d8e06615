"""scheduling.koordinator.sh/v1alpha1 Reservation = document + the scheduler's share of a node or status.

In: the document, and the last `node.<node>.reservation.<name>` or `reservations.<name>` event of that object. Out: status, as
Koordinator's scheduler writes it. Defaults: those of Koordinator's custom resource. Validation: what the scheduler could not
place or match, as errors of fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cotenant.api.ages import age
from cotenant.api.columns import AGE, NAME, Cell, Column, Layout
from cotenant.api.definitions import KindDefinition
from cotenant.api.kinds import Kind
from cotenant.api.objects.metadata import ObjectMeta, View
from cotenant.api.objects.reservation import Reservation, decode_reservation
from cotenant.api.overlay import Overlay
from cotenant.api.snapshots import Snapshot
from cotenant.api.splices import DocumentError, member_object, members, raw
from cotenant.api.times import parse_rfc3339, rfc3339
from cotenant.api.validation.fields import FieldError, invalid, not_supported, required
from cotenant.api.validation.metadata import selector_errors
from cotenant.api.validation.resources import resource_errors
from cotenant.domain.reservations.names import POLICIES, POLICY_RESTRICTED
from cotenant.domain.reservations.options import option_errors
from cotenant.domain.tolerations import HARD_EFFECTS
from cotenant.events.envelope import Event
from cotenant.events.reservations import (
    ReservationCondition,
    ReservationShare,
    ReservationStatus,
    available_conditions,
)
from cotenant.model.amounts import as_texts
from cotenant.model.durations import DurationError, parse_duration
from cotenant.model.subjects import tokens

RESERVATIONS = Kind("scheduling.koordinator.sh", "v1alpha1", "reservations", "Reservation", False)
DEFAULT_TTL = "24h"
PRE_ALLOCATION_DEFAULT = "Default"


def default_reservation(document: msgspec.Raw) -> msgspec.Raw:
    """Return the document with Koordinator's defaults: expires after 24 hours, one owner."""
    try:
        top = members(document)
        spec = member_object(top, "spec")
    except DocumentError:
        return document
    missing = {"ttl": DEFAULT_TTL, "allocateOnce": True}
    added = {name: raw(value) for name, value in missing.items() if name not in spec}
    if not added:
        return document
    top["spec"] = raw({**spec, **added})
    return raw(top)


def compose_reservation(snapshot: Snapshot) -> Overlay:
    """Return what the scheduler publishes of the reservation."""
    live = [event.data for event in snapshot.parts.values() if not event.tombstone]
    share = next((data for data in live if isinstance(data, ReservationShare)), None)
    status = next((data for data in live if isinstance(data, ReservationStatus)), None)
    if share is not None:
        return _overlay(share, share.node, available_conditions(share.bound_at))
    if status is not None:
        return _overlay(status, status.node, tuple(_with_members(status, one) for one in status.conditions))
    return Overlay(status={"phase": raw("Pending")})


def _with_members(status: ReservationStatus, condition: ReservationCondition) -> ReservationCondition:
    """Why it waits, with the members of its gang that do not fit."""
    if condition.message and condition.message == status.message:
        return msgspec.structs.replace(condition, message=status.full_message)
    return condition


def _overlay(
    data: ReservationShare | ReservationStatus, node: str, conditions: tuple[ReservationCondition, ...]
) -> Overlay:
    status = {"phase": raw(data.phase.value)}
    if node:
        status["nodeName"] = raw(node)
    for name, amounts in (("allocatable", data.allocatable), ("allocated", data.allocated)):
        if amounts:
            status[name] = raw(as_texts(amounts))
    if data.owners:
        owners = [{"namespace": owner.namespace, "name": owner.name, "uid": owner.uid} for owner in data.owners]
        status["currentOwners"] = raw(owners)
    return Overlay(status=status, conditions=tuple(_condition(condition) for condition in conditions))


def _condition(condition: ReservationCondition) -> dict[str, str]:
    shown = {"type": condition.type, "status": condition.status}
    texts = {"reason": condition.reason, "message": condition.message}
    times = {"lastProbeTime": condition.last_probe_time, "lastTransitionTime": condition.last_transition_time}
    shown |= {name: text for name, text in texts.items() if text}
    return shown | {name: rfc3339(time) for name, time in times.items() if time is not None}


def _of_share(event: Event) -> tuple[str, str]:
    return "", tokens(event.subject)[3]


def _of_status(event: Event) -> tuple[str, str]:
    return "", tokens(event.subject)[1]


def reservation_errors(reservation: Reservation) -> list[FieldError]:
    """What the scheduler could not place, match or end."""
    spec = reservation.spec
    found: list[FieldError] = []
    if spec.template is None:
        found.append(required("spec.template"))
    else:
        for section, containers in (
            ("containers", spec.template.spec.containers),
            ("initContainers", spec.template.spec.init_containers),
        ):
            for index, container in enumerate(containers):
                found += resource_errors(f"spec.template.spec.{section}[{index}].resources", container.resources)
    if not spec.owners:
        found.append(required("spec.owners", "must name who may use the reservation"))
    for index, owner in enumerate(spec.owners):
        found += selector_errors(f"spec.owners[{index}].labelSelector", owner.label_selector)
    found += _times(reservation)
    if spec.allocate_policy not in POLICIES:
        found.append(not_supported("spec.allocatePolicy", spec.allocate_policy, [policy for policy in POLICIES if policy]))
    policy = spec.pre_allocation_policy
    if policy is not None and policy.mode not in ("", PRE_ALLOCATION_DEFAULT):
        found.append(not_supported("spec.preAllocationPolicy.mode", policy.mode, [PRE_ALLOCATION_DEFAULT]))
    if spec.pre_allocation and spec.allocate_policy != POLICY_RESTRICTED:
        wrong = "must be Restricted for a reservation that pre-allocates"
        found.append(invalid("spec.allocatePolicy", spec.allocate_policy, wrong))
    for index, taint in enumerate(spec.taints):
        if not taint.key:
            found.append(required(f"spec.taints[{index}].key"))
        if taint.effect not in HARD_EFFECTS:
            found.append(not_supported(f"spec.taints[{index}].effect", taint.effect, sorted(HARD_EFFECTS)))
    annotations = reservation.metadata.annotations
    found += [
        invalid(f"metadata.annotations[{name}]", annotations[name], wrong)
        for name, wrong in option_errors(annotations)
    ]
    return found


def _times(reservation: Reservation) -> list[FieldError]:
    spec = reservation.spec
    found: list[FieldError] = []
    if spec.ttl is None and spec.expires is None:
        found.append(required("spec.ttl", "a reservation needs ttl or expires"))
    if spec.ttl is not None:
        try:
            if parse_duration(spec.ttl).total_seconds() < 0:
                found.append(invalid("spec.ttl", spec.ttl, "must not be negative; 0s: it never expires"))
        except DurationError as error:
            found.append(invalid("spec.ttl", spec.ttl, str(error)))
    if spec.expires is not None and parse_rfc3339(spec.expires) is None:
        found.append(invalid("spec.expires", spec.expires, "must be a time such as 2026-01-31T12:00:00Z"))
    return found


class _Spec(View, frozen=True, kw_only=True):
    ttl: str = ""
    expires: str = ""


class _Status(View, frozen=True, kw_only=True):
    phase: str = ""
    node_name: str = ""


class _Shown(View, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_SHOWN = msgspec.json.Decoder(_Shown)


def _cells(snapshot: Snapshot, now: datetime) -> Sequence[Cell]:
    shown = _SHOWN.decode(snapshot.document)
    return (
        snapshot.address.name,
        shown.status.phase,
        age(shown.metadata.creation_timestamp, now),
        shown.status.node_name,
        shown.spec.ttl,
        shown.spec.expires,
    )


DEFINITION = KindDefinition(
    RESERVATIONS,
    decode=decode_reservation,
    default=default_reservation,
    compose=compose_reservation,
    compose_document_alone=True,
    parts={ReservationShare: _of_share, ReservationStatus: _of_status},
    parts_carry_uid=True,
    errors=lambda reservation, _: reservation_errors(reservation),
    layout=Layout(
        (NAME, Column("Phase"), AGE, Column("Node"), Column("TTL"), Column("Expires")),
        _cells,
    ),
    has_status=True,
)
"""Koordinator's Reservation. `kubectl get` shows phase, age, node, ttl and expires, as Koordinator's does."""

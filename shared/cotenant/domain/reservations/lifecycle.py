"""How a reservation begins, is used up and ends.

In: a reservation's state (`State`), what is true of its node and its owners, the time. Out: the state that follows. The rules:

    expiry      ttl is not 0, and now > expires or now > creation + ttl; also where its node is gone. One that has no node
                expires as well
    owners      its users and their amounts are kept up to date; one that is allocated once succeeds as soon as it has
                been used, or a user of it has gone
    Failed and Succeeded never change
    collection  expired or succeeded longer than a day ago (exclusively), or ended while its node is gone
Source: Koordinator's reservation controller, which leaves pending ones without a node forever; its documentation does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from cotenant.api.objects.reservation import ReservationSpec
from cotenant.api.times import parse_rfc3339
from cotenant.events.reservations import ReservationCondition, ReservationOwner, ReservationPhase
from cotenant.model.durations import DurationError, parse_duration

SCHEDULED = "Scheduled"
READY = "Ready"
UNSCHEDULABLE = "Unschedulable"
SUCCEEDED = "Succeeded"
EXPIRED = "Expired"
KEPT = timedelta(days=1)
"""How long an ended reservation is kept."""

COUNTED_PHASES = (
    ReservationPhase.AVAILABLE,
    ReservationPhase.FAILED,
    ReservationPhase.PENDING,
    ReservationPhase.SUCCEEDED,
)

Conditions = tuple[ReservationCondition, ...]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The mutable state of a reservation. Amounts in milli-cores and units."""

    phase: ReservationPhase = ReservationPhase.PENDING
    node: str = ""
    allocatable: Mapping[str, int] = {}
    allocated: Mapping[str, int] = {}
    owners: Sequence[ReservationOwner] = ()
    """By uid."""
    conditions: Conditions = ()

    @property
    def available(self) -> bool:
        """Whether it has a node and may be used."""
        return bool(self.node) and self.phase is ReservationPhase.AVAILABLE

    @property
    def active(self) -> bool:
        """Whether it has a node and has not ended."""
        return bool(self.node) and self.phase in (ReservationPhase.AVAILABLE, ReservationPhase.WAITING)

    @property
    def succeeded(self) -> bool:
        """Whether it was used up."""
        return self.phase is ReservationPhase.SUCCEEDED

    @property
    def failed(self) -> bool:
        """Whether it ended unused."""
        return self.phase is ReservationPhase.FAILED

    @property
    def expired(self) -> bool:
        """Whether it ended because it expired, or its node is gone."""
        ready = condition_of(self.conditions, READY)
        return self.failed and ready is not None and ready.reason == EXPIRED


def condition_of(conditions: Conditions, of: str) -> ReservationCondition | None:
    """Return the condition of a type."""
    return next((condition for condition in conditions if condition.type == of), None)


def phase_figures(phase: ReservationPhase | None) -> dict[str, int]:
    """Return 1 for the phase that a reservation is in, and 0 for the others; a reservation without one is pending."""
    present = phase or ReservationPhase.PENDING
    return {shown.value: int(shown is present) for shown in COUNTED_PHASES}


def expires_at(spec: ReservationSpec, created: datetime | None) -> datetime | None:
    """Return the moment after which a reservation expires; None: never. Unreadable times count as absent."""
    moments = []
    if spec.ttl is not None:
        try:
            ttl = parse_duration(spec.ttl)
        except DurationError:
            ttl = None
        if ttl is not None and not ttl:
            return None
        if ttl is not None and created is not None:
            with contextlib.suppress(OverflowError):
                moments.append(created + ttl)
    expires = parse_rfc3339(spec.expires)
    if expires is not None:
        moments.append(expires)
    return min(moments, default=None)


def is_due(moment: datetime | None, now: datetime) -> bool:
    """Return whether a reservation that expires at a moment has expired."""
    return moment is not None and now > moment


def allocates_once(spec: ReservationSpec) -> bool:
    """Return whether the reservation ends with its first owner."""
    return spec.allocate_once is not False


def unschedulable(conditions: Conditions, message: str, now: datetime) -> Conditions:
    """Return the conditions of a reservation that no node takes: the time of the first refusal stays."""
    known = condition_of(conditions, SCHEDULED)
    if known is None:
        added = ReservationCondition(
            type=SCHEDULED,
            status="False",
            reason=UNSCHEDULABLE,
            message=message,
            last_probe_time=now,
            last_transition_time=now,
        )
        return (*conditions, added)
    if known.status == "True":
        return _put(conditions, msgspec.structs.replace(known, last_probe_time=now))
    return _put(conditions, msgspec.structs.replace(known, reason=UNSCHEDULABLE, message=message, last_probe_time=now))


def succeeded_conditions(conditions: Conditions, now: datetime) -> Conditions:
    """Return the conditions of a reservation that was used up."""
    return _ended(conditions, SUCCEEDED, now, moves=False)


def expired_conditions(conditions: Conditions, now: datetime) -> Conditions:
    """Return the conditions of a reservation that expired."""
    return _ended(conditions, EXPIRED, now, moves=True)


def _ended(conditions: Conditions, reason: str, now: datetime, *, moves: bool) -> Conditions:
    known = condition_of(conditions, READY)
    ended = ReservationCondition(
        type=READY, status="False", reason=reason, last_probe_time=now, last_transition_time=now
    )
    if known is None:
        return (*conditions, ended)
    if known.status == "True" and moves:
        return _put(conditions, ended)
    return _put(conditions, msgspec.structs.replace(known, status="False", reason=reason, last_probe_time=now))


def _put(conditions: Conditions, changed: ReservationCondition) -> Conditions:
    return tuple(changed if condition.type == changed.type else condition for condition in conditions)


def failed_by_expiry(state: State, now: datetime) -> State:
    """Return the state of an expired reservation."""
    conditions = expired_conditions(state.conditions, now)
    return msgspec.structs.replace(state, phase=ReservationPhase.FAILED, conditions=conditions)


def used_up(state: State, now: datetime) -> State:
    """Return the state of an allocateOnce reservation that was used."""
    conditions = succeeded_conditions(state.conditions, now)
    return msgspec.structs.replace(state, phase=ReservationPhase.SUCCEEDED, conditions=conditions)


def following(
    state: State,
    now: datetime,
    *,
    expires: datetime | None,
    once: bool,
    node_exists: bool,
    owners: Sequence[ReservationOwner],
    allocated: Mapping[str, int],
) -> State:
    """Return the state that follows. `owners` by uid and `allocated` (of the resources that it holds) are those of now."""
    if state.succeeded or state.failed:
        return state
    if is_due(expires, now) or (state.node and not node_exists):
        return failed_by_expiry(state, now)
    if not state.node or (tuple(owners) == tuple(state.owners) and dict(allocated) == dict(state.allocated)):
        return state
    changed = msgspec.structs.replace(state, owners=tuple(owners), allocated=dict(allocated))
    return used_up(changed, now) if once else changed


def collectable(state: State, now: datetime, *, node_exists: bool, kept: timedelta = KEPT) -> bool:
    """Return whether the object of an ended reservation is to be deleted."""
    ready = condition_of(state.conditions, READY)
    if ready is None or not (state.expired or state.succeeded):
        return False
    since = ready.last_transition_time if state.expired else ready.last_probe_time
    return (since is not None and now - since > kept) or (bool(state.node) and not node_exists)

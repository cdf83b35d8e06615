"""Requests as steps: plan from the read model, store, and plan again if the log refused the plan.

A plan that the log refuses was based on an old state: the request waits until the fold has advanced and plans again, at most
`attempts` times; if the client stated a resourceVersion the new plan itself returns 409.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from cotenant.api.kinds import Kind
from cotenant.api.overlay import NO_OVERLAY, composed_document
from cotenant.events.migrations import EvictionOutcome, EvictionRequest, ReservationRequest
from cotenant.events.objects import ObjectStored
from cotenant.kinds.koordinator.reservations import RESERVATIONS
from cotenant.log.contract import Head, NoAnswer, Refused
from cotenant.log.plans import Outcome, Plan, PlannedWrite, Written
from cotenant_gateway.loop.steps import GetLast, MoveOn, Reach, Request, Store
from cotenant_gateway.planning.creations import plan_creation
from cotenant_gateway.planning.deletions import DeletionRequest, plan_deletion
from cotenant_gateway.planning.documents import Planned, TooNew
from cotenant_gateway.planning.evictions import plan_eviction
from cotenant_gateway.planning.migration_places import made_for_job, place_document, refused_place
from cotenant_gateway.planning.updates import plan_patch, plan_replacement
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import MODIFIED, ApiError, conflict, insufficient_storage, unavailable

CHARGE_ATTEMPTS = 100
"""For a plan that charges a quota: requests that arrive together charge the same object, one after the other."""
_OUTCOMES = (Written, Refused, NoAnswer)
Check = Callable[[Planned], None]
"""Raises ApiError if its caller may not store this."""


def no_check(_: Planned) -> None:
    """The default check: a user who may write a kind may write everything in it."""


class Carried(msgspec.Struct, frozen=True):
    """A write request that was carried out: its plan, and the sequence that the object was stored at (0: nothing stored)."""

    planned: Planned
    sequence: int

    @property
    def ended(self) -> bool:
        """Whether the object has ended; else a deletion has marked it, and it ends later."""
        plan = self.planned.plan
        return plan is not None and plan.writes[0].tombstone

    def document(self, core: GatewayCore) -> bytes:
        """Return the object as the API shows it, as JSON."""
        planned = self.planned
        was, address = planned.was, planned.address
        overlay = was.overlay if was is not None else NO_OVERLAY
        if not self.sequence:
            if was is not None and planned.plan is None:
                return was.document
            return composed_document(planned.document, overlay, was.version if was is not None else 0)
        snapshot = core.get(address.kind, address.namespace, address.name)
        if snapshot is not None and snapshot.stored is not None and snapshot.stored.sequence == self.sequence:
            return snapshot.document
        assert planned.plan is not None
        payload = planned.plan.writes[0].payload
        document = payload.object if isinstance(payload, ObjectStored) else planned.document
        return composed_document(document, overlay, self.sequence)


class WriteRequests:
    """The write requests of a gateway."""

    def __init__(
        self,
        core: Callable[[], GatewayCore],
        clock: Callable[[], datetime],
        new_uid: Callable[[], str],
        new_suffix: Callable[[], str],
        attempts: int,
    ) -> None:
        """`core` returns the current read model, `new_suffix` completes a generateName."""
        self._core = core
        self._clock = clock
        self._new_uid = new_uid
        self._new_suffix = new_suffix
        self._attempts = attempts

    def create(
        self, kind: Kind, namespace: str, body: bytes, *, dry_run: bool = False, check: Check = no_check
    ) -> Request[Carried]:
        """Create an object."""
        uid = self._new_uid()
        return self._carry_out(
            lambda: plan_creation(self._core(), kind, namespace, body, self._clock(), uid, self._new_suffix), dry_run, check
        )

    def replace(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: bytes,
        *,
        dry_run: bool = False,
        subresource: str = "",
        check: Check = no_check,
    ) -> Request[Carried]:
        """Replace an object, or its status."""
        return self._carry_out(
            lambda: plan_replacement(self._core(), kind, namespace, name, body, subresource=subresource), dry_run, check
        )

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: str,
        body: bytes,
        *,
        dry_run: bool = False,
        subresource: str = "",
        check: Check = no_check,
    ) -> Request[Carried]:
        """Patch an object, or its status."""
        return self._carry_out(
            lambda: plan_patch(self._core(), kind, namespace, name, patch_type, body, subresource=subresource), dry_run, check
        )

    def delete(
        self, kind: Kind, namespace: str, name: str, deletion: DeletionRequest, *, dry_run: bool = False
    ) -> Request[Carried]:
        """End an object, or mark it for deletion."""
        return self._carry_out(lambda: plan_deletion(self._core(), kind, namespace, name, deletion, self._clock()), dry_run)

    def evict(self, eviction: EvictionRequest) -> Request[EvictionOutcome]:
        """Evict a pod if its budgets allow it."""
        for _ in range(self._attempts):
            planned = plan_eviction(self._core(), eviction, self._clock())
            if planned.plan is None:
                return planned.outcome
            seen = self._core().folded
            if isinstance(_answered((yield from storing(planned.plan, seen))), Written):
                return planned.outcome
            yield MoveOn(seen)
        where = f"{eviction.namespace}/{eviction.name}"
        raise unavailable(f"the eviction of {where} was overtaken {self._attempts} times; try again")

    def reserve(self, wanted: ReservationRequest) -> Request[EvictionOutcome | None]:
        """Create or delete the Reservation of a pod that migrates. Returns the refusal, if it is refused for good."""
        try:
            known = made_for_job(self._core(), wanted)
            if wanted.release:
                if known is not None:
                    yield from self.delete(RESERVATIONS, "", wanted.name, DeletionRequest(uid=known.uid))
            elif known is None:
                yield from self.create(RESERVATIONS, "", place_document(self._core(), wanted))
        except ApiError as error:
            if error.code >= 500 or wanted.release:
                raise
            refused = refused_place(self._core(), wanted, error)
            if not isinstance(_answered((yield from storing(refused, self._core().folded))), Written):
                raise
            outcome = refused.writes[0].payload
            assert isinstance(outcome, EvictionOutcome)
            return outcome
        return None

    def _carry_out(self, plan: Callable[[], Planned], dry_run: bool, check: Check = no_check) -> Request[Carried]:
        waited, attempt, attempts = False, 0, self._attempts
        while attempt < attempts:
            attempt += 1
            try:
                planned = plan()
            except TooNew as newer:
                if waited or not (yield Reach(newer.version)):
                    raise newer.answer from newer
                waited = True
                continue
            check(planned)
            if planned.plan is None or dry_run:
                return Carried(planned, 0)
            if len(planned.plan.writes) > 1:
                attempts = max(attempts, CHARGE_ATTEMPTS)
            seen = self._core().folded
            outcome = _answered((yield from storing(planned.plan, seen)))
            if isinstance(outcome, Written):
                return Carried(planned, outcome.sequences[0])
            yield MoveOn(seen)
        raise conflict(planned.address.kind, planned.address.name, MODIFIED)


def _answered(outcome: Outcome) -> Written | Refused:
    """Return the outcome of a plan. Raises ApiError where planning again would not help."""
    if isinstance(outcome, Written):
        return outcome
    if isinstance(outcome, NoAnswer):
        raise unavailable(f"the log does not answer ({outcome.reason}): whether the object was stored is not known")
    if outcome.no_space:
        raise insufficient_storage(f"LOG has no room ({outcome.reason}): delete objects, or give nats-server more disk")
    if not outcome.wrong_sequence:
        raise ApiError(500, "InternalError", f"the log refused the object: {outcome.reason}")
    return outcome


def storing(plan: Plan, folded: int) -> Request[Outcome]:
    """Store a plan that was made when the read model had folded LOG up to a sequence.

    If one that creates an object is refused, the read model may not know the subject's last sequence: its tombstone has expired
    on the server, was evicted from the read model, or is an undecodable message. The sequence is read from LOG, and
    the plan is sent again with that expectation. If LOG has a message that was not folded yet the refusal stands.
    """
    outcome = yield Store(plan)
    if isinstance(outcome, Written):
        return outcome
    assert isinstance(outcome, _OUTCOMES)
    if not (plan.creates and isinstance(outcome, Refused) and outcome.wrong_sequence):
        return outcome
    write = plan.writes[0]
    head = yield GetLast(write.subject)
    assert head is None or isinstance(head, Head)
    standing = 0 if head is None else head.sequence
    if standing == write.expected or (head is not None and not head.tombstone and head.sequence > folded):
        return outcome
    again = PlannedWrite(write.subject, write.payload, standing, write.tombstone, write.causes)
    outcome = yield Store(Plan((again, *plan.writes[1:]), plan.creates))
    assert isinstance(outcome, _OUTCOMES)
    return outcome

"""The gateway's shell: plans requests from the read model, stores them, and keeps level-triggered duties.

A plan that the log refuses was made from an old state: the shell waits for the fold and plans again, at most ATTEMPTS
times; where the client stated a resourceVersion the new plan itself says 409.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from cotenant.api.edits import with_metadata
from cotenant.api.kinds import Kind
from cotenant.api.overlay import NOTHING, composed_document
from cotenant.api.times import rfc3339
from cotenant.engine.commit import Identity
from cotenant.events.migrations import EvictionOutcome, EvictionRequest
from cotenant.events.objects import ObjectDeleted, ObjectStored
from cotenant.log.contract import Log, NoAnswer, Refused
from cotenant.log.plan_writer import Outcome, Overloaded, PlanWriter, Written
from cotenant.log.plans import Plan, PlannedWrite
from cotenant_gateway.planning.budgets import budget_updates
from cotenant_gateway.planning.built_in import missing_built_ins
from cotenant_gateway.planning.endings import endings, registrations
from cotenant_gateway.planning.evictions import EvictionPlanned, plan_eviction
from cotenant_gateway.planning.requests import (
    DeletionWish,
    Planned,
    TooNew,
    plan_creation,
    plan_deletion,
    plan_patch,
    plan_replacement,
)
from cotenant_gateway.planning.statuses import MODIFIED, ApiError, conflict, unavailable
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.shell.following import Follower

logger = logging.getLogger(__name__)

ATTEMPTS = 5
NEWER_SECONDS = 2.0
TICK_SECONDS = 1.0
_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


def utc_now() -> datetime:
    """Return the wall clock in UTC."""
    return datetime.now(UTC)


def new_uid() -> str:
    """Return a random uid. uuid4 without its layers: this is on the way of every creation."""
    digits = os.urandom(16).hex()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def new_suffix() -> str:
    """Return five characters that complete a generateName."""
    return "".join(_SUFFIX_ALPHABET[byte % len(_SUFFIX_ALPHABET)] for byte in os.urandom(5))


class Gateway:
    """Requests in, objects out."""

    def __init__(self, log: Log, identity: Identity, clock: Callable[[], datetime] = utc_now) -> None:
        self.log = log
        self.identity = identity
        self.clock = clock
        self.follower = Follower(log, identity, clock)
        life = f"{identity.replica}-{os.urandom(4).hex()}"
        self.writer = PlanWriter(log, identity.source, life, clock, self.follower.folded)
        self.ready = asyncio.Event()
        self._duties: set[str] = set()
        self._duty_tasks: set[asyncio.Task[None]] = set()

    @property
    def core(self) -> GatewayCore:
        """The read model that requests see."""
        return self.follower.core

    async def run(self) -> None:
        """Follow, store and keep duties until cancelled; ends with the first that fails."""
        tasks = [asyncio.ensure_future(part) for part in (self.follower.run(), self.writer.run(), self._keep_duties())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, *self._duty_tasks):
                task.cancel()
            await asyncio.gather(*tasks, *self._duty_tasks, return_exceptions=True)

    # -- requests ------------------------------------------------------------------------------------------------

    async def create(self, kind: Kind, namespace: str, body: bytes, actor: str, *, dry_run: bool = False) -> bytes:
        """Create an object; returns it as the API shows it."""
        uid = new_uid()
        return await self._carry_out(
            lambda: plan_creation(self.core, kind, namespace, body, self.clock(), uid, new_suffix), actor, dry_run
        )

    async def replace(
        self, kind: Kind, namespace: str, name: str, body: bytes, actor: str, *, dry_run: bool, status_only: bool = False
    ) -> bytes:
        """Replace an object, or its status."""
        return await self._carry_out(
            lambda: plan_replacement(self.core, kind, namespace, name, body, status_only=status_only), actor, dry_run
        )

    async def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch_type: str,
        body: bytes,
        actor: str,
        *,
        dry_run: bool,
        status_only: bool = False,
    ) -> bytes:
        """Patch an object, or its status."""
        return await self._carry_out(
            lambda: plan_patch(self.core, kind, namespace, name, patch_type, body, status_only=status_only), actor, dry_run
        )

    async def delete(
        self, kind: Kind, namespace: str, name: str, wish: DeletionWish, actor: str, *, dry_run: bool = False
    ) -> tuple[bytes, bool]:
        """End an object; returns it, and whether it has ended already (else it is marked and ends later)."""
        ended = False

        def plan() -> Planned:
            nonlocal ended
            planned = plan_deletion(self.core, kind, namespace, name, wish, self.clock())
            ended = planned.plan is not None and planned.plan.writes[0].tombstone
            return planned

        return await self._carry_out(plan, actor, dry_run), ended

    async def evict(self, wish: EvictionRequest, actor: str) -> EvictionOutcome:
        """Evict a pod if its budgets allow it."""
        for _ in range(ATTEMPTS):
            planned: EvictionPlanned = plan_eviction(self.core, wish, self.clock())
            if planned.plan is None:
                return planned.outcome
            seen = self.core.folded
            outcome = await self._store(planned.plan, actor)
            if isinstance(outcome, Written):
                return planned.outcome
            await self._news(seen)
        raise unavailable(f"the eviction of {wish.namespace}/{wish.name} was overtaken {ATTEMPTS} times; try again")

    async def _carry_out(self, plan: Callable[[], Planned], actor: str, dry_run: bool) -> bytes:
        waited = False
        for _ in range(ATTEMPTS):
            try:
                planned = plan()
            except TooNew as newer:
                if waited:
                    raise newer.answer from newer
                waited = True
                await self._wait_for_version(newer)
                continue
            if planned.plan is None or dry_run:
                return self._unstored(planned)
            seen = self.core.folded
            outcome = await self._store(planned.plan, actor)
            if isinstance(outcome, Written):
                return self._answer(planned, outcome.sequences[0])
            tombstone_gone = await self._created_over_forgotten_tombstone(planned, actor)
            if tombstone_gone is not None:
                return tombstone_gone
            await self._news(seen)
        raise conflict(planned.address.kind, planned.address.name, MODIFIED)

    async def _created_over_forgotten_tombstone(self, planned: Planned, actor: str) -> bytes | None:
        """Try once more with 0: a tombstone's time may be over on the server while the read model still has it."""
        assert planned.plan is not None
        write = planned.plan.writes[0]
        if planned.was is not None or write.expected in (0, None):
            return None
        again = PlannedWrite(write.subject, write.payload, 0, write.tombstone, write.causes)
        outcome = await self._store(Plan((again,)), actor)
        return self._answer(planned, outcome.sequences[0]) if isinstance(outcome, Written) else None

    async def _store(self, plan: Plan, actor: str) -> Outcome:
        if not self.follower.ready.is_set():
            raise unavailable("the read model is still loading")
        try:
            outcome = await self.writer.submit(plan, actor)
        except Overloaded as error:
            raise unavailable("too many writes are waiting for the log; come again") from error
        if isinstance(outcome, NoAnswer):
            raise unavailable(f"the log does not answer ({outcome.reason}): whether the object was stored is not known")
        if isinstance(outcome, Refused) and not outcome.wrong_sequence:
            raise ApiError(500, "InternalError", f"the log refused the object: {outcome.reason}")
        return outcome

    async def _wait_for_version(self, newer: TooNew) -> None:
        try:
            async with asyncio.timeout(NEWER_SECONDS):
                await self.follower.folded(newer.version)
        except TimeoutError:
            raise newer.answer from newer

    async def _news(self, seen: int) -> None:
        """Wait for the fold to move on from what a refused plan was made of, a little at most."""
        if self.core.folded != seen:
            return
        with self.follower.changes() as changed:
            try:
                async with asyncio.timeout(0.5):
                    await changed.wait()
            except TimeoutError:
                return

    def _unstored(self, planned: Planned) -> bytes:
        if planned.was is not None and planned.plan is None:
            return planned.was.document
        overlay = planned.was.overlay if planned.was is not None else NOTHING
        version = planned.was.version if planned.was is not None else 0
        return composed_document(planned.document, overlay, version)

    def _answer(self, planned: Planned, sequence: int) -> bytes:
        """Return the object as stored at a sequence, with the parts that it has."""
        address = planned.address
        snapshot = self.core.get(address.kind, address.namespace, address.name)
        if snapshot is not None and snapshot.stored is not None and snapshot.stored.sequence == sequence:
            return snapshot.document
        assert planned.plan is not None
        payload = planned.plan.writes[0].payload
        document = payload.object if isinstance(payload, (ObjectStored, ObjectDeleted)) else planned.document
        overlay = planned.was.overlay if planned.was is not None else NOTHING
        return composed_document(document, overlay, sequence)

    # -- duties --------------------------------------------------------------------------------------------------

    async def _keep_duties(self) -> None:
        """Endings and registrations after every fold; budgets and built-in objects once a tick."""
        await self.follower.ready.wait()
        loop = asyncio.get_running_loop()
        next_tick = loop.time()
        while True:
            now = self.clock()
            core = self.core
            self._take_on(endings(core, now))
            if core.unregistered:
                self._take_on(self._with_identity(plan) for plan in registrations(core))
            if loop.time() >= next_tick:
                next_tick = loop.time() + TICK_SECONDS
                self._take_on(budget_updates(core, now))
                missing = [self._with_identity(plan) for plan in missing_built_ins(core)]
                self._take_on(missing)
                if not missing:
                    self.ready.set()
            self.follower.folds.clear()
            try:
                async with asyncio.timeout(0.05 if not self.ready.is_set() else TICK_SECONDS):
                    await self.follower.folds.wait()
            except TimeoutError:
                continue

    def _with_identity(self, plan: Plan) -> Plan:
        """Objects that the gateway makes itself get uid and creation time here: the core knows neither chance nor clock."""
        writes = []
        for write in plan.writes:
            payload = write.payload
            assert isinstance(payload, ObjectStored)
            given = {"uid": new_uid(), "creationTimestamp": rfc3339(self.clock()), "generation": 1}
            document = with_metadata(payload.object, given)
            writes.append(
                PlannedWrite(write.subject, ObjectStored(object=document), write.expected, write.tombstone, write.causes)
            )
        return Plan(tuple(writes))

    def _take_on(self, plans: Iterable[Plan]) -> None:
        for plan in plans:
            subject = plan.writes[0].subject
            if subject in self._duties:
                continue
            self._duties.add(subject)
            task = asyncio.ensure_future(self._do(plan, subject))
            self._duty_tasks.add(task)
            task.add_done_callback(self._duty_tasks.discard)

    async def _do(self, plan: Plan, subject: str) -> None:
        try:
            outcome = await self._store(plan, "gateway")
            if isinstance(outcome, Refused):
                logger.debug("%s: overtaken: %s", subject, outcome.reason)
        except ApiError as error:
            logger.warning("%s: %s", subject, error)
        finally:
            self._duties.discard(subject)

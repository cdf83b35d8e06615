"""The gateway's process around the loop: carries out the steps of requests and keeps its duties, on the real log.

In: requests from HTTP and NATS. Out: plans to the writer, and answers once the follower has folded what was stored.

Over 300 lines: a method of a few lines for each verb, and the driver of their steps.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from cotenant.api.kinds import Kind
from cotenant.domain.quota.gates import QuotaGates
from cotenant.engine.commit import Identity
from cotenant.events.migrations import EvictionOutcome, EvictionRequest
from cotenant.log.contract import Head, Log, NoAnswer, Refused
from cotenant.log.plan_writer import Overloaded, PlanWriter
from cotenant.log.plans import Outcome, Plan, Written
from cotenant.log.room_pause import RoomPause
from cotenant.model.trace_context import CURRENT
from cotenant.runtime.figures import Figures
from cotenant.runtime.follower import LOG_ERRORS
from cotenant_gateway.loop.duties import Cadence, Duties
from cotenant_gateway.loop.requests import Carried, Check, Requests, no_check, storing
from cotenant_gateway.loop.steps import Look, MoveOn, Reach, Request, Step, Store
from cotenant_gateway.planning.deletions import DeletionRequest
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.pod_collection import TERMINATED_POD_THRESHOLD
from cotenant_gateway.read_model.core import ALL_OFF, GatewayCore
from cotenant_gateway.shell.chance import new_suffix, new_uid, utc_now
from cotenant_gateway.shell.following import ReadModel
from cotenant_gateway.shell.space import SpaceWatch
from cotenant_gateway.statuses import ApiError, unavailable

if TYPE_CHECKING:
    from cotenant.runtime.tracing import Tracing

logger = logging.getLogger(__name__)

ATTEMPTS = 5
NEWER_SECONDS = 2.0
TICK_SECONDS = 1.0
LOADING_TICK_SECONDS = 0.05
NEWS_SECONDS = 0.5
MAKE_ROOM_TRIES = 6
EXHAUSTED_SECONDS = 1.0
"""So long a write may go without an answer where nothing is left of the server's disk."""
BUDGETS = Cadence(timedelta(seconds=1))
T = TypeVar("T")


class Shown(msgspec.Struct, frozen=True):
    """An object as the API shows it, and what its writer is to be told beside it."""

    document: bytes
    warnings: tuple[str, ...] = ()


Advise = Callable[[Planned], Awaitable[Sequence[str]]]
"""Says what a write would bring about that is only tried (`dryRun`)."""


class Gateway:
    """Requests in, objects out."""

    def __init__(
        self,
        log: Log,
        identity: Identity,
        clock: Callable[[], datetime] = utc_now,
        *,
        terminated_pods: int = TERMINATED_POD_THRESHOLD,
        store: Path | None = None,
        figures: Figures | None = None,
        quota_gates: QuotaGates = ALL_OFF,
    ) -> None:
        """`terminated_pods`: so many finished pods are kept; 0: all. `store`: the folder that nats-server stores in, where this
        machine has it. `quota_gates`: which rules of quotas are on."""
        self.log = log
        self.identity = identity
        self.clock = clock
        self.follower = ReadModel(log, identity, clock, figures, lambda: GatewayCore(quota_gates=quota_gates))
        incarnation = f"{identity.replica}-{os.urandom(4).hex()}"
        self.writer = PlanWriter(
            log, identity.source, incarnation, clock, self.follower.folded, lambda causes: self.follower.traces.of(causes)
        )
        self.tracing: Tracing | None = None
        """Where spans are sent: that of each admission goes there."""
        self.advise: Advise | None = None
        """Asked for each dry run."""
        self.follower.on_load = self.writer.forget
        self.space = SpaceWatch(log, store)
        self.space.needs_room = lambda: self.follower.loading
        self.space.on_exhausted = lambda: self.writer.give_up(EXHAUSTED_SECONDS)
        self.ready = asyncio.Event()
        self._requests = Requests(lambda: self.core, clock, new_uid, new_suffix, ATTEMPTS)
        self._duties = Duties(lambda: self.core, new_uid, BUDGETS, terminated_pods)
        self._under_way: set[str] = set()
        """Subjects of duties that are being stored."""
        self._duty_tasks: set[asyncio.Task[None]] = set()
        self._room_pause = RoomPause()
        """Of duties."""

    @property
    def core(self) -> GatewayCore:
        """The read model that requests see."""
        return self.follower.core

    async def run(self) -> None:
        """Follow, store and keep duties until cancelled; ends with the first that fails."""
        parts = (self.follower.run(), self.writer.run(), self.space.run(), self._keep_duties())
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, *self._duty_tasks):
                task.cancel()
            await asyncio.gather(*tasks, *self._duty_tasks, return_exceptions=True)

    # -- requests ------------------------------------------------------------------------------------------------

    async def create(
        self, kind: Kind, namespace: str, body: bytes, actor: str, *, dry_run: bool = False, check: Check = no_check
    ) -> Shown:
        """Create an object; returns it as the API shows it."""
        self._check_room(dry_run=dry_run)
        return await self._shown(self._requests.create(kind, namespace, body, dry_run=dry_run, check=check), actor, dry_run)

    async def replace(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: bytes,
        actor: str,
        *,
        dry_run: bool,
        status_only: bool = False,
        check: Check = no_check,
    ) -> Shown:
        """Replace an object, or its status."""
        ends = self._check_room(kind, namespace, name, dry_run=dry_run)
        return await self._shown(
            self._requests.replace(kind, namespace, name, body, dry_run=dry_run, status_only=status_only, check=check),
            actor,
            dry_run,
            ends=ends,
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
        check: Check = no_check,
    ) -> Shown:
        """Patch an object, or its status."""
        ends = self._check_room(kind, namespace, name, dry_run=dry_run)
        return await self._shown(
            self._requests.patch(
                kind, namespace, name, patch_type, body, dry_run=dry_run, status_only=status_only, check=check
            ),
            actor,
            dry_run,
            ends=ends,
        )

    async def delete(
        self, kind: Kind, namespace: str, name: str, deletion: DeletionRequest, actor: str, *, dry_run: bool = False
    ) -> tuple[bytes, bool]:
        """End an object; returns it, and whether it has ended already (otherwise it is marked for deletion)."""
        self.space.check(ends=True)
        request = self._requests.delete(kind, namespace, name, deletion, dry_run=dry_run)
        carried = await self._carry_out(request, actor, ends=True)
        return carried.document(self.core), carried.ended

    async def evict(self, eviction: EvictionRequest, actor: str) -> EvictionOutcome:
        """Evict a pod if its budgets allow it."""
        self.space.check(ends=True)
        return await self._carry_out(self._requests.evict(eviction), actor, ends=True)

    def _check_room(self, kind: Kind | None = None, namespace: str = "", name: str = "", *, dry_run: bool) -> bool:
        """Raise ApiError 507 where a creation, or an update of this object, cannot be taken. Returns whether the write is part
        of ending something: the object is to end and waits for its finalizers."""
        snapshot = self.core.get(kind, namespace, name) if kind is not None else None
        ends = snapshot is not None and snapshot.stored is not None and bool(snapshot.stored.meta.deletion_timestamp)
        if not dry_run:
            self.space.check(ends=ends)
        return ends

    async def _shown(self, request: Request[Carried], actor: str, dry_run: bool, *, ends: bool = False) -> Shown:
        carried = await self._carry_out(request, actor, ends=ends)
        warnings = carried.planned.warnings
        if dry_run and self.advise is not None:
            warnings = (*warnings, *await self.advise(carried.planned))
        return Shown(carried.document(self.core), warnings)

    async def _carry_out(self, request: Request[T], actor: str, *, ends: bool) -> T:
        """Answer the steps of a request until it ends. Raises ApiError."""
        try:
            step = self._planned(request, None)
            while True:
                match step:
                    case Store():
                        step = request.send(await self._store(step.plan, actor, ends=ends))
                    case Reach():
                        step = self._planned(request, await self._reached(step.sequence))
                    case MoveOn():
                        step = self._planned(request, await self._moved_on(step.sequence))
                    case Look():
                        step = request.send(await self._head(step.subject))
        except StopIteration as ended:
            result: T = ended.value
            return result

    def _planned(self, request: Request[T], reply: int | None) -> Step:
        """Have a request plan what to store, which is its admission."""
        tracing, parent = self.tracing, CURRENT.get()
        if tracing is None or not parent:
            return request.send(reply)
        began_ns, error = time.time_ns(), ""
        try:
            return request.send(reply)
        except ApiError as refusal:
            error = str(refusal)
            raise
        finally:
            tracing.record("admission", tracing.begin(parent, "admission"), parent, began_ns, time.time_ns(), {}, error=error)

    async def _store(self, plan: Plan, actor: str, *, ends: bool) -> Outcome:
        """Store a plan. Where LOG has no room for one that is part of ending something, room is made."""
        if not self.follower.ready.is_set():
            raise unavailable("the read model is still loading")
        try:
            outcome = await self.writer.submit(plan, actor)
            for _ in range(MAKE_ROOM_TRIES):
                if not (ends and isinstance(outcome, Refused) and outcome.no_space and await self.space.make_room()):
                    break
                outcome = await self.writer.submit(plan, actor)
        except Overloaded as error:
            raise unavailable(f"{error}: nothing was stored; come again") from error
        if isinstance(outcome, Written):
            self.space.took(plan)
        elif isinstance(outcome, Refused) and outcome.no_space:
            self.space.hurry()
        return outcome

    async def _head(self, subject: str) -> Head | None:
        try:
            return await self.log.head(subject)
        except LOG_ERRORS as error:
            raise unavailable(f"the log does not answer ({type(error).__name__}: {error})") from error

    async def _reached(self, sequence: int) -> int:
        try:
            async with asyncio.timeout(NEWER_SECONDS):
                await self.follower.folded(sequence)
        except TimeoutError:
            return 0
        return sequence

    async def _moved_on(self, seen: int) -> int:
        if self.core.folded == seen:
            with self.follower.changes(asyncio.Event()) as changed:
                try:
                    async with asyncio.timeout(NEWS_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    pass
        return self.core.folded

    # -- duties --------------------------------------------------------------------------------------------------

    async def _keep_duties(self) -> None:
        """Look after every fold, and once a tick."""
        await self.follower.ready.wait()
        while True:
            now = self.clock()
            for plans in self._duties.due(now):
                self._take_on(plans)
            for plans in self._duties.built_ins(now):
                self._take_on(plans)
            for plans in self._duties.default_accounts(now):
                self._take_on(plans)
            for plans in self._duties.profiled_quotas(now):
                self._take_on(plans)
            if self._duties.complete:
                self.ready.set()
            self.follower.folds.clear()
            pause = TICK_SECONDS if self.ready.is_set() else LOADING_TICK_SECONDS
            waits = self._duties.wait(self.clock())
            if waits is not None:
                pause = min(pause, max(waits.total_seconds(), 0.0))
            try:
                async with asyncio.timeout(pause):
                    await self.follower.folds.wait()
            except TimeoutError:
                continue

    def _take_on(self, plans: Sequence[Plan]) -> None:
        if self._room_pause.waits(asyncio.get_running_loop().time()):
            return
        for plan in plans:
            subject = plan.writes[0].subject
            if subject in self._under_way:
                continue
            self._under_way.add(subject)
            task = asyncio.ensure_future(self._do(plan, subject, self.core.folded))
            self._duty_tasks.add(task)
            task.add_done_callback(self._duty_tasks.discard)

    async def _do(self, plan: Plan, subject: str, folded: int) -> None:
        """Store a duty's plan, made when LOG was folded up to a sequence. A plan that was overtaken is made again later."""
        trace = {"traceparent": self.follower.traces.of(plan.writes[0].causes)}
        try:
            match await self._carry_out(storing(plan, folded), "gateway", ends=plan.writes[0].tombstone):
                case Written():
                    self._room_pause.stored()
                case Refused(reason=reason, no_space=True):
                    now = asyncio.get_running_loop().time()
                    if not self._room_pause.waits(now):
                        pause = self._room_pause.refused(now)
                        said = f"LOG has no room: {reason}; duties wait for {pause:.0f} s"
                        logger.warning("%s: %s", subject, said, extra=trace)
                case Refused(reason=reason):
                    logger.debug("%s: overtaken: %s", subject, reason, extra=trace)
                case NoAnswer(reason=reason):
                    logger.warning("%s: the log does not answer: %s", subject, reason, extra=trace)
        except ApiError as error:
            logger.warning("%s: %s", subject, error, extra=trace)
        except Exception:
            logger.exception("%s cannot be stored; the next look tries again", subject, extra=trace)
        finally:
            self._under_way.discard(subject)

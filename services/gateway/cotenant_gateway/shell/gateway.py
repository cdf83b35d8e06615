"""The gateway's process around the loop: carries out the steps of requests and keeps its duties, on the real log.

In: requests from HTTP and NATS. Out: plans to the writer, and answers once the follower has folded what was stored.

Over 300 lines: every kind of request is a method of the same shape.
"""

from __future__ import annotations

import asyncio
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
from cotenant.events.migrations import EvictionOutcome, EvictionRequest, ReservationRequest
from cotenant.log.contract import Head, Log, Refused
from cotenant.log.plan_writer import PlanWriter
from cotenant.log.plans import Outcome, Plan, Written
from cotenant.log.write_queue import FlowFull, Overloaded
from cotenant.model.trace_context import CURRENT
from cotenant.runtime.figures import Figures
from cotenant.runtime.follower import LOG_ERRORS
from cotenant_gateway.loop.duties import Cadence, Duties
from cotenant_gateway.loop.requests import Carried, Check, WriteRequests, no_check, storing
from cotenant_gateway.loop.steps import GetLast, MoveOn, Reach, Request, Step, Store
from cotenant_gateway.planning.deletions import DeletionRequest
from cotenant_gateway.planning.documents import Planned
from cotenant_gateway.planning.pod_collection import TERMINATED_POD_THRESHOLD
from cotenant_gateway.read_model.core import ALL_OFF, AS_BY_DEFAULT, GatewayCore
from cotenant_gateway.read_model.settings import AdmissionSettings
from cotenant_gateway.shell.chance import new_suffix, new_uid, utc_now
from cotenant_gateway.shell.durations import Durations
from cotenant_gateway.shell.duty_keeper import DutyKeeper
from cotenant_gateway.shell.following import ReadModel
from cotenant_gateway.shell.space import SpaceWatch
from cotenant_gateway.statuses import ApiError, too_many, unavailable

if TYPE_CHECKING:
    from cotenant.runtime.tracing import Tracing

ATTEMPTS = 5
NEWER_SECONDS = 2.0
NEWS_SECONDS = 0.5
MAKE_ROOM_TRIES = 6
EXHAUSTED_SECONDS = 1.0
"""How long a write may remain unanswered when the server's disk is full."""
OF_GATEWAY = ""
"""The flow of the gateway's own writes, which has no bound of its own: a pass yields a bounded number."""
BUDGETS = Cadence(timedelta(seconds=1))
T = TypeVar("T")


class ShownObject(msgspec.Struct, frozen=True):
    """An object as the API shows it, and the warnings for its writer."""

    document: bytes
    warnings: tuple[str, ...] = ()


Advise = Callable[[Planned], Awaitable[Sequence[str]]]
"""Predicts the effect of a write with `dryRun`."""


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
        settings: AdmissionSettings = AS_BY_DEFAULT,
    ) -> None:
        """`terminated_pods`: how many finished pods are kept; 0: all. `store`: the folder that nats-server stores in, where
        this machine has it. `quota_gates`: which rules of quotas are on. `settings`: other settings that differ from the
        defaults."""
        self.log = log
        self.identity = identity
        self.clock = clock
        self.durations = Durations()
        """Of admission functions."""
        self.follower = ReadModel(
            log,
            identity,
            clock,
            figures,
            lambda: GatewayCore(quota_gates=quota_gates, stopwatch=self.durations, settings=settings),
        )
        incarnation = f"{identity.replica}-{os.urandom(4).hex()}"
        self.writer = PlanWriter(
            log, identity.source, incarnation, clock, self.follower.folded, lambda causes: self.follower.traces.of(causes)
        )
        self.tracing: Tracing | None = None
        """The exporter of spans: each admission's is sent there."""
        self.advise: Advise | None = None
        """Called for each dry run."""
        self.follower.on_load = self.writer.forget
        self.space = SpaceWatch(log, store)
        self.space.needs_room = lambda: self.follower.loading
        self.space.on_exhausted = lambda: self.writer.give_up(EXHAUSTED_SECONDS)
        self._requests = WriteRequests(lambda: self.core, clock, new_uid, new_suffix, ATTEMPTS)
        self._duties = DutyKeeper(
            Duties(lambda: self.core, new_uid, BUDGETS, terminated_pods), self.follower, clock, self._store_duty
        )
        self.ready = self._duties.ready
        """Set once every built-in object exists."""

    @property
    def core(self) -> GatewayCore:
        """The read model that requests see."""
        return self.follower.core

    async def run(self) -> None:
        """Follow, store and keep duties until cancelled; ends with the first that fails."""
        parts = (self.follower.run(), self.writer.run(), self.space.run(), self._duties.run())
        tasks = [asyncio.ensure_future(part) for part in parts]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- requests ------------------------------------------------------------------------------------------------

    async def create(
        self, kind: Kind, namespace: str, body: bytes, actor: str, *, dry_run: bool = False, check: Check = no_check
    ) -> ShownObject:
        """Create an object; returns it as the API shows it."""
        self._check_room(dry_run=dry_run)
        request = self._requests.create(kind, namespace, body, dry_run=dry_run, check=check)
        return await self._shown(request, actor, _flow(actor, "create", kind), dry_run)

    async def replace(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: bytes,
        actor: str,
        *,
        dry_run: bool,
        subresource: str = "",
        check: Check = no_check,
    ) -> ShownObject:
        """Replace an object, or its status."""
        ends = self._check_room(kind, namespace, name, dry_run=dry_run)
        return await self._shown(
            self._requests.replace(kind, namespace, name, body, dry_run=dry_run, subresource=subresource, check=check),
            actor,
            _flow(actor, "replace", kind),
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
        subresource: str = "",
        check: Check = no_check,
    ) -> ShownObject:
        """Patch an object, or its status."""
        ends = self._check_room(kind, namespace, name, dry_run=dry_run)
        return await self._shown(
            self._requests.patch(
                kind, namespace, name, patch_type, body, dry_run=dry_run, subresource=subresource, check=check
            ),
            actor,
            _flow(actor, "patch", kind),
            dry_run,
            ends=ends,
        )

    async def delete(
        self, kind: Kind, namespace: str, name: str, deletion: DeletionRequest, actor: str, *, dry_run: bool = False
    ) -> Carried:
        """End an object, or mark it for deletion."""
        self.space.check(ends=True)
        request = self._requests.delete(kind, namespace, name, deletion, dry_run=dry_run)
        return await self._carry_out(request, actor, _flow(actor, "delete", kind), ends=True)

    async def evict(self, eviction: EvictionRequest, actor: str) -> EvictionOutcome:
        """Evict a pod if its budgets allow it."""
        self.space.check(ends=True)
        return await self._carry_out(self._requests.evict(eviction), actor, f"{actor} evict", ends=True)

    async def reserve(self, wanted: ReservationRequest, actor: str) -> EvictionOutcome | None:
        """Create or delete the Reservation of a pod that migrates. Returns the refusal, if it is refused for good."""
        self.space.check(ends=wanted.release)
        return await self._carry_out(self._requests.reserve(wanted), actor, f"{actor} reserve", ends=wanted.release)

    def _check_room(self, kind: Kind | None = None, namespace: str = "", name: str = "", *, dry_run: bool) -> bool:
        """Raise ApiError 507 if a creation, or an update of this object, finds no room. Returns whether the write is part
        of a deletion: the object is ending and waits for its finalizers."""
        snapshot = self.core.get(kind, namespace, name) if kind is not None else None
        ends = snapshot is not None and snapshot.stored is not None and bool(snapshot.stored.meta.deletion_timestamp)
        if not dry_run:
            self.space.check(ends=ends)
        return ends

    async def _shown(
        self, request: Request[Carried], actor: str, flow: str, dry_run: bool, *, ends: bool = False
    ) -> ShownObject:
        carried = await self._carry_out(request, actor, flow, ends=ends)
        warnings = carried.planned.warnings
        if dry_run and self.advise is not None:
            warnings = (*warnings, *await self.advise(carried.planned))
        return ShownObject(carried.document(self.core), warnings)

    async def _carry_out(self, request: Request[T], actor: str, flow: str, *, ends: bool) -> T:
        """Answer the steps of a request until it ends. `flow`: see `cotenant.log.write_queue`. Raises ApiError."""
        try:
            step = self._planned(request, None)
            while True:
                match step:
                    case Store():
                        step = request.send(await self._store(step.plan, actor, flow, ends=ends))
                    case Reach():
                        step = self._planned(request, await self._reached(step.sequence))
                    case MoveOn():
                        step = self._planned(request, await self._moved_on(step.sequence))
                    case GetLast():
                        step = request.send(await self._head(step.subject))
        except StopIteration as ended:
            result: T = ended.value
            return result

    def _planned(self, request: Request[T], reply: int | None) -> Step:
        """Let a request plan its write, which includes admission."""
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

    async def _store(self, plan: Plan, actor: str, flow: str, *, ends: bool) -> Outcome:
        """Store a plan. If LOG has no room for one that is part of a deletion, LOG is extended."""
        if not self.follower.ready.is_set():
            raise unavailable("the read model is still loading")
        try:
            outcome = await self.writer.submit(plan, actor, flow)
            for _ in range(MAKE_ROOM_TRIES):
                if not (ends and isinstance(outcome, Refused) and outcome.no_space and await self.space.make_room()):
                    break
                outcome = await self.writer.submit(plan, actor, flow)
        except FlowFull as error:
            raise too_many(f"{error}: nothing was stored; try again") from error
        except Overloaded as error:
            raise unavailable(f"{error}: nothing was stored; try again") from error
        if isinstance(outcome, Written):
            self.space.took(plan)
        elif isinstance(outcome, Refused) and outcome.no_space:
            self.space.hurry()
        return outcome

    async def _store_duty(self, plan: Plan, folded: int) -> Outcome:
        return await self._carry_out(storing(plan, folded), "gateway", OF_GATEWAY, ends=plan.writes[0].tombstone)

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


def _flow(actor: str, verb: str, kind: Kind) -> str:
    """Return the flow of a request: what one user does to one kind of object by one verb."""
    return f"{actor} {verb} {kind.resource}"

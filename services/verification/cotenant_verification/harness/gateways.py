"""A gateway under faults: the simulated gateway with crashes, and callbacks for what it acknowledges to users.

In: users' requests. Out: objects on the log; `Users` is notified of each plan before it is stored and when it is acknowledged.
A request that arrives while the gateway is down, or whose write was not answered, is not acknowledged.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.kinds.pods import PODS
from cotenant.kinds.registry import REGISTRY
from cotenant.log.plans import Outcome, Plan, Written
from cotenant.model.times import EPOCH
from cotenant.simulation import HOP, World
from cotenant_console.api.client import Document, text_at
from cotenant_gateway.admission.pods.resizing import RESIZE
from cotenant_gateway.loop.steps import Request
from cotenant_gateway.planning.deletions import DeletionRequest
from cotenant_verification.simulate.api import STRATEGIC, SimulatedGateway, kind_of
from cotenant_verification.simulate.requests import GatewayRequest
from cotenant_verification.workload.schedule import located

REVISION = "chaos.cotenant.io/revision-of-"
"""Prefix of an annotation, followed by the gateway's name: users of one gateway write one annotation, so that a lost update
shows."""
MERGE = "application/merge-patch+json"


class Users(Protocol):
    """Users who send requests, and record acknowledgements."""

    def asked(self, plan: Plan) -> None:
        """Called before a request's plan is stored; its outcome is not known yet."""

    def evicting(self, uid: str) -> None:
        """Called before an eviction is stored. A pod that is on no node ends with it, in the messages before its outcome."""

    def acknowledge(self, plan: Plan, stale: bool) -> None:
        """Called when the plan is acknowledged as stored; `stale`: it was conditional on an old version."""


class ChaosGateway(SimulatedGateway):
    """One of several gateways."""

    def __init__(self, replica: int, users: Users) -> None:
        super().__init__(replica=replica)
        self.name = f"gateway-{'ab'[replica - 1]}"
        self._users = users
        self._down_until = EPOCH
        self._crash: timedelta | None = None
        self._user = False
        self._stale = False

    @property
    def up(self) -> bool:
        """Whether it takes requests."""
        return self._down_until == EPOCH

    def kill(self, down: timedelta) -> None:
        """Crash at the next step; the process is back `down` later with an empty state."""
        self._crash = down

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """One step, unless the process is down."""
        if self._crash is not None:
            world.leave()
            self._down_until, self._crash = now + self._crash, None
        if self._down_until != EPOCH:
            if now < self._down_until:
                return self._down_until
            self._down_until = EPOCH
            self._load()
            self._drop_requests(now)
            world.load()
            return now + HOP
        again = super().step(now, inbox, world)
        # Endings that the log refused are planned again.
        tick = now + timedelta(seconds=1)
        return tick if again is None else min(again, tick)

    def holds(self, resource: tuple[str, str], namespace: str, name: str) -> bool:
        """Whether it has an object."""
        return self.core.get(REGISTRY[resource].kind, namespace, name) is not None

    def _drop_requests(self, now: datetime) -> None:
        """Drop the requests that arrived while it was down: they get no answer."""
        while self._scheduled and self._scheduled[0][0] <= now:
            self._refuse(self._scheduled[0][2], "the gateway is down")
            heapq.heappop(self._scheduled)

    def request_creation(self, when: datetime, document: Document) -> None:
        """Create an object."""
        kind = kind_of(document)
        namespace = text_at(document, "metadata", "namespace") if kind.namespaced else ""
        body = json.dumps(document).encode()
        self._by_user(when, f"create {kind.plural}", lambda: self.requests.create(kind, namespace, body))

    def request_patch(self, when: datetime, resource: tuple[str, str], namespace: str, name: str, patch: Document) -> None:
        """Patch an object, whatever its version."""
        kind = REGISTRY[resource].kind
        body = json.dumps(patch).encode()
        self._by_user(when, f"patch {name}", lambda: self.requests.patch(kind, namespace, name, MERGE, body))

    def request_resize(self, when: datetime, namespace: str, name: str, patch: Document) -> None:
        """Change a pod's resources in place."""
        body = json.dumps(patch).encode()
        self._by_user(
            when,
            f"resize {name}",
            lambda: self.requests.patch(PODS, namespace, name, STRATEGIC, body, subresource=RESIZE),
        )

    def request_revision(self, when: datetime, pod: str, revision: int, *, stale: bool) -> None:
        """Mark a pod with a revision; `stale`: on the condition that it is as it was before its last change."""
        namespace, name = located(pod)

        def begin() -> Request[Any]:
            metadata: Document = {"annotations": {REVISION + self.name: str(revision)}}
            found = self.core.get(PODS, namespace, name)
            if stale and found is not None:
                metadata["resourceVersion"] = str(found.version - 1)
            body = json.dumps({"metadata": metadata}).encode()
            return self.requests.patch(PODS, namespace, name, MERGE, body)

        self._by_user(when, f"revise {name}", begin, stale=stale)

    def request_deletion(
        self, when: datetime, resource: tuple[str, str], namespace: str, name: str, grace: int | None
    ) -> None:
        """Delete an object."""
        kind = REGISTRY[resource].kind
        deletion = DeletionRequest(grace_period_seconds=grace)
        self._by_user(when, f"delete {name}", lambda: self.requests.delete(kind, namespace, name, deletion))

    def take_request(self, when: datetime, request: GatewayRequest) -> None:
        """Take a service's request: no user is answered."""
        self.take(when, request)

    def _by_user(self, when: datetime, what: str, begin: Callable[[], Request[Any]], *, stale: bool = False) -> None:
        def marked() -> Request[Any]:
            self._user, self._stale = True, stale
            return begin()

        self._at(when, what, marked)

    def store(self, plan: Plan, now: datetime, world: World) -> Outcome:
        """Store a plan; users are notified of theirs before, and when it is acknowledged."""
        user = self._user
        if user:
            self._users.asked(plan)
        for write in plan.writes:
            if isinstance(write.payload, EvictionOutcome) and write.payload.reason == "Evicted" and not write.tombstone:
                self._users.evicting(write.payload.uid)
        outcome = super().store(plan, now, world)
        if user and isinstance(outcome, Written):
            self._users.acknowledge(plan, self._stale)
        return outcome

    def _carry_out(self, what: str, begin: Callable[[], Request[Any]], now: datetime, world: World) -> None:
        try:
            super()._carry_out(what, begin, now, world)
        finally:
            self._user = False

"""A gateway under faults: the simulated gateway with deaths, and a memory of what it has acknowledged to users.

In: wishes of users. Out: objects on the log, and `Users` hear what they were told is stored. A wish that comes while the
gateway is down, or whose write nobody answered, is not acknowledged.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionRequest
from cotenant.kinds.pods import PODS
from cotenant.kinds.registry import REGISTRY
from cotenant.log.contract import Stored
from cotenant.log.plans import Plan
from cotenant.simulation import HOP, NEVER, World
from cotenant_console.api.client import Document, text_at
from cotenant_console.simulate.api import SimulatedGateway, kind_of
from cotenant_gateway.planning.evictions import plan_eviction
from cotenant_gateway.planning.requests import DeletionWish, plan_creation, plan_deletion, plan_patch
from cotenant_verification.workload.schedule import located

REVISION = "chaos.cotenant.io/revision-of-"
"""With the gateway's name: users of one gateway write one annotation, so that a lost update shows."""
MERGE = "application/merge-patch+json"


class Users(Protocol):
    """Those who ask, and remember what they were told."""

    def asked(self, plan: Plan) -> None:
        """A wish is about to be stored; nobody knows yet what becomes of it."""

    def evicting(self, uid: str) -> None:
        """An eviction is about to be stored. A pod that is nowhere ends with it, in the messages before its outcome."""

    def acknowledge(self, plan: Plan, stale: bool) -> None:
        """A user is told that the wish is stored; `stale`: it rested on the condition of an old version."""


class ChaosGateway(SimulatedGateway):
    """One of several gateways."""

    def __init__(self, replica: int, users: Users) -> None:
        super().__init__(replica=replica)
        self.name = f"gateway-{'ab'[replica - 1]}"
        self._users = users
        self._down_until = NEVER
        self._dies: timedelta | None = None
        self._user = False
        self._stale = False

    @property
    def up(self) -> bool:
        """Whether it takes wishes."""
        return self._down_until == NEVER

    def kill(self, down: timedelta) -> None:
        """End the process at its next turn; it is back `down` later with an empty state."""
        self._dies = down

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """One turn, unless the process is down."""
        if self._dies is not None:
            world.leave()
            self._down_until, self._dies = now + self._dies, None
        if self._down_until != NEVER:
            if now < self._down_until:
                return self._down_until
            self._down_until = NEVER
            self._load()
            self._drop_wishes(now)
            world.load()
            return now + HOP
        again = super().step(now, inbox, world)
        # Endings that the log refused are planned again.
        tick = now + timedelta(seconds=1)
        return tick if again is None else min(again, tick)

    def holds(self, plural: tuple[str, str], namespace: str, name: str) -> bool:
        """Whether it knows an object."""
        return self.core.get(REGISTRY[plural].kind, namespace, name) is not None

    def _drop_wishes(self, now: datetime) -> None:
        """Whoever asked while it was down got no answer."""
        while self._wishes and self._wishes[0][0] <= now:
            self._refuse(self._wishes[0][2], "the gateway is down")
            heapq.heappop(self._wishes)

    def wish_creation(self, when: datetime, document: Document) -> None:
        """Create an object."""
        kind = kind_of(document)
        namespace = text_at(document, "metadata", "namespace") if kind.namespaced else ""
        body = json.dumps(document).encode()
        self._wish(
            when,
            f"create {kind.plural}",
            lambda now: plan_creation(self.core, kind, namespace, body, now, self._uid(), self._suffix).plan,
        )

    def wish_patch(self, when: datetime, plural: tuple[str, str], namespace: str, name: str, patch: Document) -> None:
        """Patch an object, whatever its version."""
        kind = REGISTRY[plural].kind
        body = json.dumps(patch).encode()
        self._wish(when, f"patch {name}", lambda _: plan_patch(self.core, kind, namespace, name, MERGE, body).plan)

    def wish_revision(self, when: datetime, pod: str, revision: int, *, stale: bool) -> None:
        """Mark a pod with a revision; `stale`: on the condition that it is as it was before its last change."""
        namespace, name = located(pod)

        def plan(_: datetime) -> Plan | None:
            metadata: Document = {"annotations": {REVISION + self.name: str(revision)}}
            found = self.core.get(PODS, namespace, name)
            if stale and found is not None:
                metadata["resourceVersion"] = str(found.version - 1)
            body = json.dumps({"metadata": metadata}).encode()
            return plan_patch(self.core, PODS, namespace, name, MERGE, body).plan

        self._wish(when, f"revise {name}", plan, stale=stale)

    def wish_deletion(self, when: datetime, plural: tuple[str, str], namespace: str, name: str, grace: int | None) -> None:
        """Delete an object."""
        kind = REGISTRY[plural].kind
        wish = DeletionWish(grace_period_seconds=grace)
        self._wish(when, f"delete {name}", lambda now: plan_deletion(self.core, kind, namespace, name, wish, now).plan)

    def wish_eviction(self, when: datetime, wish: EvictionRequest) -> None:
        """A service asks for an eviction: no user is told anything."""

        def plan(now: datetime) -> Plan | None:
            planned = plan_eviction(self.core, wish, now)
            if planned.plan is not None and planned.outcome.reason == "Evicted":
                self._users.evicting(planned.outcome.uid)
            return planned.plan

        self._at(when, f"evict {wish.namespace}/{wish.name}", plan)

    def _wish(self, when: datetime, what: str, planner: Callable[[datetime], Plan | None], *, stale: bool = False) -> None:
        def planned(now: datetime) -> Plan | None:
            self._user, self._stale = True, stale
            return planner(now)

        self._at(when, what, planned)

    def _store(self, plan: Plan, now: datetime, world: World) -> Stored | None:
        user, self._user = self._user, False
        if user:
            self._users.asked(plan)
        outcome = super()._store(plan, now, world)
        if user and outcome is not None:
            self._users.acknowledge(plan, self._stale)
        return outcome

    def _carry_out(self, what: str, planner: Callable[[datetime], Plan | None], now: datetime, world: World) -> None:
        try:
            super()._carry_out(what, planner, now, world)
        finally:
            self._user = False

"""The gateway in the simulation: the same planning, admission and endings, without HTTP.

In: wishes of users (create, delete, evict) at their moments. Out: objects on the simulated log, and what was
refused, with the gateway's own words. What is stored is folded at once, so that wishes of one moment see each
other.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cotenant.api.edits import with_metadata
from cotenant.api.kinds import Kind
from cotenant.api.times import rfc3339
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionRequest
from cotenant.events.objects import ObjectStored
from cotenant.kinds.pod_disruption_budgets import BUDGETS
from cotenant.kinds.registry import REGISTRY
from cotenant.log.contract import Stored, Write
from cotenant.log.plans import Plan, PlannedWrite
from cotenant.simulation import HOP, START, World
from cotenant_console.api.client import Document, Json, text_at
from cotenant_gateway.planning.budgets import budget_updates
from cotenant_gateway.planning.built_in import missing_built_ins
from cotenant_gateway.planning.endings import endings, registrations
from cotenant_gateway.planning.evictions import plan_eviction
from cotenant_gateway.planning.requests import DeletionWish, plan_creation, plan_deletion
from cotenant_gateway.planning.statuses import ApiError
from cotenant_gateway.read_model.core import GatewayCore

SOURCE = "/cell/gateway/0"
FAMILIES = ("objects.>", "node.>", "metrics.>", "quotas.>", "waiting.>", "migrations.>", "evictions.>")
MAX_REFUSALS_KEPT = 1000
BUDGETS_EVERY = timedelta(seconds=10)

Planner = Callable[[datetime], "Plan | None"]


def kind_of(document: Document) -> Kind:
    """Return the kind that a manifest names. Raises KeyError."""
    kind = REGISTRY.type(text_at(document, "apiVersion"), text_at(document, "kind"))
    if kind is None:
        raise KeyError(text_at(document, "kind"))
    return kind


@dataclass(frozen=True)
class RefusedWish:
    """What a user wanted and did not get."""

    what: str
    message: str


class SimulatedGateway:
    """A participant that stores what users want. Wishes are given by `at`, before or during the run."""

    filters: tuple[str, ...] = FAMILIES
    usage_filters: tuple[str, ...] = ()

    def __init__(self, *, budgets: bool = True, replica: int = 0) -> None:
        self.name = f"gateway-{'abcdefgh'[replica]}" if replica else "gateway"
        self._ids = f"{SOURCE}/{replica}" if replica else SOURCE
        self._uids_begin = f"00000000-0000-4000-8000-{replica:x}"
        self._load()
        self.refused: list[RefusedWish] = []
        self.refused_count = 0
        self._budgets = budgets
        self._budgets_at = (-1, START)
        self._wishes: list[tuple[datetime, int, str, Planner]] = []
        self._order = 0
        self._written = 0
        self._uids = 0
        self._built_in = False

    def _load(self) -> None:
        """Begin with an empty read model. It is never said to be loaded: nobody watches, so no changes are kept for watches."""
        self.core = GatewayCore()

    def create(self, when: datetime, document: Document) -> None:
        """Create an object at a moment."""
        kind = kind_of(document)
        namespace = text_at(document, "metadata", "namespace") if kind.namespaced else ""
        body = json.dumps(document).encode()

        def plan(now: datetime) -> Plan | None:
            return plan_creation(self.core, kind, namespace, body, now, self._uid(), self._suffix).plan

        self._at(when, f"create {kind.plural} {namespace}/{text_at(document, 'metadata', 'name')}", plan)

    def delete(self, when: datetime, plural: str, namespace: str, name: str) -> None:
        """Delete an object at a moment."""
        kind = REGISTRY["", plural].kind

        def plan(now: datetime) -> Plan | None:
            return plan_deletion(self.core, kind, namespace, name, DeletionWish(), now).plan

        self._at(when, f"delete {plural} {namespace}/{name}", plan)

    def evict(self, when: datetime, wish: EvictionRequest) -> None:
        """Evict a pod at a moment, if its budgets allow it."""
        what = f"evict {wish.namespace}/{wish.name}"
        self._at(when, what, lambda now: plan_eviction(self.core, wish, now).plan)

    def documents(self, plural: str) -> list[Json]:
        """The objects of a core kind as the API would show them, sorted by namespace and name."""
        return [json.loads(found.document) for found in self.core.objects(REGISTRY["", plural].kind)]

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """Fold, carry out due wishes, let end what can end."""
        core, wishes = self.core, self._wishes
        for event in inbox:
            core.apply(event)
        if not self._built_in:
            self._store_all(missing_built_ins(core), now, world, identify=True)
            self._built_in = True
            return now + HOP
        while wishes and wishes[0][0] <= now:
            _, _, what, planner = heapq.heappop(wishes)
            self._carry_out(what, planner, now, world)
        if core.ending or core.forsaken:
            self._store_all(endings(core, now), now, world)
        if core.unregistered:
            self._store_all(registrations(core), now, world, identify=True)
        if self._budgets and core.collections[BUDGETS].slots:
            self._look_at_budgets(now, world)
        return wishes[0][0] if wishes else None

    def _look_at_budgets(self, now: datetime, world: World) -> None:
        """Store what budgets say: when something was folded, and when a disruption may have become old."""
        folded, again = self._budgets_at
        if self.core.folded != folded or now >= again:
            self._budgets_at = (self.core.folded, now + BUDGETS_EVERY)
            self._store_all(budget_updates(self.core, now), now, world)

    def _at(self, when: datetime, what: str, planner: Planner) -> None:
        self._order += 1
        heapq.heappush(self._wishes, (when, self._order, what, planner))

    def _uid(self) -> str:
        self._uids += 1
        return f"{self._uids_begin}{self._uids:011x}"

    def _suffix(self) -> str:
        return f"{self._uids:05d}"

    def _carry_out(self, what: str, planner: Planner, now: datetime, world: World) -> None:
        """Plan and store a wish. Everything stored before it at this moment is folded first, so one attempt is enough."""
        try:
            plan = planner(now)
        except ApiError as error:
            self._refuse(what, str(error))
            return
        if plan is not None and self._store(plan, now, world) is None:
            self._refuse(what, "the log refused it")

    def _refuse(self, what: str, message: str) -> None:
        self.refused_count += 1
        if len(self.refused) < MAX_REFUSALS_KEPT:
            self.refused.append(RefusedWish(what, message))

    def _store_all(self, plans: Iterable[Plan], now: datetime, world: World, *, identify: bool = False) -> None:
        for plan in list(plans):
            # A refused one was made from an old state: it is planned again after the next fold.
            self._store(self._identified(plan, now) if identify else plan, now, world)

    def _identified(self, plan: Plan, now: datetime) -> Plan:
        """Objects that the gateway makes itself get uid and creation time here."""
        writes = []
        for write in plan.writes:
            assert isinstance(write.payload, ObjectStored)
            given = {"uid": self._uid(), "creationTimestamp": rfc3339(now), "generation": 1}
            payload = ObjectStored(object=with_metadata(write.payload.object, given))
            writes.append(PlannedWrite(write.subject, payload, write.expected, write.tombstone, write.causes))
        return Plan(tuple(writes))

    def _store(self, plan: Plan, now: datetime, world: World) -> Stored | None:
        """Store a plan and fold what was stored; None where the log did not say that it has it."""
        writes = []
        for write in plan.writes:
            self._written += 1
            event = write.event(now, f"{self._ids}/{self._written}", SOURCE, "simulation")
            writes.append(Write(event=event, expected=write.expected))
        outcome = world.store(writes)
        if not isinstance(outcome, Stored):
            return None
        for sequence in range(outcome.first, outcome.last + 1):
            stored = world.streams.log.event(sequence)
            if stored is not None:
                self.core.apply(stored)
        return outcome

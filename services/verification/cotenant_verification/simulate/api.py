"""The gateway in the simulation: the gateway's own loop on the simulated log, without HTTP.

In: users' requests (create, delete, evict) at their moments. Out: objects on the simulated log, and
refusals, in the gateway's words. Stored objects are folded at once, so that requests of one moment see each
other.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from cotenant.api.kinds import Kind
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionRequest, ReservationRequest
from cotenant.kinds.koordinator.elastic_quota_profiles import QUOTA_PROFILES
from cotenant.kinds.pods import PODS
from cotenant.kinds.registry import REGISTRY
from cotenant.log.contract import Stored, Write
from cotenant.log.plans import Outcome, Plan, Written
from cotenant.simulation import HOP, START, World
from cotenant.simulation.links import head_of
from cotenant_console.api.client import Document, text_at
from cotenant_gateway.admission.pods.resizing import RESIZE
from cotenant_gateway.loop.duties import COLLECTED_EVERY, Cadence, Duties
from cotenant_gateway.loop.requests import WriteRequests, storing
from cotenant_gateway.loop.steps import GetLast, Request, Store
from cotenant_gateway.planning.deletions import DeletionRequest
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError

SOURCE = "/cell/gateway/0"
FAMILIES = (
    "objects.>",
    "node.>",
    "metrics.>",
    "quotas.>",
    "waiting.>",
    "podgroups.>",
    "reservations.*",
    "migrations.>",
    "evictions.>",
)
MAX_REFUSALS_STORED = 1000
BUDGETS = Cadence(timedelta(seconds=10), after_folds=True)
STRATEGIC = "application/strategic-merge-patch+json"
ATTEMPTS = 1
"""A simulated user gets the first refusal: nothing is folded between two attempts of one moment."""


def kind_of(document: Document) -> Kind:
    """Return the kind that a manifest names. Raises KeyError."""
    kind = REGISTRY.type(text_at(document, "apiVersion"), text_at(document, "kind"))
    if kind is None:
        raise KeyError(text_at(document, "kind"))
    return kind


@dataclass(frozen=True)
class RefusedRequest:
    """A request that was refused."""

    what: str
    message: str


class SimulatedGateway:
    """A participant that stores what users request. Requests are scheduled before or during the run."""

    filters: tuple[str, ...] = FAMILIES
    usage_filters: tuple[str, ...] = ()

    def __init__(self, *, budgets: bool = True, replica: int = 0) -> None:
        self.name = f"gateway-{'abcdefgh'[replica]}" if replica else "gateway"
        self._ids = f"{SOURCE}/{replica}" if replica else SOURCE
        self._uids_begin = f"00000000-0000-4000-8000-{replica:x}"
        self._load()
        self.refused: list[RefusedRequest] = []
        self.refused_count = 0
        self._now = START
        self.requests = WriteRequests(lambda: self.core, lambda: self._now, self._uid, self._suffix, ATTEMPTS)
        self._duties = Duties(lambda: self.core, self._uid, BUDGETS if budgets else Cadence(None))
        self._scheduled: list[tuple[datetime, int, str, Callable[[], Request[Any]]]] = []
        self._order = 0
        self._written = 0
        self._uids = 0

    def _load(self) -> None:
        """Begin with an empty read model. It is never marked as loaded: no watch reads its changes."""
        self.core = GatewayCore()

    def create(self, when: datetime, document: Document) -> None:
        """Create an object at a moment."""
        kind = kind_of(document)
        namespace = text_at(document, "metadata", "namespace") if kind.namespaced else ""
        body = json.dumps(document).encode()
        what = f"create {kind.plural} {namespace}/{text_at(document, 'metadata', 'name')}"
        self._at(when, what, lambda: self.requests.create(kind, namespace, body))

    def delete(self, when: datetime, plural: str, namespace: str, name: str) -> None:
        """Delete an object of a core kind at a moment."""
        kind = REGISTRY["", plural].kind
        what = f"delete {plural} {namespace}/{name}"
        self._at(when, what, lambda: self.requests.delete(kind, namespace, name, DeletionRequest()))

    def resize(self, when: datetime, namespace: str, name: str, patch: Document) -> None:
        """Change a pod's resources in place at a moment, by a strategic merge patch."""
        body = json.dumps(patch).encode()
        what = f"resize {namespace}/{name}"
        self._at(when, what, lambda: self.requests.patch(PODS, namespace, name, STRATEGIC, body, subresource=RESIZE))

    def evict(self, when: datetime, eviction: EvictionRequest) -> None:
        """Evict a pod at a moment, if its budgets allow it."""
        self._at(when, f"evict {eviction.namespace}/{eviction.name}", lambda: self.requests.evict(eviction))

    def reserve(self, when: datetime, wanted: ReservationRequest) -> None:
        """Make or delete the reservation of a pod that migrates."""
        self._at(when, f"reserve {wanted.name}", lambda: self.requests.reserve(wanted))

    def take(self, when: datetime, request: EvictionRequest | ReservationRequest) -> None:
        """Take a service's request."""
        if isinstance(request, EvictionRequest):
            self.evict(when, request)
        else:
            self.reserve(when, request)

    def documents(self, plural: str, group: str = "") -> list[Document]:
        """The objects of a kind as the API would show them, sorted by namespace and name."""
        return [json.loads(found.document) for found in self.core.objects(REGISTRY[group, plural].kind)]

    def step(self, now: datetime, inbox: Sequence[Event], world: World) -> datetime | None:
        """Fold, carry out the requests that are due, then the gateway's duties."""
        self._now = now
        core, scheduled = self.core, self._scheduled
        for event in inbox:
            core.apply(event)
        began = self._duties.complete
        for plans in self._duties.built_ins(now):
            self._store_all(plans, now, world)
        if not began and not self._duties.complete:
            return now + HOP
        while scheduled and scheduled[0][0] <= now:
            _, _, what, begin = heapq.heappop(scheduled)
            self._carry_out(what, begin, now, world)
        for plans in self._duties.profiled_quotas(now):
            self._store_all(plans, now, world)
        for plans in self._duties.due(now):
            self._store_all(plans, now, world)
        following = scheduled[0][0] if scheduled else None
        waits = self._duties.wait(now)
        if waits is not None and (following is None or now + waits < following):
            following = now + waits
        if not core.pod_ends.wait_for_time and not core.collections[QUOTA_PROFILES].slots:
            return following
        tick = now + COLLECTED_EVERY
        return tick if following is None or tick < following else following

    def _at(self, when: datetime, what: str, begin: Callable[[], Request[Any]]) -> None:
        self._order += 1
        heapq.heappush(self._scheduled, (when, self._order, what, begin))

    def _uid(self) -> str:
        self._uids += 1
        return f"{self._uids_begin}{self._uids:011x}"

    def _suffix(self) -> str:
        return f"{self._uids:05d}"

    def _carry_out(self, what: str, begin: Callable[[], Request[Any]], now: datetime, world: World) -> None:
        """Answer the steps of a request. What was stored before it at this moment is folded already."""
        stored = True
        try:
            request = begin()
            step = next(request)
            while True:
                if isinstance(step, Store):
                    outcome = self.store(step.plan, now, world)
                    stored = isinstance(outcome, Written)
                    step = request.send(outcome)
                elif isinstance(step, GetLast):
                    step = request.send(head_of(world.streams.log, step.subject))
                else:
                    step = request.send(self.core.folded if self.core.folded >= step.sequence else 0)
        except StopIteration:
            return
        except ApiError as error:
            self._refuse(what, str(error) if stored else "the log refused it")

    def _refuse(self, what: str, message: str) -> None:
        self.refused_count += 1
        if len(self.refused) < MAX_REFUSALS_STORED:
            self.refused.append(RefusedRequest(what, message))

    def _store_all(self, plans: Iterable[Plan], now: datetime, world: World) -> None:
        for plan in plans:
            # A refused one was based on an old state: it is repeated after the next fold.
            self._carry_out("a duty", partial(storing, plan, self.core.folded), now, world)

    def store(self, plan: Plan, now: datetime, world: World) -> Outcome:
        """Store a plan and fold what was stored."""
        writes = []
        for write in plan.writes:
            self._written += 1
            event = write.event(now, f"{self._ids}/{self._written}", SOURCE, "simulation")
            writes.append(Write(event=event, expected=write.expected))
        outcome = world.store(writes)
        if not isinstance(outcome, Stored):
            return outcome
        for stored in world.streams.log.events(outcome):
            if stored is not None:
                self.core.apply(stored)
        return Written(tuple(range(outcome.first, outcome.last + 1)))

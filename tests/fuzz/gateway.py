"""The gateway under fuzz: messages of every type are folded, requests with any document are planned and stored, all is shown.

A request is refused with an ApiError below 500, or its plan is stored and folded. Every object that there is has JSON, a row
of a table and a version; a read model that loads the last messages shows the same documents.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from functools import cache
from itertools import count
from random import Random
from typing import Any

import msgspec

from cotenant.api.snapshots import Snapshot
from cotenant.events.deadletters import DeadLetter
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionRequest
from cotenant.events.node.execution import Execution
from cotenant.explain.causes import event_line
from cotenant.kinds.events import DEFINITION as EVENT_DEFINITION
from cotenant.kinds.events import EVENTS
from cotenant.kinds.pods import PODS
from cotenant.kinds.registry import REGISTRY
from cotenant.log.contract import EXECUTION
from cotenant.log.plans import Outcome, Plan, Written
from cotenant_gateway.http.facts.dead_letters import letter_of
from cotenant_gateway.http.facts.node_actions import action
from cotenant_gateway.http.tables import TableFormat, table
from cotenant_gateway.loop.duties import Cadence, Duties
from cotenant_gateway.loop.requests import WriteRequests
from cotenant_gateway.loop.steps import MoveOn, Request, Store
from cotenant_gateway.planning.deletions import DeletionRequest
from cotenant_gateway.planning.updates import PATCH_TYPES
from cotenant_gateway.read_model.core import GatewayCore
from cotenant_gateway.statuses import ApiError
from tests.fuzz.cores import ROUNDS, SUBJECTS, Journal
from tests.fuzz.extremes import INTEGERS, NOW, json_bytes, junk
from tests.fuzz.facts import DOCUMENTS, document
from tests.fuzz.making import Maker

_KINDS = {(each.kind.group, each.kind.plural): each.kind for each in REGISTRY}
_SERVED = tuple(each for each in DOCUMENTS if (each.group, each.plural) in _KINDS)


_VERSION = re.compile(rb'"resourceVersion":"\d+"')
"""Left out of comparisons: an ended part counts until its tombstone has expired."""


@cache
def _built_in() -> tuple[Event, ...]:
    """The built-in objects as a gateway stores them."""
    core, journal = GatewayCore(), Journal()
    core.loaded()
    uids = count(1)
    stored = []
    for plans in Duties(lambda: core, lambda: f"built-in-{next(uids)}", Cadence(None)).built_ins(NOW):
        for plan in plans:
            for write in plan.writes:
                stored.append(journal.store(write.event(NOW, "own", "/own", "fuzz"), NOW))
                core.apply(stored[-1])
    return tuple(stored)


class Gateway:
    """The read model, its requests and its duties."""

    def __init__(self) -> None:
        self.filters = (">",)
        self.journal = Journal()
        self.core = GatewayCore()
        self.core.loaded()
        self.now = NOW
        self.folded = 0
        self._shown: dict[str, tuple[Snapshot, bytes]] = {}
        uids = count(1)
        self.requests = WriteRequests(lambda: self.core, lambda: self.now, lambda: f"new-{next(uids)}", lambda: "abcde", 3)
        self.duties = Duties(lambda: self.core, lambda: f"made-{next(uids)}", Cadence(None))
        self.budgets = Duties(lambda: self.core, lambda: f"made-{next(uids)}", Cadence(NOW - NOW, after_folds=True))
        for event in _built_in():
            self.journal.sequence = event.sequence
            self.journal.note(event)
            self.core.apply(event)

    def fold(self, event: Event) -> None:
        self.folded += 1
        msgspec.json.encode(event_line(event))
        if event.stream != EXECUTION:
            self.core.apply(event)
        elif isinstance(event.data, Execution):
            shown = action(event, 1)
            json.loads(shown.document)
            table(EVENT_DEFINITION.layout, [shown], {}, self.now, TableFormat())
        elif isinstance(event.data, DeadLetter):
            msgspec.json.encode(letter_of(event, event.data, {event.data.subject: 1}))

    def act(self, now: datetime, random: Random, heat: float) -> None:
        self.now = now
        for _ in range(2):
            self._request(random, heat)
        for _ in range(ROUNDS):
            plans = [plan for due in (*self.duties.due(now), *self.budgets.due(now)) for plan in due]
            if not plans:
                break
            for plan in plans:
                self._store(plan)
        else:
            raise AssertionError(f"{ROUNDS} looks at one time, and still due: {plans[0]}")
        self._show(self.core, self._shown)

    def _store(self, plan: Plan) -> Outcome:
        sequences = []
        for write in plan.writes:
            stored = self.journal.store(write.event(self.now, "own", "/own", "fuzz"), self.now)
            sequences.append(stored.sequence)
            self.fold(stored)
        return Written(tuple(sequences))

    def _request(self, random: Random, heat: float) -> None:
        of = random.choice(_SERVED)
        kind = _KINDS[of.group, of.plural]
        namespace, name, made = document(random, of, heat, random.choice((0.1, 0.4)))
        body = json_bytes(made)
        request: Request[Any]
        match random.randrange(7):
            case 0 | 1 | 2:
                carried = self._drive(self.requests.create(kind, namespace, body))
                if carried is not None:
                    json.loads(carried.document(self.core))
                return
            case 3:
                subresource = random.choice(("", "", "status", "resize" if kind is PODS else ""))
                request = self.requests.replace(kind, namespace, name, body, subresource=subresource)
            case 4:
                patch = body if random.random() < 0.5 else json_bytes(_operations(random))
                request = self.requests.patch(kind, namespace, name, random.choice(PATCH_TYPES), patch)
            case 5:
                grace = random.choice((None, 0, 30, *INTEGERS))
                request = self.requests.delete(kind, namespace, name, DeletionRequest(grace if grace is None else abs(grace)))
            case _:
                asked = Maker(random, heat, 0.5, {"namespace": namespace, "name": name, "uid": f"uid-{name}"}).make(
                    EvictionRequest
                )
                try:
                    request = self.requests.evict(msgspec.json.decode(json_bytes(asked), type=EvictionRequest))
                except msgspec.MsgspecError:
                    return
        self._drive(request)

    def _drive(self, request: Request[Any]) -> Any:
        reply: Any = None
        try:
            while True:
                step = request.send(reply)
                reply = self._store(step.plan) if isinstance(step, Store) else self._reached(step)
        except StopIteration as returned:
            return returned.value
        except ApiError as error:
            if error.code >= 500 and error.code != 504:
                raise
            return None

    def _reached(self, step: Any) -> int:
        return self.core.folded if isinstance(step, MoveOn) else 0

    def _show(self, core: GatewayCore, before: dict[str, tuple[Snapshot, bytes]]) -> dict[str, bytes]:
        """Return all documents by name; those that were not shown before are decoded, and are a row of a table."""
        shown: dict[str, tuple[Snapshot, bytes]] = {}
        for definition in core.kinds:
            resource, other = definition.kind.resource, []
            for snapshot in core.objects(definition.kind):
                name = f"{resource} {snapshot.address.namespace}/{snapshot.address.name}"
                known = before.get(name)
                if known is None or known[0] is not snapshot:
                    json.loads(snapshot.document)
                    known = snapshot, _VERSION.sub(b"", snapshot.document)
                    other.append(snapshot)
                shown[name] = known
            if other:
                table(definition.layout, other, {}, self.now, TableFormat())
        before.clear()
        before |= shown
        return {name: document for name, (_, document) in shown.items()}

    def finish(self, now: datetime) -> None:
        kept, fresh = self.journal.kept, GatewayCore()
        for event in kept.in_order():
            fresh.apply(event)
        fresh.loaded()
        mine, other = self._show(self.core, self._shown), self._show(fresh, {})
        events = f"{EVENTS.resource} "
        for name in {*mine, *other}:
            if not name.startswith(events):
                assert mine.get(name) == other.get(name), f"{name} is {mine.get(name)!r}, and {other.get(name)!r} after a load"


def _operations(random: Random) -> Any:
    paths = (
        "/spec",
        "/metadata/labels",
        "/metadata/annotations/a",
        "/spec/containers/0",
        "/status",
        "",
        "/metadata/name",
        "/x/-",
    )
    return [
        {"op": random.choice(("add", "remove", "replace", "copy", "move", "test", "?")), "path": random.choice(paths),
         "from": random.choice(paths), "value": junk(random)}
        for _ in range(random.choice((0, 1, 3, 10)))
    ]  # fmt: skip


SUBJECTS["gateway"] = Gateway

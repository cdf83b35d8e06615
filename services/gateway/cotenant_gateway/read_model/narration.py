"""core/v1 Events for `kubectl get events`, told from the facts on the log.

In: facts about pods and nodes (placements, waiting reasons, runs, evictions, readiness). Out: Event objects: one per
object and reason, counted when the same happens again. At most MAX_EVENTS are kept; the oldest go. They are made anew
from the last facts after a restart and never stored: the log itself is the record.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cotenant.api.overlay import Overlay, head_of
from cotenant.api.snapshots import Address, Snapshot
from cotenant.api.splices import raw
from cotenant.api.times import derived_uid, rfc3339
from cotenant.events.conditions import NodeCondition
from cotenant.events.envelope import Event
from cotenant.events.migrations import EvictionOutcome
from cotenant.events.placements import Placement, PlacementPhase, Waiting
from cotenant.events.runs import RunPhase, RunStatus
from cotenant.kinds.events import DEFINITION, EVENTS
from cotenant_gateway.read_model.slots import Collection

MAX_EVENTS = 2000
MAX_HEARD = 1000
_TOLD_ONCE = ("Scheduled", "Started", "Killing")
"""Reasons whose facts are stored again without anything having happened."""


class Told(msgspec.Struct, frozen=True, gc=False):
    """What happened to whom, in the words of a core/v1 Event."""

    kind: str
    namespace: str
    name: str
    uid: str
    normal: bool
    reason: str
    message: str
    component: str


_OF_RUNS = {
    RunPhase.RUNNING: (True, "Started", "Started on"),
    RunPhase.SUCCEEDED: (True, "Completed", "Completed on"),
    RunPhase.FAILED: (False, "Failed", "Failed on"),
    RunPhase.EVICTED: (False, "Evicted", "Evicted by"),
    RunPhase.STOPPED: (True, "Killed", "Stopped on"),
}


def _tell_placement(placed: Placement) -> Told:
    if placed.phase is PlacementPhase.TERMINATING:
        message = f"Stopping pod {placed.name}" + (f": {placed.reason}" if placed.reason else "")
        return Told("Pod", placed.namespace, placed.name, placed.uid, True, "Killing", message, "scheduler")
    message = f"Successfully assigned {placed.namespace}/{placed.name} to {placed.node}"
    return Told("Pod", placed.namespace, placed.name, placed.uid, True, "Scheduled", message, "scheduler")


def _tell_waiting(waiting: Waiting) -> Told:
    message = waiting.message
    return Told("Pod", waiting.namespace, waiting.name, waiting.uid, False, "FailedScheduling", message, "scheduler")


def _tell_eviction(outcome: EvictionOutcome) -> Told:
    reason = "Evicted" if outcome.allowed else "EvictionRefused"
    message = outcome.message or ("eviction allowed" if outcome.allowed else "eviction refused")
    return Told("Pod", outcome.namespace, outcome.name, outcome.uid, outcome.allowed, reason, message, "gateway")


def _tell_run(run: RunStatus) -> Told | None:
    told = _OF_RUNS.get(run.phase)
    if told is None:
        return None
    normal, reason, begin = told
    detail = run.message or run.reason
    message = f"{begin} {run.node}: {detail}" if detail else f"{begin} {run.node}"
    return Told("Pod", run.namespace, run.name, run.uid, normal, reason, message, "node-executor")


def _tell_condition(condition: NodeCondition) -> Told:
    reason = "NodeReady" if condition.ready else "NodeNotReady"
    message = condition.message or f"Node {condition.node} status is now: {reason}"
    return Told("Node", "", condition.node, "", condition.ready, reason, message, "descheduler-arbiter")


# Each function takes the payload type that it stands beside.
_TELLERS: dict[type, Callable[[Any], Told | None]] = {
    Placement: _tell_placement,
    Waiting: _tell_waiting,
    EvictionOutcome: _tell_eviction,
    RunStatus: _tell_run,
    NodeCondition: _tell_condition,
}


class Narrated(Snapshot, eq=False, gc=False, kw_only=True):
    """An Event object: what was told last, how often, since when and when last."""

    told: Told
    count: int
    first: datetime | None
    last: datetime | None


_NO_PARTS: Mapping[str, Event] = {}


class Narrator(Collection):
    """The Event objects: those that are told, oldest first, and those that somebody stored."""

    def __init__(self) -> None:
        super().__init__(DEFINITION)
        self._told: OrderedDict[tuple[str, str], Narrated] = OrderedDict()
        self._heard: list[Event] = []
        """Facts that are not told yet."""

    def hear(self, event: Event) -> None:
        """Take a fact that is told when somebody reads, or when MAX_HEARD wait."""
        if type(event.data) in _TELLERS and not event.tombstone:
            if not self._heard:
                self._order = None
                self.derived.clear()
            self._heard.append(event)
            if len(self._heard) >= MAX_HEARD:
                self._catch_up()

    def _catch_up(self) -> None:
        heard, self._heard = self._heard, []
        for event in heard:
            self._tell(event)

    def get(self, namespace: str, name: str) -> Snapshot | None:
        """Return one Event object, None where it does not exist."""
        self._catch_up()
        return self._told.get((namespace, name)) or super().get(namespace, name)

    def _names(self) -> Iterator[tuple[str, str]]:
        self._catch_up()
        return iter({*super()._names(), *self._told})

    def tell(self, event: Event) -> Sequence[tuple[Narrated | None, Narrated | None]]:
        """Return the Event objects that a fact adds, changes or drops, as they were and as they are."""
        if self._heard:
            self._catch_up()
        changes = self._tell(event)
        if changes:
            self._order = None
            self.derived.clear()
        return changes

    def _tell(self, event: Event) -> Sequence[tuple[Narrated | None, Narrated | None]]:
        teller = _TELLERS.get(type(event.data))
        told = None if teller is None or event.tombstone else teller(event.data)
        if told is None:
            return ()
        key = (told.namespace or "default", f"{told.name}.{told.uid or told.kind.lower()}.{told.reason.lower()}")
        before = self._told.get(key)
        if before is None:
            address, count, first = Address(EVENTS, *key), 1, event.time
        elif before.version >= event.sequence or (before.told == told and told.reason in _TOLD_ONCE):
            return ()
        else:
            address, count, first = before.address, before.count + 1, before.first
            self._told.move_to_end(key)
        after = self._told[key] = Narrated(
            address, None, _NO_PARTS, event.sequence, _composed, told=told, count=count, first=first, last=event.time
        )
        if len(self._told) <= MAX_EVENTS:
            return ((before, after),)
        _, oldest = self._told.popitem(last=False)
        return (before, after), (oldest, None)


def _composed(event: Snapshot) -> Overlay:
    """What stands in the Event object: few are ever read, so it is composed when one is."""
    assert isinstance(event, Narrated)
    namespace, name = event.address.namespace, event.address.name
    told, first, last = event.told, event.first, event.last
    involved = {"kind": told.kind, "apiVersion": "v1", "name": told.name}
    if told.namespace:
        involved["namespace"] = told.namespace
    if told.uid:
        involved["uid"] = told.uid
    head = head_of("v1", "Event") | {
        "involvedObject": raw(involved),
        "reason": raw(told.reason),
        "message": raw(told.message),
        "source": raw({"component": told.component}),
        "count": raw(event.count),
        "type": raw("Normal" if told.normal else "Warning"),
    }
    began = rfc3339(first) if first is not None else ""
    if first is not None and last is not None:
        head |= {"firstTimestamp": raw(began), "lastTimestamp": raw(rfc3339(last))}
    uid = derived_uid("Event", namespace, name)
    return Overlay(
        head=head,
        metadata={"name": name, "namespace": namespace, "uid": uid} | ({"creationTimestamp": began} if began else {}),
        uid=uid,
        fields={
            "involvedObject.kind": told.kind,
            "involvedObject.name": told.name,
            "involvedObject.namespace": told.namespace,
            "involvedObject.uid": told.uid,
            "reason": told.reason,
            "type": "Normal" if told.normal else "Warning",
        },
    )
